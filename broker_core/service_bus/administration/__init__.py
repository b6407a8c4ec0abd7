"""The administration API of Service Bus: queues, topics, subscriptions and rules as ATOM entries over HTTP, served by the
listener (docs/service-bus-administration.md). A plain ASGI application."""

from .asgi import application
