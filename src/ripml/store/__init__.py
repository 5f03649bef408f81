"""A durable store: documents, a journal of what was done to them, and a model that is always what they make it."""

from ripml.base.errors import StoreError
from ripml.store.store import Store

__all__ = ["Store", "StoreError"]
