"""Service Bus: the parsers of its administration API, and whole requests to its port, those for messages too."""
