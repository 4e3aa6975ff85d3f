"""What makes it fast, exact and safe on disk. Nobody needs to read it first."""
