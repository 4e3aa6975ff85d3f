"""Experiment files: reading, checking, and planning their runs."""
