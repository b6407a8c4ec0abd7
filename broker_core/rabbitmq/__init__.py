"""RabbitMQ virtual hosts: exchanges, bindings, queues, policies and message operations.

Each function is a use case (see store.use_cases). RabbitMQ's errors are raised as AmqpError with code and text, a refused policy
as InvalidPolicy; nothing is stored then. Changes need the right MANAGE, reads BROWSE.
"""

from broker_core.rabbitmq.connections.channels import Channel, release
from broker_core.rabbitmq.connections.connections import Connection, connect, end_connections, force_close, recover_dead
from broker_core.rabbitmq.connections.state import Tagged
from broker_core.rabbitmq.definitions import Outcome, Result, export_definitions, import_definitions
from broker_core.rabbitmq.messages.delivering import acknowledge, get, purge_queue, reject, requeue, take
from broker_core.rabbitmq.messages.delivery import Delivery
from broker_core.rabbitmq.messages.editing import edit
from broker_core.rabbitmq.messages.moving import (
    Back,
    DeadLetterOrigin,
    Moved,
    MovePreview,
    ToExchange,
    ToQueue,
    move,
    move_numbers,
    preview_move,
)
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.rabbitmq.messages.publishing import Publication, Published, publish
from broker_core.rabbitmq.policies import (
    PolicyChange,
    delete_policy,
    list_policies,
    set_policy,
    set_queue_option,
)
from broker_core.rabbitmq.topology.bindings import bind_exchange, bind_queue, unbind_exchange, unbind_queue
from broker_core.rabbitmq.topology.catalog import (
    StoredBinding,
    StoredExchange,
    StoredQueue,
    get_exchange,
    get_queue,
    list_bindings,
    list_exchanges,
    list_queues,
)
from broker_core.rabbitmq.topology.effective import effective, effective_of_exchange
from broker_core.rabbitmq.topology.exchanges import declare_exchange, delete_exchange
from broker_core.rabbitmq.topology.queues import DeclaredQueue, declare_queue, delete_queue, set_status
from broker_core.rabbitmq.topology.vhosts import create_vhost, ensure_vhost, get_vhost, list_vhosts

from .policy_preview import (
    ExchangeChange,
    KeyChange,
    PolicyPreview,
    QueueChange,
    change_policy,
    preview_delete_policy,
    preview_policy,
)
from .routing_replay import PublishedGroup, RoutingDraft, RoutingReplay, published_groups, replay_routing, route
from .vhost_deletion import VhostContents, delete_vhost, preview_delete_vhost
