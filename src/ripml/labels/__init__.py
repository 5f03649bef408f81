"""Labels: how they are encoded, named and squeezed by a random matrix Phi (the paper's step 1)."""
