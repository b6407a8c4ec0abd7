"""Pages of storage queues: message lists with the reason and end of each invisibility, put, get, settings, clear."""
