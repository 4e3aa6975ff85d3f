"""Input and output: sample sources, sinks for estimates, status."""
