"""Tags for texts: the tagger, the model of documents behind it, and the rules for suggestions."""
