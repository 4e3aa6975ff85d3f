"""Runs that are complete or not there."""
