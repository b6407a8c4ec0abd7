"""Clients for JavaScript, and the stories that they are told."""
