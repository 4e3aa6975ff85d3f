"""From a table, wherever it is, to samples by agent."""
