"""Pages of storage queues: their lists with the reason and the end of every invisibility, put, get by hand, settings, clear."""
