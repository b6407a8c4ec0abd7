"""RabbitMQ's virtual hosts: exchanges, bindings, queues and policies, and what is done with messages.

Each function is a use case (see store.driver). What RabbitMQ refuses raises AmqpError with its code and its text.
"""

from .queues import DeclaredQueue, declare_queue, delete_queue
from .vhosts import create_vhost, ensure_vhost, get_vhost, list_vhosts

__all__ = [
    "DeclaredQueue",
    "create_vhost",
    "declare_queue",
    "delete_queue",
    "ensure_vhost",
    "get_vhost",
    "list_vhosts",
]
