"""The administration API of Service Bus at the port of a listener."""
