"""Forms of the RabbitMQ pages."""
