"""Entries and feeds of the administration API: what a client gives, and what it gets (SB, sections 7.3 and 7.4). Pure functions.

Requests may have their elements in any order; those that are read-only or unknown are ignored. Readers raise InvalidXml with line
and column, and InvalidArgument with the element.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from broker_core.common.durations import format_iso, parse_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityKind, Tier
from broker_core.service_bus.rules.entity_settings import DURATIONS, FORWARDS, KEPT, SERVICE_SETTINGS, SETTINGS_TYPE
from broker_core.service_bus.rules.filters import Action, Filter, Rule, TrueFilter
from broker_core.service_bus.rules.kept_properties import effective_kept
from broker_core.service_bus.rules.values import GivenPolicy
from broker_core.wire import xml
from broker_core.wire.xml import Element, element

from .elements import ATOM, COUNTS, DESCRIPTION, INSTANCE, ORDER, RULE_DESCRIPTION, SERVICE_BUS, children_of, instant, type_of
from .filters import read_action, read_filter, write_action, write_filter

if TYPE_CHECKING:
    from broker_core.service_bus.entities.shared_access import AccessPolicy

NEVER = "0001-01-01T00:00:00Z"
_RULES, _RULE_TYPE, _FIRST_RULE = "AuthorizationRules", "SharedAccessAuthorizationRule", "DefaultRuleDescription"
_OF_A_POLICY = ("KeyName", "Rights", "PrimaryKey", "SecondaryKey")
_RIGHTS = {"Send": "send", "Listen": "listen", "Manage": "manage"}
_WHOLE = re.compile("-?[0-9]{1,18}")
_DEFAULTS = {kind: of() for kind, of in SETTINGS_TYPE.items()}
_KEPT = {kind: effective_kept(kind, {}) for kind in SETTINGS_TYPE}


@dataclass(frozen=True, slots=True)
class RuleElement:
    """A RuleDescription. name: None: not given."""

    name: str | None
    filter: Filter
    action: Action | None


@dataclass(frozen=True, slots=True)
class EntityElement:
    """What a client gives of an entity. settings: by name, only those in the document; `kept_properties` among them, if any is.
    policies: None: not given. rule: of a new subscription; None: not given."""

    kind: EntityKind
    settings: Mapping[str, Any]
    policies: tuple[GivenPolicy, ...] | None = None
    rule: RuleElement | None = None


# Read


def read_entity(body: bytes, kinds: Sequence[EntityKind]) -> EntityElement:
    """kinds: of which one is expected at the path."""
    found = _description(body, [DESCRIPTION[kind] for kind in kinds])
    kind = next(kind for kind in kinds if DESCRIPTION[kind] == found.name)
    settings: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    children = children_of(
        found, (*SERVICE_SETTINGS[kind], *_KEPT[kind], _FIRST_RULE if kind is EntityKind.SUBSCRIPTION else _RULES)
    )
    for name, child in children.items():
        if setting := SERVICE_SETTINGS[kind].get(name):
            settings[setting] = _setting(child, setting, getattr(_DEFAULTS[kind], setting))
        elif name in _KEPT[kind]:
            kept[name] = _flag(child) if isinstance(_KEPT[kind][name], bool) else child.text.strip()
    policies, rule = children.get(_RULES), children.get(_FIRST_RULE)
    return EntityElement(
        kind,
        settings | ({KEPT: kept} if kept else {}),
        None if policies is None else tuple(_policy(child) for child in policies.children if child.namespace == SERVICE_BUS),
        None if rule is None else _rule(rule),
    )


def read_rule(body: bytes) -> RuleElement:
    return _rule(_description(body, [RULE_DESCRIPTION]))


def _description(body: bytes, names: Sequence[str]) -> Element:
    """The description in an entry."""
    entry = xml.read(body)
    if (entry.namespace, entry.name) != (ATOM, "entry"):
        entry.refuse(f"the root must be an element entry of the namespace {ATOM}")
    contents = [child for child in entry.children if (child.namespace, child.name) == (ATOM, "content")]
    if len(contents) != 1 or len(contents[0].children) != 1:
        entry.refuse(f"it must have one element content of the namespace {ATOM}, with one element {' or '.join(names)}")
    (found,) = contents[0].children
    if found.namespace != SERVICE_BUS or found.name not in names:
        found.refuse(f"{found.name[:80]} cannot be at this path; it must be {' or '.join(names)} of the namespace {SERVICE_BUS}")
    return found


def _setting(child: Element, name: str, default: Any) -> Any:
    """The value of a setting as its type."""
    text = child.text.strip()
    if name in DURATIONS:
        return parse_iso(text, child.name)
    if isinstance(default, bool):
        return _flag(child)
    if isinstance(default, int):
        return _number(child)
    if name in FORWARDS:
        return path_of_forward(text, child.name)
    return child.text if name == "user_metadata" else text


def _flag(child: Element) -> bool:
    text = child.text.strip().lower()
    if text not in ("true", "false", "1", "0"):
        raise InvalidArgument(child.name, f"{child.text[:40]!r} must be true or false")
    return text in ("true", "1")


def _number(child: Element) -> int:
    text = child.text.strip()
    if not _WHOLE.fullmatch(text):
        raise InvalidArgument(child.name, f"{text[:40]!r} must be a whole number")
    return int(text)


def path_of_forward(text: str, name: str) -> str | None:
    """The path of an entity in its URI, or given as a path. None: there is none."""
    if "://" not in text:
        return text.strip("/") or None
    try:
        path = unquote(urlsplit(text).path, errors="strict").strip("/")
    except ValueError:
        path = ""
    if not path:
        raise InvalidArgument(name, f"{text[:80]!r} must be the URI of a queue or topic, such as sb://host/queue, or its path")
    return path


def _policy(child: Element) -> GivenPolicy:
    if child.name != "AuthorizationRule":
        child.refuse(f"{child.name[:80]} must be AuthorizationRule")
    if type_of(child) not in ("", _RULE_TYPE):
        child.refuse(f"AuthorizationRule has the i:type {type_of(child)[:40]!r}; only {_RULE_TYPE} is supported")
    parts = children_of(child, _OF_A_POLICY)
    name, rights = parts.get("KeyName"), parts.get("Rights")
    if name is None or rights is None:
        child.refuse("AuthorizationRule needs an element KeyName and an element Rights")
    listed = [right for right in rights.children if (right.namespace, right.name) == (SERVICE_BUS, "AccessRights")]
    given = {right.text.strip().capitalize() for right in listed}
    if unknown := given - _RIGHTS.keys():
        rights.refuse(f"{min(unknown)[:40]!r} is no right; they are {', '.join(_RIGHTS)}")
    flags = {flag: right in given for right, flag in _RIGHTS.items()}
    primary, secondary = (parts[tag].text.strip() or None if tag in parts else None for tag in ("PrimaryKey", "SecondaryKey"))
    return GivenPolicy(name.text.strip(), **flags, primary_key=primary, secondary_key=secondary)


def _rule(found: Element) -> RuleElement:
    parts = children_of(found, ("Filter", "Action", "Name"))
    rule_filter, action, name = parts.get("Filter"), parts.get("Action"), parts.get("Name")
    return RuleElement(
        None if name is None else name.text,
        TrueFilter() if rule_filter is None else read_filter(rule_filter),
        None if action is None else read_action(action),
    )


# Write


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry without its content. url: of what it describes; clients take names from its path. title: its name."""

    url: str
    title: str
    author: str
    published: datetime
    updated: datetime


