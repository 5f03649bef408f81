"""The model: fitting, prediction, learning while in use, explanations."""
