"""The file of a node, and plans for fleets."""
