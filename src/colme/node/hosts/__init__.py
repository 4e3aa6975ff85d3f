"""Many agents in one process."""
