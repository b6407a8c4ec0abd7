"""Clients: processes with their leases, connections, channels, consumers, and delivery inside one process."""
