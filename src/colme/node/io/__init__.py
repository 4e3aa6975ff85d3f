"""Samples in, estimates and status out."""
