"""The parsers of the administration API of Service Bus: what they read is the same when it is written and read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import unquote_to_bytes

from broker_core.common.errors import InvalidArgument, InvalidFilter
from broker_core.common.types import EntityKind
from broker_core.service_bus.administration import documents, paths
from broker_core.service_bus.administration.paths import RULES, Level
from broker_core.service_bus.rules.filters import DEFAULT_RULE_NAME, Rule
from broker_core.wire.http.errors import UnknownResource
from broker_core.wire.xml import InvalidXml
from tests.service_bus.administration.written import check_entity, check_rule, policies_of, settings_of

KINDS: Sequence[Sequence[EntityKind]] = ((EntityKind.QUEUE, EntityKind.TOPIC), (EntityKind.SUBSCRIPTION,))


def path(data: bytes) -> None:
    """A raw path. What is found are its segments, decoded once."""
    raw = data.decode("latin-1")
    with suppress(UnknownResource, InvalidArgument):
        target = paths.target_of(raw)
        decoded = b"/".join(unquote_to_bytes(segment) for segment in raw.split("/")).decode()
        if target.level in (Level.SUBSCRIPTIONS, Level.RULES):
            decoded = decoded.removesuffix("/")
        assert target.path == decoded
        assert not {"", ".", ".."} & set(decoded[1:].split("/")) and "\x00" not in decoded
        below = {Level.SUBSCRIPTIONS: "/Subscriptions", Level.RULES: f"/{RULES}", Level.RULE: f"/{RULES}/{target.rule}"}
        if target.entity:
            assert f"/{target.entity}{below.get(target.level, '')}".lower() == decoded.lower()
            assert target.address("demo").path == target.entity
        else:
            assert decoded.lower() in ("/$namespaceinfo", f"/$resources/{target.level}")


def entity(data: bytes) -> None:
    """The body of a PUT."""
    for kinds in KINDS:
        try:
            given = documents.read_entity(data, kinds)
            settings, policies = settings_of(given), policies_of(given)
        except (InvalidXml, InvalidArgument, InvalidFilter):
            continue
        check_entity(given.kind, settings, policies)
        if given.rule is not None:
            check_rule(Rule(DEFAULT_RULE_NAME, given.rule.filter, given.rule.action))


def rule(data: bytes) -> None:
    """The body of a PUT of a rule."""
    try:
        given = documents.read_rule(data)
    except (InvalidXml, InvalidArgument, InvalidFilter):
        return
    check_rule(Rule(DEFAULT_RULE_NAME, given.filter, given.action))


TARGETS: dict[str, Callable[[bytes], None]] = {"entity_path": path, "entity": entity, "rule": rule}
