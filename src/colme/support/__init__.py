"""Plumbing without statistics: structs, files, saved state, columns, and the only table writer."""
