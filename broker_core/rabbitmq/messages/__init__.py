"""Message operations: publish, route, dead-letter, limit, expire, deliver, move, browse."""
