"""Pages about experiments and tables."""
