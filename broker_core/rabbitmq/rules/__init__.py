"""What RabbitMQ decides (RMQ- rules): routing, arguments, policies, expiry, dead-lettering. Pure."""
