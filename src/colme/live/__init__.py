"""Live views: a renderer in plain JavaScript (live.js), and the feeds that it shows."""
