"""Estimate every agent's mean from a table: `estimate` reads it, chooses a method, and reports."""