def entry(of: Entry, content: str) -> str:
    parts = [
        element("id", of.url),
        element("title", of.title, type="text"),
        element("published", instant(of.published)),
        element("updated", instant(of.updated)),
        element("author", [element("name", of.author)]),
        element("link", None, rel="self", href=of.url),
        element("content", [content], type="application/xml"),
    ]
    return element("entry", parts, xmlns=ATOM)


def feed(title: str, url: str, next_url: str | None, updated: datetime, entries: Iterable[str]) -> str:
    """next_url: of the next page; None: there is none. Clients look for exactly these one or two links."""
    parts = [
        element("id", url),
        element("title", title, type="text"),
        element("updated", instant(updated)),
        element("link", None, rel="self", href=url),
        *([element("link", None, rel="next", href=next_url)] if next_url else []),
        *entries,
    ]
    return element("feed", parts, xmlns=ATOM)


def description(name: str, parts: Iterable[str]) -> str:
    return element(name, parts, xmlns=SERVICE_BUS, **{"xmlns:i": INSTANCE})


def entity_content(kind: EntityKind, settings: Mapping[str, Any], computed: Mapping[str, str], host: str) -> str:
    """A description with all elements of the kind in their order. settings: by name. computed: the elements that are no settings.
    host: of the URIs of forwards."""
    kept = effective_kept(kind, settings[KEPT])
    own = {name: _written(name, settings[setting], setting, host) for name, setting in SERVICE_SETTINGS[kind].items()}
    elements = own | {name: element(name, _text(value)) for name, value in kept.items()} | dict(computed)
    return description(DESCRIPTION[kind], [elements[name] for name in ORDER[kind] if name in elements])


def counts(by_name: Mapping[str, int]) -> str:
    """JavaScript's client expects one declaration of a namespace, whose prefix its parts have."""
    parts = [element(f"d2p1:{name}", str(count)) for name, count in by_name.items()]
    return element("CountDetails", parts, **{"xmlns:d2p1": COUNTS})


def policies(of: Iterable[AccessPolicy]) -> str:
    return element(_RULES, map(_written_policy, of))


def rule_content(rule: Rule, created_at: datetime) -> str:
    """An Action is always written: JavaScript's client needs one."""
    parts = [write_filter(rule.filter), write_action(rule.action), element("CreatedAt", instant(created_at))]
    return description(RULE_DESCRIPTION, [*parts, element("Name", rule.name)])


def namespace_content(name: str, tier: Tier, created_at: datetime) -> str:
    sku = str(tier).capitalize()
    parts = [
        ("Alias", ""),
        ("CreatedTime", instant(created_at)),
        ("MessagingSKU", sku),
        *([("MessagingUnits", "1")] if tier is Tier.PREMIUM else []),
        ("ModifiedTime", instant(created_at)),
        ("Name", name),
        ("NamespaceType", "Messaging"),
    ]
    return description("NamespaceInfo", [element(tag, text) for tag, text in parts])


def _written(name: str, value: Any, setting: str, host: str) -> str:
    if setting in DURATIONS:
        return element(name, format_iso(value))
    if value is None:
        return ""
    return element(name, f"sb://{host}/{value}" if setting in FORWARDS else _text(value))


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _written_policy(policy: AccessPolicy) -> str:
    rights = [element("AccessRights", right) for right, flag in _RIGHTS.items() if getattr(policy, flag)]
    times = [("CreatedTime", policy.created_at), ("ModifiedTime", policy.updated_at)]
    parts = [
        element("ClaimType", "SharedAccessKey"),
        element("ClaimValue", "None"),
        element("Rights", rights),
        *(element(name, instant(at)) for name, at in times if at is not None),
        element("KeyName", policy.name),
        element("PrimaryKey", policy.primary_key),
        element("SecondaryKey", policy.secondary_key),
    ]
    return element("AuthorizationRule", parts, **{"i:type": _RULE_TYPE})
