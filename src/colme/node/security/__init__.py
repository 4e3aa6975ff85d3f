"""Keys and certificates, and how far neighbors are trusted."""
