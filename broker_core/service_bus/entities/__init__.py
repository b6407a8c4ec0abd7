"""Queues, topics, subscriptions and rules: create, change, delete, get and list; effective settings and their sources.

Each function is a use case (see store.use_cases). Changes require the right MANAGE, reads BROWSE, except `get_link_target`, which
says what front ends must know of an entity to those who may use it. They raise EntityNotFound, EntityExists, InvalidArgument
(with the setting, the value and what is allowed; also for an entity of another kind), NotAllowed and NotAuthorized.
"""

from .descriptions import (
    Description,
    create_entity,
    describe_entities,
    describe_entity,
    replace_entity,
)
from .effective import EffectiveSetting, effective
from .forwarding import forwarding_notes
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
    set_status,
    update_entity,
    update_queue,
    update_subscription,
    update_topic,
)
from .link_targets import LinkTarget, get_link_target
from .rules import StoredRule, create_rule, delete_rule, get_rule, list_rules, update_rule
