"""Raw text to features."""

from ripml.text.doc2vec import Doc2Vec
from ripml.text.encoder import Encoder
from ripml.text.tfidf import TfIdf

__all__ = ["Doc2Vec", "Encoder", "TfIdf"]
