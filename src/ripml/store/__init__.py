"""A durable store: documents, a journal of their changes, and a model that is always up to date with them."""

from ripml.base.errors import StoreError
from ripml.store.forgetting import Certificate
from ripml.store.fulltext import Found, Match
from ripml.store.store import Review, Store

__all__ = ["Certificate", "Found", "Match", "Review", "Store", "StoreError"]
