"""Hyper-parameter search: studies, the space that they search, and plots."""
