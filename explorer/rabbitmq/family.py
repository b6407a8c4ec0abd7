"""The pages of RabbitMQ, for what all families share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.urls import include, path, reverse

from broker_core import rabbitmq
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, Right
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.reads import Counted, EntityRow, MessageRow
from explorer.frames.family import FamilyPages, LimitPages, LockPages, NewEntity, PageTexts, PolicyLine, PolicyPages
from explorer.frames.values import Badge
from explorer.rabbitmq.forms.keys import APPLY_TO

from . import policies, queue, queues, states, vocabularies
from .board import RabbitBoard
from .connection_lines import RabbitConnections
from .editing import RabbitEdits
from .message import RabbitMessagePage
from .operations import RabbitOperations

_PARTS = (
    "overview_links", "overview_new", "overview_empty", "message_links", "message_extra", "settings_fold", "entity_warnings",
)  # fmt: skip


class RabbitLocks(LockPages):
    """How operators release unacknowledged deliveries."""

    word = "delivery"
    effect = (
        "The message is requeued at its position, as redelivered. The channel keeps its other deliveries; if it still "
        "acknowledges this one, it is closed, as for any unknown delivery tag."
    )

    def release(self, address: EntityAddress, numbers: Sequence[int], reason: str, actor: Actor) -> Sequence[int]:
        return rabbitmq.release(address, numbers, reason=reason, actor=actor)


class RabbitLimits(LimitPages):
    """The consumer timeout and the delivery limit."""

    lock = "consumer timeout"
    deliveries = "delivery limit"
    idle = "expiry of unused queues (x-expires)"
    sending_is_use = False
    more_deliveries = 1
    notices_crashes = True

    def delivery_limit(self, entity: Any) -> int | None:
        return (entity.effective or {}).get("delivery_limit")

    def propose(self, entity: Any, lock: timedelta | None, deliveries: int | None, time_to_live: timedelta | None) -> str:
        return policies.propose(entity, lock, deliveries, time_to_live)


class RabbitPolicies(PolicyPages):
    """Policies and operator policies."""

    def lines(self, namespace: str, actor: Actor) -> list[PolicyLine]:
        return [
            PolicyLine(
                policy.name, namespace, "operator policy" if policy.is_operator else "policy", policy.pattern,
                APPLY_TO.get(policy.apply_to, policy.apply_to), policy.priority, self._url_of(namespace, policy, actor),
            )
            for policy in rabbitmq.list_policies(namespace, actor=actor)
        ]  # fmt: skip

    def url(self, namespace: str) -> str:
        return reverse("explorer:rabbitmq_policies", args=[namespace])

    def _url_of(self, namespace: str, policy: Policy, actor: Actor) -> str:
        """The form that changes it, or for those who may not, the list."""
        if Right.MANAGE not in actor.rights:
            return self.url(namespace)
        kind = "operator" if policy.is_operator else "user"
        return reverse("explorer:rabbitmq_policy", args=[kind, namespace, policy.name])


class RabbitPages(FamilyPages):
    """The pages of RabbitMQ."""

    family = Family.RABBITMQ
    urls = [path("rabbitmq/", include("explorer.rabbitmq.urls"))]
    views = {
        "entity": queue.queue,
        "entity_delete": queues.delete,
    }
    parts = {name: f"explorer/rabbitmq/_{name}.html" for name in _PARTS}
    message = RabbitMessagePage()
    locks = RabbitLocks()
    edits = RabbitEdits()
    operations = RabbitOperations()
    limits = RabbitLimits()
    board = RabbitBoard()
    counts = states.RabbitCounts()
    ends: Mapping[Any, str] = {}
    events = states.EVENTS
    texts = PageTexts(
        body="Body",
        application_properties="Headers",
        leaves="acknowledged, expired, dropped, purged, moved or dead-lettered",
        no_consumer="no consumer",
        receiver="consumer",
        copier="exchange",
        lock_lost="their channel closed or timed out",
        attempts="Deaths",
    )
    figures = states.FIGURES
    new_entities = (NewEntity("RabbitMQ queue", "queue", "rabbitmq_queue_new_where"),)
    audited_as = {
        "queue": "declare queue",
        "exchange": "declare exchange",
        "binding": "bind",
        "policy": "set policy",
        "operator policy": "set operator policy",
    }
    policies = RabbitPolicies()
    connections = RabbitConnections()
    vocabularies = (vocabularies.QUEUES, vocabularies.EXCHANGES)
    namespace_urls = {"namespace_new": "rabbitmq_vhost_new", "namespace_delete": "rabbitmq_vhost_delete"}
    demo = "explorer.rabbitmq.demo"
    lessons = "explorer.rabbitmq.lessons"
    snippets = "explorer.rabbitmq.snippets"

    def badge(self, row: MessageRow) -> Badge:
        return states.badge(row)

    def set_status(self, address: EntityAddress, status: EntityStatus, *, actor: Actor) -> Any:
        return rabbitmq.set_status(address, status, actor=actor)

    def settings_words(self, entity: EntityRow, columns: Mapping[str, Any]) -> Mapping[str, str]:
        return queue.settings_words(entity, columns)

    def setting_words(self, kind: str, name: str, value: Any) -> tuple[str, str]:
        return queue.setting_words(kind, name, value)

    def term(self, term: Any) -> str:
        return term.rabbitmq

    def tags(self, entity: EntityRow) -> Sequence[tuple[str, str]]:
        return states.tags(entity)

    def needs_a_person(self, entity: Counted) -> bool:
        return entity.waits_for_operator

    def send_url(self, namespace: str, path: str) -> str:
        return reverse("explorer:rabbitmq_publish", args=(namespace, path))

    def exchange_url(self, namespace: str, name: str) -> str:
        return reverse("explorer:rabbitmq_exchange", args=(namespace, name))
