"""The Service Bus runtime REST API (docs/http.md) as a plain ASGI application."""

from .addresses import is_mounted
from .asgi import application, application_at_root, is_for_messages
