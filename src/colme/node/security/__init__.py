"""Keys, identities, and how far a neighbor is trusted."""
