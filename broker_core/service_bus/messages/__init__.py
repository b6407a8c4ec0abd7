"""Messages: sending, receiving, settling, forwarding, and what is due on them."""
