"""Search for settings: studies, their space and plots."""
