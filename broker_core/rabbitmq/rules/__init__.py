"""RabbitMQ's rules (RMQ-): routing, arguments, policies, expiry, dead-lettering. Pure functions."""
