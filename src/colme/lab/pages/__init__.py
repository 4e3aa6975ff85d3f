"""HTML pages: one about an experiment, one about the estimates of a table."""
