"""Clients: processes with their leases, connections, channels, consumers and their deliveries."""
