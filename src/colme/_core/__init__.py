"""What makes colme fast, exact and safe on disk. Not needed on a first reading."""
