"""Raw text to features."""

from ripml.text.tfidf import TfIdf

__all__ = ["TfIdf"]
