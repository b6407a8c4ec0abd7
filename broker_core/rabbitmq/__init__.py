"""RabbitMQ's virtual hosts: exchanges, bindings, queues and policies, and what is done with messages.

Each function is a use case (see store.driver). What RabbitMQ refuses raises AmqpError with its code and its text, a policy that
is refused InvalidPolicy; nothing is stored then. Changing what there is needs the right MANAGE, looking at it BROWSE.
"""

from .bindings import bind_exchange, bind_queue, unbind_exchange, unbind_queue
from .channel_state import Tagged
from .channels import Channel
from .connections import Connection, connect, force_close, recover_dead
from .definitions import Outcome, Result, export_definitions, import_definitions
from .delivering import acknowledge, get, purge_queue, reject, requeue, take
from .delivery import Delivery
from .exchanges import declare_exchange, delete_exchange
from .in_force import effective, effective_of_exchange
from .listing import (
    StoredBinding,
    StoredExchange,
    StoredQueue,
    get_exchange,
    get_queue,
    list_bindings,
    list_exchanges,
    list_queues,
)
from .moving import Back, Moved, MovePreview, Origin, ToExchange, ToQueue, move, preview_move
from .policies import PolicyChange, delete_policy, list_policies, set_policy, set_queue_option
from .preview import (
    ExchangeChange,
    KeyChange,
    PolicyPreview,
    QueueChange,
    apply_policy,
    change_policy,
    preview_delete_policy,
    preview_policy,
)
from .properties import Properties
from .publishing import Publication, Published, publish
from .queues import DeclaredQueue, declare_queue, delete_queue
from .removing import VhostContents, delete_vhost, preview_delete_vhost
from .vhosts import create_vhost, ensure_vhost, get_vhost, list_vhosts

__all__ = [
    "Back",
    "Channel",
    "Connection",
    "DeclaredQueue",
    "Delivery",
    "ExchangeChange",
    "KeyChange",
    "MovePreview",
    "Moved",
    "Origin",
    "Outcome",
    "PolicyChange",
    "PolicyPreview",
    "Properties",
    "Publication",
    "Published",
    "QueueChange",
    "Result",
    "StoredBinding",
    "StoredExchange",
    "StoredQueue",
    "Tagged",
    "ToExchange",
    "ToQueue",
    "VhostContents",
    "acknowledge",
    "apply_policy",
    "change_policy",
    "bind_exchange",
    "bind_queue",
    "connect",
    "create_vhost",
    "declare_exchange",
    "declare_queue",
    "delete_exchange",
    "delete_policy",
    "delete_queue",
    "delete_vhost",
    "effective",
    "effective_of_exchange",
    "ensure_vhost",
    "export_definitions",
    "force_close",
    "get",
    "get_exchange",
    "get_queue",
    "get_vhost",
    "import_definitions",
    "list_bindings",
    "list_exchanges",
    "list_policies",
    "list_queues",
    "list_vhosts",
    "move",
    "preview_delete_policy",
    "preview_delete_vhost",
    "preview_move",
    "preview_policy",
    "publish",
    "purge_queue",
    "recover_dead",
    "reject",
    "requeue",
    "set_policy",
    "set_queue_option",
    "take",
    "unbind_exchange",
    "unbind_queue",
]
