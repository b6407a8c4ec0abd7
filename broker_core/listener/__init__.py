"""The process that serves the network clients of all families (`manage.py listen`): ports, TLS, HTTP servers, start and stop."""
