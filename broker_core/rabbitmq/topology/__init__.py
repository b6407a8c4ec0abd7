"""Virtual hosts and what is in them: exchanges, bindings, queues, policies, definitions."""
