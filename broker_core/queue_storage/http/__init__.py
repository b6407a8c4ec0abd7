"""The REST API of Azure Queue Storage as a plain ASGI application, served by the listener."""

from .asgi import application
