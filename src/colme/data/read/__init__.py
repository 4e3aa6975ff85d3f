"""From a table, wherever it is, to samples agent by agent."""
