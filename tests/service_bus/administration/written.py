"""What the administration API reads, written as it answers, to be read again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from broker_core.common.types import EntityKind, Tier
from broker_core.service_bus.administration import documents
from broker_core.service_bus.administration.documents import EntityElement, Entry
from broker_core.service_bus.entities.shared_access import AccessPolicy, checked_key
from broker_core.service_bus.rules.entity_settings import Settings, check_policy_name, new_settings, values_of
from broker_core.service_bus.rules.filters import Rule, rule_from_json, rule_to_json
from broker_core.service_bus.rules.limits import STRICT, of_tier
from broker_core.service_bus.rules.values import GivenPolicy
from broker_core.wire import xml

AT = datetime(2026, 11, 21, 2, 55, 46, 123456, UTC)
LIMITS = of_tier(STRICT, Tier.PREMIUM)


def document(content: str) -> bytes:
    return xml.document(documents.entry(Entry("http://localhost:5300/orders", "orders", "demo", AT, AT), content))


def settings_of(given: EntityElement) -> Settings:
    """Those of a new entity. Raises InvalidArgument."""
    return new_settings(given.kind, given.settings, LIMITS)


def policies_of(given: EntityElement) -> list[AccessPolicy]:
    """As they would be stored. Raises InvalidArgument."""
    return [
        AccessPolicy(
            id=number,
            name=check_policy_name(each.name),
            namespace="demo",
            path="orders",
            primary_key=checked_key("primary_key", each.primary_key) or "primary1",
            secondary_key=checked_key("secondary_key", each.secondary_key) or "secondary",
            send=each.send,
            listen=each.listen,
            manage=each.manage,
            created_at=AT,
            updated_at=AT,
        )
        for number, each in enumerate(given.policies or ())
    ]


def check_entity(kind: EntityKind, settings: Settings, policies: Sequence[AccessPolicy] = ()) -> None:
    """That they are written and read again as they are."""
    computed = {} if kind is EntityKind.SUBSCRIPTION else {"AuthorizationRules": documents.policies(policies)}
    body = document(documents.entity_content(kind, values_of(settings), computed, "localhost:5300"))
    again = documents.read_entity(body, [kind])
    assert settings_of(again) == settings
    assert list(again.policies or ()) == [
        GivenPolicy(each.name, each.send, each.listen, each.manage, each.primary_key, each.secondary_key) for each in policies
    ]


def check_rule(given: Rule) -> None:
    """That it is written and read again as it is stored, with the same types."""
    stored = rule_to_json(given)
    rule = rule_from_json(stored)
    assert rule_to_json(rule) == stored
    again = documents.read_rule(document(documents.rule_content(rule, AT)))
    assert rule_to_json(Rule(again.name, again.filter, again.action)) == stored
