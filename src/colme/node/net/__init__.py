"""Transports: in memory, and zenoh."""
