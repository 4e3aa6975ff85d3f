"""How agents come to be neighbors, and are replaced."""
