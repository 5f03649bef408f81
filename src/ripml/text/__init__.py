"""Raw text to features."""

from ripml.text.base import TextFeatures
from ripml.text.doc2vec import Doc2Vec
from ripml.text.encoder import Encoder
from ripml.text.tfidf import TfIdf
from ripml.text.title import Title
from ripml.text.views import Views

__all__ = ["Doc2Vec", "Encoder", "TextFeatures", "TfIdf", "Title", "Views"]
