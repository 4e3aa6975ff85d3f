"""Experiment files: what to run."""
