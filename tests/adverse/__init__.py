"""Worlds made to break the promises, invented without reading the methods, and how to measure in them."""
