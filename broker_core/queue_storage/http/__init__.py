"""The REST API of Azure Queue Storage (docs/queue-storage-rest.md) as a plain ASGI application, served by the listener."""

from .asgi import application
