"""Transports: in memory, and over zenoh."""
