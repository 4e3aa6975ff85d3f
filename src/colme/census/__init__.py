"""The census: our own method, whole."""
