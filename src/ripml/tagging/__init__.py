"""Texts in, tags out."""
