"""Namespaces, queues, topics, subscriptions, rules and clocks: create, change, delete, get, list; what a setting is and where it
comes from.

Each function is a use case (see store.driver). Changing needs the right MANAGE, reading BROWSE. They raise EntityNotFound,
EntityExists, InvalidArgument (with the setting, the value and what is allowed; also for an entity of another kind),
NotAllowed and NotAuthorized.

The system namespace carries Vitrine's own work: only processes change its entities, and its clock is always the real one.
"""

from .clocks import Clock, get_clock, pause_clock, resume_clock, step_clock, step_clock_to
from .effective import Effective, effective
from .kinds import Entity, Queue, Subscription, Topic
from .lifecycle import (
    create_queue,
    create_subscription,
    create_topic,
    delete_entity,
    delete_queue,
    delete_subscription,
    delete_topic,
    ensure_queue,
    ensure_subscription,
    ensure_topic,
    get_entity,
    get_queue,
    get_subscription,
    get_topic,
    list_entities,
    list_queues,
    list_subscriptions,
    list_topics,
    update_entity,
    update_queue,
    update_subscription,
    update_topic,
)
from .namespaces import (
    Namespace,
    create_namespace,
    delete_namespace,
    ensure_namespace,
    get_namespace,
    limits,
    list_namespaces,
    update_namespace,
)
from .rules import StoredRule, create_rule, delete_rule, list_rules, update_rule

__all__ = [
    "Clock",
    "Effective",
    "Entity",
    "Namespace",
    "Queue",
    "StoredRule",
    "Subscription",
    "Topic",
    "create_namespace",
    "create_queue",
    "create_rule",
    "create_subscription",
    "create_topic",
    "delete_entity",
    "delete_namespace",
    "delete_queue",
    "delete_rule",
    "delete_subscription",
    "delete_topic",
    "effective",
    "ensure_namespace",
    "ensure_queue",
    "ensure_subscription",
    "ensure_topic",
    "get_clock",
    "get_entity",
    "get_namespace",
    "get_queue",
    "get_subscription",
    "get_topic",
    "limits",
    "list_entities",
    "list_namespaces",
    "list_queues",
    "list_rules",
    "list_subscriptions",
    "list_topics",
    "pause_clock",
    "resume_clock",
    "step_clock",
    "step_clock_to",
    "update_entity",
    "update_namespace",
    "update_queue",
    "update_rule",
    "update_subscription",
    "update_topic",
]
