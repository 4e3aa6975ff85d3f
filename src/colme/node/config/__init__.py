"""Configuration: node.toml, presets, and plans for fleets."""
