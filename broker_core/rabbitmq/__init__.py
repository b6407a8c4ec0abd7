"""RabbitMQ's virtual hosts: exchanges, bindings, queues and policies, and what is done with messages.

Each function is a use case (see store.driver). What RabbitMQ refuses raises AmqpError with its code and its text, a policy that
is refused InvalidPolicy; nothing is stored then. Changing what there is needs the right MANAGE, looking at it BROWSE.

A name's module is imported when the name is first used.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "channel_state": ("Tagged",),
    "channels": ("Channel",),
    "connections": ("Connection", "connect", "force_close", "recover_dead"),
    "bindings": ("bind_exchange", "bind_queue", "unbind_exchange", "unbind_queue"),
    "in_force": ("effective", "effective_of_exchange"),
    "definitions": ("Outcome", "Result", "export_definitions", "import_definitions"),
    "exchanges": ("declare_exchange", "delete_exchange"),
    "listing": (
        *("StoredBinding", "StoredExchange", "StoredQueue"),
        *("get_exchange", "get_queue", "list_bindings", "list_exchanges", "list_queues"),
    ),
    "policies": ("PolicyChange", "delete_policy", "list_policies", "set_policy", "set_queue_option"),
    "delivering": ("Delivery", "acknowledge", "get", "purge_queue", "reject", "requeue", "take"),
    "moving": ("Back", "MovePreview", "Moved", "ToExchange", "ToQueue", "move", "preview_move"),
    "preview": (
        *("ExchangeChange", "KeyChange", "PolicyPreview", "QueueChange"),
        *("apply_policy", "preview_delete_policy", "preview_policy"),
    ),
    "properties": ("Properties",),
    "publishing": ("Publication", "Published", "publish"),
    "queues": ("DeclaredQueue", "declare_queue", "delete_queue"),
    "vhosts": ("create_vhost", "delete_vhost", "ensure_vhost", "get_vhost", "list_vhosts"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
