"""Queue Storage: the parsers of its REST API, and whole requests."""
