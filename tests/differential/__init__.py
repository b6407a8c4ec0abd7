"""The same stories told to a real RabbitMQ server and to the core."""
