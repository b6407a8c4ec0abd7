"""Virtual hosts and their exchanges, bindings, queues and effective policies."""
