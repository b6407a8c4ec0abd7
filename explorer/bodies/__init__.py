"""How bodies of messages are decoded and shown."""
