"""The Service Bus runtime REST API (reference section 8) as a plain ASGI application."""

from .addresses import is_mounted
from .asgi import application
