"""Recorded results: what fixed settings answered on fixed data when `record.json` was written."""
