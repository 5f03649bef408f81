"""Research code: the paper's experiments, losses, missing labels, builders of data sets and generated data."""
