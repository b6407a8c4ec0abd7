"""Requests and answers of an ASGI server, and the texts in them."""
