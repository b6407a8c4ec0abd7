"""What happens to messages: publish, route, dead-letter, limit, expire, deliver, move, browse."""
