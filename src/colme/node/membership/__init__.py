"""Membership: how agents find neighbors and replace lost ones."""
