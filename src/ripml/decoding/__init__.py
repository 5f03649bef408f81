"""From a predicted embedding to scores of labels (the paper's inference, step 3)."""
