"""Values that no caller should give; and a world in which every use case can be called, with arguments that are right."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from broker_core import namespaces, operations, queue_storage, rabbitmq, service_bus
from broker_core.common.types import Actor, BodyKind, EntityAddress, EntityKind, EntityStatus, Family, Right
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import CorsRule, Logging
from broker_core.rabbitmq import Properties, Publication, RoutingDraft
from broker_core.rabbitmq.connections import channels
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.reads import EntityFilter, EventFilter, MessageFilter, Tab
from broker_core.reads.kept import KeptMessage
from broker_core.reads.shared import entity_id_of
from broker_core.service_bus import RuleDraft, entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.emulator_config import read
from broker_core.service_bus.rules.entity_settings import QueueSettings, SubscriptionSettings, TopicSettings
from broker_core.service_bus.rules.filters.correlation import CorrelationFilter
from broker_core.service_bus.rules.filters.rules import Rule
from broker_core.service_bus.rules.values import GivenPolicy, Message
from broker_core.store.driver import run

ODD: tuple[Any, ...] = (
    *(None, True, -1, 2**63, math.nan, "", "\x00", "\ud800", "x" * 20_000, "yesterday", b"\xff"),
    *(object(), [], [object()], {"a": object()}, {"\ud800": 1}, datetime(2020, 1, 1), timedelta(seconds=-1)),
)
SECOND = timedelta(seconds=1)
LINES = ['{"kind": "vitrine"']

EXPORT = ['{"vitrine-export": {"version": 2, "with_keys": false}}', '{"end": {"entities": 0, "messages": 0}}']
UPDATE = [
    EXPORT[0],
    '{"namespace": {"name": "odd", "family": "service_bus", "description": "", "tier": "standard"}}',
    EXPORT[1],
]
LATER = datetime(2030, 1, 1, tzinfo=UTC)
KEPT = KeptMessage(EntityAddress("odd", "q"), 1, 1, LATER, 0, LATER, {}, {}, BodyKind.DATA, 1, None)
EMULATOR = '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns"}]}}'


def world() -> SimpleNamespace:
    """One namespace of each family, with something in every place."""
    w = SimpleNamespace(ns="odd", account="oddaccount", vhost="odd host", actor=Actor("user", "odd", Right.ALL))
    _service_bus(w)
    _storage(w)
    _rabbit(w)
    return w


def _service_bus(w: SimpleNamespace) -> None:
    namespaces.create_namespace(w.ns, Family.SERVICE_BUS)
    namespaces.create_namespace("empty", Family.SERVICE_BUS)
    w.queue, w.topic = EntityAddress(w.ns, "q"), EntityAddress(w.ns, "t")
    w.subscription, w.by_session = EntityAddress(w.ns, "t/Subscriptions/s"), EntityAddress(w.ns, "sessions")
    entities.create_queue(w.queue)
    entities.create_queue(w.by_session, requires_session=True)
    entities.create_topic(w.topic)
    entities.create_subscription(w.subscription)
    entities.create_rule(w.subscription, Rule("r"))
    shared_access.create_policy(w.ns, "p", listen=True)
    service_bus.send(w.queue, [Message(f"{n}".encode()) for n in range(6)])
    deferred, dead, locked = service_bus.receive(w.queue, 3)
    service_bus.defer(w.queue, [deferred.lock_token])
    service_bus.dead_letter(w.queue, [dead.lock_token])
    w.deferred, w.token = deferred.sequence_number, locked.lock_token
    later = namespaces.get_clock(w.ns).now + timedelta(hours=1)
    (w.scheduled,) = service_bus.send(w.queue, [Message(scheduled_enqueue_at=later)])
    service_bus.send(w.by_session, [Message(session_id=name) for name in "aaab"])
    w.session = service_bus.accept_session(w.by_session, "a")
    w.entity_id = run(entity_id_of(w.queue))


def _storage(w: SimpleNamespace) -> None:
    queue_storage.create_account(w.account)
    w.orders, w.poison = EntityAddress(w.account, "orders"), EntityAddress(w.account, "orders-poison")
    queue_storage.create_queue(w.orders, max_dequeue_count=3)
    queue_storage.create_queue(w.poison)
    w.texts = queue_storage.put_all(w.orders, ["a", "b", "c"])
    queue_storage.put(w.poison, "p")
    (w.got,) = queue_storage.get(w.orders)


def _rabbit(w: SimpleNamespace) -> None:
    rabbitmq.create_vhost(w.vhost)
    w.rabbits = EntityAddress(w.vhost, "q")
    rabbitmq.declare_queue(w.rabbits)
    rabbitmq.declare_queue(EntityAddress(w.vhost, "other"))
    rabbitmq.declare_exchange(w.vhost, "x")
    rabbitmq.bind_queue(w.vhost, "q", "x", "k")
    rabbitmq.bind_exchange(w.vhost, "x", "amq.fanout")
    rabbitmq.set_policy(w.vhost, Policy("p", "q", {"max-length": 100}))
    rabbitmq.publish(w.vhost, [Publication(b"x", routing_key="q")] * 4)
    (delivery,) = rabbitmq.take(w.rabbits, owner_id=1_000_001)
    w.delivered = delivery.token
    w.rabbits_id = rabbitmq.get_queue(w.rabbits).id


def _channel(w: SimpleNamespace, *, gets: bool = False, consumes: bool = False) -> rabbitmq.Channel:
    channel = rabbitmq.connect(w.vhost, "odd").channel()
    if gets:
        channels.get(channel, "q")
    if consumes:
        channels.consume(channel, "q", tag="c")
    return channel


def _operation(w: SimpleNamespace) -> operations.Operation:
    chosen = operations.Selection(w.queue, numbers=(1,))
    kind = operations.Kind.PURGE
    return operations.create(kind, chosen, counted=1, entity_id=w.entity_id, family=Family.SERVICE_BUS, actor=w.actor)


def _deletion(w: SimpleNamespace) -> int:
    number = operations.new_number()
    entities.delete_entity(w.by_session, operation_id=number, actor=w.actor)
    return number


def _claimed(w: SimpleNamespace) -> operations.Operation:
    operation = operations.claim(w.ns, _operation(w).id, "t")
    assert operation is not None
    return operation


def given(w: SimpleNamespace) -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    """By module and use case: what makes arguments that are right, for those that need some."""
    new = lambda path: EntityAddress(w.ns, path)  # noqa: E731
    at, rule = {"address": w.queue}, {"subscription": w.subscription}
    held, key = {"address": w.queue, "tokens": [w.token]}, {"vhost": w.vhost, "routing_key": "k"}
    orders, rabbits = {"address": w.orders}, {"address": w.rabbits}
    message = w.texts[1]
    policy = {"vhost": w.vhost, "policy": Policy("p", "q", {"max-length": 5})}
    return {
        "service_bus.messages.editing": {"*": lambda: at | {"sequence_number": 4, "body": b"x", "properties": {"a": 1}}},
        "queue_storage.editing": {"*": lambda: orders | {"sequence_number": 2, "text": "x"}},
        "rabbitmq.messages.editing": {"*": lambda: rabbits | {"sequence_number": 2, "body": b"x", "headers": {"a": 1}}},
        "service_bus.messages.operating": {
            "resubmit": lambda: {"address": w.queue.dead_letter, "sequence_numbers": [2], "properties": {"a": 1}, "body": b"x"},
            "dead_letter_unlocked": lambda: at | {"sequence_numbers": [4], "reason": "x", "description": "y"},
            "delete_batch": lambda: at | {"max_count": 1},
            "release_locks": lambda: at | {"sequence_numbers": [3]},
            "release_session": lambda: {"address": w.by_session, "session_id": "a"},
            "*": lambda: at,
        },
        "service_bus.messages.receiving": {
            "receive_from": lambda: {"addresses": [w.queue]},
            "receive_deferred": lambda: at | {"sequence_numbers": [w.deferred]},
            "*": lambda: at,
        },
        "service_bus.messages.reading": {
            "explain": lambda: {"address": w.queue, "sequence_number": 1},
            "rules_of": lambda: {"subscription_ids": [1]},
        },
        "service_bus.routing": {
            "published_messages": lambda: {"topic": w.topic, "limit": 3},
            "replay_rules": lambda: {"topic": w.topic, "draft": RuleDraft(w.topic.subscription("all"), None, Rule("odd"))},
            "route": lambda: {"topic": w.topic, "message": Message(b"x", properties={"a": 1})},
        },
        "service_bus.messages.sending": {
            "send": lambda: at | {"messages": [Message(b"x", properties={"a": 1})]},
            "cancel_scheduled": lambda: at | {"sequence_numbers": [w.scheduled]},
        },
        "service_bus.sessions": {
            "accept_session": lambda: {"address": w.by_session},
            "list_sessions": lambda: {"address": w.by_session},
            "set_session_state": lambda: {"session": w.session, "state": b"x"},
            "*": lambda: {"session": w.session},
        },
        "service_bus.messages.settling": {"*": lambda: held},
        "namespaces.clocks": {
            "step_clock": lambda: {"namespace": w.ns, "step": timedelta(seconds=1)},
            "step_clock_to": lambda: {"namespace": w.ns, "at": datetime(2100, 1, 1, tzinfo=UTC)},
            "*": lambda: {"namespace": w.ns},
        },
        "service_bus.entities.effective": {"*": lambda: at},
        "service_bus.entities.forwarding": {"*": lambda: at},
        "service_bus.entities.link_targets": {"*": lambda: at | {"right": Right.SEND}},
        "service_bus.entities.descriptions": {
            "describe_entity": lambda: at,
            "describe_entities": lambda: {"namespace": w.ns, "kind": EntityKind.QUEUE, "first": 0, "max_count": 2},
            "create_entity": lambda: {
                "address": new("new"),
                "kind": EntityKind.QUEUE,
                "settings": {"max_delivery_count": 3},
                "policies": [GivenPolicy("p", send=True)],
            },
            "replace_entity": lambda: (
                at | {"kind": EntityKind.QUEUE, "settings": {"max_delivery_count": 3}, "policies": [GivenPolicy("p", send=True)]}
            ),
        },
        "service_bus.entities.lifecycle": {
            "create_queue": lambda: {"address": new("new"), "settings": QueueSettings()},
            "ensure_queue": lambda: {"address": new("new"), "settings": QueueSettings()},
            "create_topic": lambda: {"address": new("new"), "settings": TopicSettings()},
            "ensure_topic": lambda: {"address": new("new"), "settings": TopicSettings()},
            "create_subscription": lambda: {
                "address": new("t/Subscriptions/new"),
                "settings": SubscriptionSettings(),
                "rule": Rule("r"),
            },
            "ensure_subscription": lambda: {"address": new("t/Subscriptions/new"), "settings": SubscriptionSettings()},
            "list_subscriptions": lambda: {"topic": w.topic},
            **{f"{verb}_topic": lambda: {"address": w.topic} for verb in ("get", "update", "delete")},
            **{f"{verb}_subscription": lambda: {"address": w.subscription} for verb in ("get", "update", "delete")},
            **{f"list_{what}": dict for what in ("queues", "topics", "entities")},
            "set_status": lambda: at | {"status": EntityStatus.ACTIVE},
            "*": lambda: at,
        },
        "namespaces.namespaces": {
            **{f"{verb}_namespace": lambda: {"name": "new", "family": Family.SERVICE_BUS} for verb in ("create", "ensure")},
            "delete_namespace": lambda: {"name": "empty"},
            "list_namespaces": dict,
            **{f"{verb}_limits": lambda: {"name": w.ns, "max_size_in_megabytes": 3} for verb in ("preview", "change")},
            "*": lambda: {"name": w.ns},
        },
        "namespaces.protection": {
            "set_protected": lambda: at | {"protected": True},
            "hide_entities": lambda: {"namespace": w.ns},
        },
        "service_bus.entities.rules": {
            "create_rule": lambda: rule | {"rule": Rule("new", CorrelationFilter(subject="x"))},
            "update_rule": lambda: rule | {"rule": Rule("r")},
            "delete_rule": lambda: rule | {"name": "r"},
            "get_rule": lambda: rule | {"name": "r"},
            "list_rules": lambda: rule | {"first": 0, "max_count": 2},
        },
        "service_bus.preview": {
            "*": lambda: at,
        },
        "queue_storage.accounts": {
            "set_service_properties": lambda: {"account": w.account, "cors": (CorsRule(("*",), ("GET",)),), "logging": Logging()},
            "*": lambda: {"account": w.account},
        },
        "queue_storage.changing": {
            "update": lambda: (
                orders
                | {"message_id": message.message_id, "pop_receipt": message.pop_receipt, "visibility_timeout": timedelta(0)}
            ),
            "delete": lambda: orders | {"message_id": message.message_id, "pop_receipt": message.pop_receipt},
            "delete_all": lambda: orders | {"messages": [w.got, (message.message_id, message.pop_receipt)]},
        },
        "queue_storage.getting": {"*": lambda: orders},
        "queue_storage.operating": {
            "clear": lambda: orders,
            "requeue_poison": lambda: {"address": w.poison, "sequence_numbers": [1]},
            "*": lambda: orders | {"sequence_numbers": [1]},
        },
        "queue_storage.preview": {
            "*": lambda: orders,
        },
        "queue_storage.putting": {
            "put": lambda: orders | {"text": "x"},
            "put_all": lambda: orders | {"texts": ["x"]},
        },
        "queue_storage.queues": {
            "create_queue": lambda: {"address": EntityAddress(w.account, "new"), "metadata": {"a": "b"}},
            "ensure_queue": lambda: {"address": EntityAddress(w.account, "new")},
            **{what: lambda: {"account": w.account} for what in ("list_queues", "list_queue_page")},
            "set_access_policies": lambda: orders | {"policies": [AccessPolicy("p", permission="r")]},
            "set_status": lambda: orders | {"status": EntityStatus.ACTIVE},
            "set_metadata": lambda: orders | {"metadata": {"a": "b"}},
            **{f"{verb}_queue": lambda: orders for verb in ("get", "update", "delete")},
            **{f"{verb}_account": lambda: {"name": "newaccount"} for verb in ("create", "ensure")},
            "approximate_count": lambda: orders,
            "list_accounts": dict,
            "*": lambda: {"name": w.account},
        },
        "queue_storage.reading": {
            "explain": lambda: orders | {"sequence_number": 2},
            "came_from": lambda: {"address": w.poison, "sequence_numbers": [1]},
        },
        "rabbitmq.topology.bindings": {
            "bind_queue": lambda: key | {"queue": "other", "exchange": "x", "arguments": {"a": 1}},
            "unbind_queue": lambda: key | {"queue": "q", "exchange": "x"},
            "bind_exchange": lambda: key | {"destination": "x", "source": "amq.topic"},
            "unbind_exchange": lambda: {"vhost": w.vhost, "destination": "x", "source": "amq.fanout"},
        },
        "rabbitmq.messages.browsing": {
            "message_facts": lambda: {"entity_id": w.rabbits_id, "numbers": [1]},
            "queue_head": lambda: {"entity_id": w.rabbits_id},
            "unacked_by_queue": lambda: {"vhost": w.vhost, "entity_ids": [w.rabbits_id]},
            "explain": lambda: rabbits | {"number": 1},
            "connections_of": lambda: {"name": "process:odd"},
            "*": lambda: {"vhost": w.vhost},
        },
        "rabbitmq.routing_replay": {
            "route": lambda: key | {"exchange": "x", "headers": {"a": 1}},
            "published_groups": lambda: {"vhost": w.vhost, "exchange": "x"},
            "replay_routing": lambda: {"vhost": w.vhost, "draft": RoutingDraft()},
        },
        "rabbitmq.connections.channels": {
            "publish": lambda: {"channel": _channel(w), "publications": [Publication(b"x", routing_key="q")]},
            "cancel": lambda: {"channel": _channel(w, consumes=True), "tag": "c"},
            "deliveries": lambda: {"channel": _channel(w, consumes=True)},
            **{verb: lambda: {"channel": _channel(w, gets=True), "delivery_tag": 1} for verb in ("ack", "nack", "reject")},
            **{
                verb: lambda: {"channel": _channel(w), "queue": "q"}
                for verb in ("get", "consume", "declare_queue", "delete_queue")
            },
            "end_overdue": dict,
            "release": lambda: rabbits | {"sequence_numbers": [1]},
            "*": lambda: {"channel": _channel(w)},
        },
        "rabbitmq.connections.connections": {
            "connect": lambda: {"vhost": w.vhost},
            "close": lambda: {"connection": _channel(w).connection},
            "force_close": lambda: {"connection_id": _channel(w).connection.id},
            "*": dict,
        },
        "rabbitmq.definitions": {
            "export_definitions": lambda: {"vhost": w.vhost},
            "import_definitions": lambda: {"document": rabbitmq.export_definitions(w.vhost), "vhost": w.vhost},
        },
        "rabbitmq.messages.delivering": {
            "purge_queue": lambda: rabbits,
            **{verb: lambda: rabbits | {"owner_id": 1_000_001} for verb in ("get", "take")},
            "*": lambda: rabbits | {"tokens": [w.delivered]},
        },
        "rabbitmq.topology.exchanges": {
            "declare_exchange": lambda: {"vhost": w.vhost, "name": "new", "arguments": {"a": 1}},
            "delete_exchange": lambda: {"vhost": w.vhost, "name": "x"},
        },
        "rabbitmq.topology.effective": {
            "effective": lambda: rabbits,
            "effective_of_exchange": lambda: {"vhost": w.vhost, "name": "x"},
        },
        "rabbitmq.topology.catalog": {
            "get_queue": lambda: rabbits,
            "get_exchange": lambda: {"vhost": w.vhost, "name": "x"},
            "*": lambda: {"vhost": w.vhost},
        },
        "rabbitmq.messages.moving": {
            "move_numbers": lambda: rabbits | {"to": rabbitmq.ToQueue("other"), "sequence_numbers": [1]},
            "*": lambda: rabbits | {"to": rabbitmq.ToQueue("other")},
        },
        "service_bus.messages.moving": {"*": lambda: at | {"sequence_numbers": [w.scheduled], "to": "t"}},
        "operations.records": {
            "claim": lambda: {"namespace": w.ns, "operation_id": _operation(w).id, "token": "t"},
            "end": lambda: {"namespace": w.ns, "operation": _operation(w), "token": "t", "to": operations.State.DONE},
            "find": lambda: {"operation_id": 1},
            "*": dict,
        },
        "operations.batches": {
            "*": lambda: {"namespace": w.ns, "operation": _claimed(w), "token": "t", "position": 0, "work": None},
        },
        "operations.deletions": {"*": lambda: {"namespace": w.ns, "operation_id": _deletion(w), "actor": w.actor}},
        "operations.hiding": {"*": lambda: {"namespace": w.ns, "entity_id": w.entity_id}},
        "operations.importing": {"*": lambda: {"namespace": w.ns, "operation": _operation(w), "max_count": 5}},
        "operations.exporting": {"*": lambda: {"namespace": w.ns, "operation": _operation(w), "after": 0, "actor": w.actor}},
        "operations.undoing": {
            "*": lambda: {"namespace": w.ns, "operation": _claimed(w), "token": "t", "max_count": 5, "actor": "user:odd"},
        },
        "rabbitmq.policies": {
            "set_policy": lambda: policy,
            "delete_policy": lambda: {"vhost": w.vhost, "name": "p"},
            "list_policies": lambda: {"vhost": w.vhost},
            "set_queue_option": lambda: rabbits,
        },
        "rabbitmq.policy_preview": {
            "preview_policy": lambda: policy,
            "preview_delete_policy": lambda: {"vhost": w.vhost, "name": "p"},
            "change_policy": lambda: policy | {"name": "p", "operator": False},
        },
        "rabbitmq.messages.publishing": {
            "publish": lambda: {
                "vhost": w.vhost,
                "publications": [Publication(b"x", routing_key="q", properties=Properties(headers={"a": 1}))],
            },
        },
        "rabbitmq.topology.queues": {
            "declare_queue": lambda: {"address": EntityAddress(w.vhost, "new"), "arguments": {"x-max-length": 5}},
            "delete_queue": lambda: rabbits,
            "set_status": lambda: rabbits | {"status": EntityStatus.ACTIVE},
        },
        "rabbitmq.vhost_deletion": {"*": lambda: {"name": w.vhost}},
        "rabbitmq.topology.vhosts": {
            **{f"{verb}_vhost": lambda: {"name": "new"} for verb in ("create", "ensure")},
            "list_vhosts": dict,
            "*": lambda: {"name": w.vhost},
        },
        "listener.status": {"*": dict},
        "reads.broker_health": {"*": dict},
        "reads.revisions": {"*": lambda: at},
        "reads.dead_letters": {
            "failures": lambda: at | {"entity_id": 1, "numbers": [1]},
            "*": lambda: {"filter": EntityFilter()},
        },
        "reads.deleted_entities": {"*": lambda: at | {"entity_id": 1}},
        "reads.entities": {
            "namespaces": dict,
            "overview": dict,
            "now": lambda: {"namespace": w.ns},
            "subscriptions": lambda: {"topic": w.topic},
            "*": lambda: at,
        },
        "reads.actors": {"*": lambda: {"name": "process:odd"}},
        "reads.kept": {
            "kept_message": lambda: {"entity_id": w.entity_id, "sequence_number": 1},
            "kept_body": lambda: {"message": KEPT},
            "kept_bytes": dict,
            "kept_in": lambda: {"namespace": w.ns},
        },
        "reads.sizes": {"*": dict},
        "reads.attention": {"*": lambda: {"filter": EntityFilter()}},
        "reads.entity_lists": {
            "entities_by_id": lambda: {"ids": [w.entity_id]},
            "*": lambda: {"filter": EntityFilter()},
        },
        "reads.messages": {
            "contents": lambda: at | {"numbers": [4], "max_bytes": 1000},
            "count_messages": lambda: at | {"filter": MessageFilter()},
            "frequent_values": lambda: at | {"tab": Tab.ACTIVE, "field": "reason"},
            "list_messages": lambda: at | {"filter": MessageFilter()},
            "message_properties": lambda: at | {"sequence_numbers": [1]},
            "messages_by_number": lambda: {"entity_id": w.entity_id, "sequence_numbers": [1]},
            "property_names": lambda: {"namespace": w.ns, "entity_ids": [w.entity_id]},
            "stored": lambda: at | {"numbers": [4], "max_bytes": 1000},
            "*": lambda: at | {"sequence_number": 4},
        },
        "reads.searching": {
            "messages_with_id": lambda: {"message_id": "x"},
            "search_slice": lambda: {"filter": MessageFilter()},
        },
        "reads.flows": {"*": dict},
        "reads.locks": {"*": dict},
        "reads.names": {"*": dict},
        "reads.idleness": {"*": lambda: at},
        "reads.next_changes": {"*": lambda: at},
        "reads.oldest_messages": {"*": lambda: at},
        "reads.past_of_entities": {"*": lambda: at | {"at": datetime(2030, 1, 1, tzinfo=UTC)}},
        "reads.session_lists": {"*": lambda: {"address": w.by_session}},
        "reads.timelines": {
            "timeline": lambda: {"entity_id": w.entity_id, "sequence_number": 1},
            "events": lambda: {"filter": EventFilter()},
            "position": lambda: {"namespace": at["address"].namespace},
            "events_since": lambda: {"namespace": at["address"].namespace},
            "gone": lambda: at,
            "find": lambda: {"text": "x"},
        },
        "reads.traffic": {
            "recent_traffic": lambda: {"ids": [w.entity_id]},
            "namespace_traffic": lambda: {"namespace": w.ns},
            "*": lambda: at,
        },
        "service_bus.sweeps": {"*": dict},
        "service_bus.entities.shared_access": {
            "create_policy": lambda: {"scope": w.queue, "name": "new", "send": True},
            "list_policies": lambda: {"scope": w.ns},
            "list_all_policies": dict,
            "find_policies": lambda: {"namespace": w.ns, "path": None, "name": "p"},
            "search_by_key": lambda: {"label": w.ns, "path": None, "name": "p", "proves": lambda key: True},
            "stored_policies": lambda: {"ids": [1]},
            "set_keys": lambda: {"scope": w.ns, "name": "p", "primary": "x" * 44},
            "update_policy": lambda: {"scope": w.ns, "name": "p", "send": True, "listen": True, "manage": False},
            "replace_policies": lambda: {"address": w.queue, "policies": [GivenPolicy("p", send=True)]},
            "*": lambda: {"scope": w.ns, "name": "p"},
        },
        "sweeps.runs": {"*": dict},
        "sweeps": {"follow_clock": lambda: {"namespace": w.ns}, "*": dict},
        "service_bus.emulator_config": {"apply_plan": lambda: {"plan": read(EMULATOR)}},
        "transfer.importing": {"*": lambda: {"source": EXPORT}},
        "transfer.updating": {"*": lambda: {"source": UPDATE}},
    }
