"""The use cases of `broker_core.service_bus.entities` as requests of the administration API (tests/service_bus/made_by.py).

It writes and reads documents by itself, not with the code under test. What the service does not know cannot be asked for: a test
that does is skipped, with a sentence. Only ids, which no client sees, come from the core.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

from broker_core.common import errors
from broker_core.common.typed import Typed
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus
from broker_core.service_bus import entities as core
from broker_core.service_bus.administration.elements import SERVICE_BUS
from broker_core.service_bus.entities import Entity, StoredRule, shared_access
from broker_core.service_bus.rules.filters import (
    Action,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlFilter,
    TrueFilter,
    compile_action,
    compile_filter,
)
from broker_core.service_bus.rules.kept_properties import KEPT_OF, check_kept, effective_kept
from broker_core.service_bus.rules.values import QueueSettings, SubscriptionSettings, TopicSettings

from .client import NAMES, TYPE, Client, Reply, entry

Settings = QueueSettings | TopicSettings | SubscriptionSettings
PAGE = 2  # entities on a page: lists have several
OURS = ("expiry_mode", "expires_whole_sessions", "drops_locks_on_change", "peek_shows_default_expiry", "history_level", "hidden")
KEPT = "kept_properties"
PAIR = "KeyValueOfstringanyType"
MAY_BE_NEVER = ("default_message_time_to_live", "auto_delete_on_idle")
FORWARDS = ("forward_to", "forward_dead_lettered_messages_to")
CARRIAGE_RETURN = "&#xD;"  # a parser would read one as a line feed
NEVER = "P10675199DT2H48M5.4775807S"
TYPES = {EntityKind.QUEUE: QueueSettings, EntityKind.TOPIC: TopicSettings, EntityKind.SUBSCRIPTION: SubscriptionSettings}
SETTINGS = {kind: tuple(each.name for each in fields(of) if each.name not in OURS) for kind, of in TYPES.items()}
DESCRIPTIONS = {f"{str(kind).capitalize()}Description": kind for kind in TYPES}
FIELDS = {  # of a correlation filter
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "subject": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}
REFUSALS: Mapping[tuple[int, int], type[errors.BrokerError]] = {  # 400 has two classes, see `refusal`
    (401, 40105): errors.NotAuthorized,
    (403, 40300): errors.LimitReached,
    (404, 40400): errors.EntityNotFound,
    (409, 40900): errors.EntityExists,
    (403, 40301): errors.EntityProtected,
}
DETAIL = re.compile(
    r"SubCode=(?P<code>\d+)\. (?P<text>.*)\. (?:You can retry|Retrying the same request does not help)\. TrackingId:.*", re.DOTALL
)
ARGUMENT = re.compile(r"(?P<name>[\w$-]+): (?P<problem>.*)", re.DOTALL)
DURATION = re.compile(r"(-)?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")


class AdministrationEntities:
    """port: of a listener for Service Bus."""

    def __init__(self, port: int):
        self._port = port
        self._clients: dict[tuple[str, str], Client] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    # What no request asks for, and what is several of them.

    effective = staticmethod(core.effective)
    list_entities = staticmethod(core.list_entities)
    ensure_queue = staticmethod(core.ensure_queue)
    ensure_topic = staticmethod(core.ensure_topic)
    ensure_subscription = staticmethod(core.ensure_subscription)

    # Queues, topics and subscriptions

    def create_queue(self, address, settings=None, *, actor=None, **changes) -> Entity:
        return self._create(EntityKind.QUEUE, address, settings, changes, actor)

    def create_topic(self, address, settings=None, *, actor=None, **changes) -> Entity:
        return self._create(EntityKind.TOPIC, address, settings, changes, actor)

    def create_subscription(self, address, settings=None, *, rule=None, actor=None, **changes) -> Entity:
        return self._create(EntityKind.SUBSCRIPTION, address, settings, changes, actor, rule)

    def update_queue(self, address, *, actor=None, **changes) -> Entity:
        return self._update(EntityKind.QUEUE, address, changes, actor)

    def update_topic(self, address, *, actor=None, **changes) -> Entity:
        return self._update(EntityKind.TOPIC, address, changes, actor)

    def update_subscription(self, address, *, actor=None, **changes) -> Entity:
        return self._update(EntityKind.SUBSCRIPTION, address, changes, actor)

    def update_entity(self, address, *, actor=None, **changes) -> Entity:
        return self._update(None, address, changes, actor)

    def set_status(self, address, status, *, actor=None) -> Entity:
        return self._update(None, address, {"status": status}, actor)

    def delete_entity(self, address, *, actor=None) -> None:
        self._ask(address, actor, Client.delete)

    delete_queue = delete_topic = delete_subscription = delete_entity

    def get_queue(self, address, *, actor=None) -> Entity:
        return self._entity(address.namespace, self._get(EntityKind.QUEUE, address, actor).root)

    def get_topic(self, address, *, actor=None) -> Entity:
        return self._entity(address.namespace, self._get(EntityKind.TOPIC, address, actor).root)

    def get_subscription(self, address, *, actor=None) -> Entity:
        return self._entity(address.namespace, self._get(EntityKind.SUBSCRIPTION, address, actor).root)

    def get_entity(self, address, *, actor=None) -> Entity:
        return self._entity(address.namespace, self._get(None, address, actor).root)

    def list_queues(self, namespace=None, *, actor=None) -> list[Entity]:
        return self._list(namespace, "/$Resources/queues", actor) if namespace else core.list_queues(actor=actor)

    def list_topics(self, namespace=None, *, actor=None) -> list[Entity]:
        return self._list(namespace, "/$Resources/topics", actor) if namespace else core.list_topics(actor=actor)

    def list_subscriptions(self, topic, *, actor=None) -> list[Entity]:
        return self._list(topic.namespace, f"{path_of(topic)}/Subscriptions", actor)

    # Rules

    def create_rule(self, subscription, rule, *, actor=None) -> StoredRule:
        return stored_rule(self._ask_rule(subscription, rule.name, actor, Client.create, rule_entry(rule)).root)

    def update_rule(self, subscription, rule, *, actor=None) -> StoredRule:
        return stored_rule(self._ask_rule(subscription, rule.name, actor, Client.update, rule_entry(rule)).root)

    def delete_rule(self, subscription, name, *, actor=None) -> None:
        self._ask_rule(subscription, name, actor, Client.delete)

    def get_rule(self, subscription, name, *, actor=None) -> StoredRule:
        return stored_rule(self._ask_rule(subscription, name, actor, Client.get).root)

    def list_rules(self, subscription, *, actor=None) -> list[StoredRule]:
        return [stored_rule(found) for found in self._pages(subscription.namespace, f"{path_of(subscription)}/Rules", actor)]

    # Requests

    def _create(self, kind, address, settings, changes, actor, rule=None) -> Entity:
        given = {} if settings is None else {each.name: getattr(settings, each.name) for each in fields(settings)}
        wanted = {name: value for name, value in given.items() if value != getattr(TYPES[kind](), name)} | changes
        texts = elements(kind, wanted)
        parts = "".join(f"<{name}>{safe(text)}</{name}>" for name, text in texts.items() if text is not None)
        first = "" if rule is None else f"<DefaultRuleDescription>{rule_parts(rule)}</DefaultRuleDescription>"
        body = entry(f"{str(kind).capitalize()}Description", parts + first)
        return self._entity(address.namespace, self._ask(address, actor, Client.create, body).root)

    def _update(self, kind, address, changes, actor) -> Entity:
        """As clients do it: what was read is changed and written back."""
        read = self._get(kind, address, actor)
        root = read.root
        found = description_of(root)
        for name, text in elements(kind_of(found), changes).items():
            present = found.find(f"s:{name}", NAMES)
            if present is not None:
                found.remove(present)
            if text is not None:
                ElementTree.SubElement(found, f"{{{SERVICE_BUS}}}{name}").text = text
        body = ElementTree.tostring(root).replace(b"\r", CARRIAGE_RETURN.encode())
        return self._entity(address.namespace, self._ask(address, actor, Client.update, body).root)

    def _get(self, kind: EntityKind | None, address: EntityAddress, actor: Actor | None) -> Reply:
        """Clients take an entity of another kind for none."""
        read = self._ask(address, actor, Client.get)
        if kind not in (None, kind_of(read.description)):
            raise errors.EntityNotFound(str(address))
        return read

    def _list(self, namespace: str, path: str, actor: Actor | None) -> list[Entity]:
        return [self._entity(namespace, found) for found in self._pages(namespace, path, actor)]

    def _pages(self, namespace: str, path: str, actor: Actor | None) -> Iterator[ElementTree.Element]:
        """The entries of a feed, page by page."""
        client = self._client(namespace, actor)
        following = f"{path}?$skip=0&$top={PAGE}"
        while following:
            page = accepted(client.get(following))
            yield from page.root.findall("a:entry", NAMES)
            following = page.links.get("next", "").removeprefix(client.base)

    def _ask(self, address: EntityAddress, actor: Actor | None, request: Callable[..., Reply], *given: bytes) -> Reply:
        return accepted(request(self._client(address.namespace, actor), path_of(address), *given))

    def _ask_rule(self, subscription, name: str, actor: Actor | None, request: Callable[..., Reply], *given: bytes) -> Reply:
        path = f"{path_of(subscription)}/Rules/{quote(name, safe='')}"
        return accepted(request(self._client(subscription.namespace, actor), path, *given))

    def _client(self, namespace: str, actor: Actor | None) -> Client:
        """Of the namespace as it is now: one of the same name has had another key."""
        if actor is not None:
            pytest.skip("The administration API knows policies with keys, not users and their roles.")
        policy = shared_access.get_policy(namespace, shared_access.ROOT_POLICY)
        place = (namespace, policy.primary_key)
        if place not in self._clients:
            self._clients[place] = Client(self._port, policy.name, policy.primary_key)
        return self._clients[place]

    def _entity(self, namespace: str, found: ElementTree.Element) -> Entity:
        description = description_of(found)
        path = urlsplit(found.findtext("a:id", namespaces=NAMES)).path.removeprefix("/")
        stored = core.get_entity(EntityAddress(namespace, path))
        address = EntityAddress(stored.address.namespace, path)
        times = {name: instant(value_of(description, camel(name))) for name in ("created_at", "updated_at")}
        return replace(stored, address=address, settings=settings_of(description), **times)


def accepted(reply: Reply) -> Reply:
    """Raises the error of a refusal."""
    if reply.status >= 400:
        raise refusal(reply)
    return reply


def refusal(reply: Reply) -> errors.BrokerError:
    """The error that an answer stands for. What is wrong with an argument begins with its name; a 400 without one says that the
    operation is not allowed."""
    found = DETAIL.fullmatch(reply.detail)
    code, text = int(found["code"]), found["text"]
    if (reply.status, code) == (400, 40000):
        argument = ARGUMENT.fullmatch(text)
        if argument is None:
            return errors.NotAllowed(f"{text}.")
        names = {camel(name): name for names in SETTINGS.values() for name in names}
        return errors.InvalidArgument(names.get(argument["name"], argument["name"]), argument["problem"])
    error = REFUSALS[reply.status, code]
    problem = error.__new__(error)
    errors.BrokerError.__init__(problem, f"{text}.")
    return problem


def path_of(address: EntityAddress) -> str:
    return quote(f"/{str(address).partition('/')[2]}", safe="/$")


# Documents


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def elements(kind: EntityKind, values: Mapping[str, Any]) -> dict[str, str | None]:
    """The texts of settings by their elements. None: there is no such element."""
    texts: dict[str, str | None] = {}
    for name, value in values.items():
        if name not in SETTINGS[kind]:
            pytest.skip(f"The service has no setting {name} of a {kind}.")
        if name == KEPT:
            texts |= {element: text_of(kept) for element, kept in effective_kept(kind, value).items()}
        else:
            texts[camel(name)] = NEVER if value is None and name in MAY_BE_NEVER else text_of(value)
    return texts


def settings_of(description: ElementTree.Element) -> Settings:
    """With the defaults of what the service does not know."""
    kind = kind_of(description)
    start = TYPES[kind]()
    names = [name for name in SETTINGS[kind] if name != KEPT]
    values = {name: read(name, getattr(start, name), value_of(description, camel(name))) for name in names}
    kept = {name: value_of(description, name) for name in KEPT_OF[kind]}
    typed = {name: text == "true" if text in ("true", "false") else text for name, text in kept.items()}
    return replace(start, **values, kept_properties=check_kept(kind, typed))


def read(name: str, default: Any, text: str | None) -> Any:
    """A setting. default: of its type."""
    if isinstance(default, bool):
        return {"true": True, "false": False}[text]
    if isinstance(default, timedelta) or name in MAY_BE_NEVER:
        return None if text == NEVER else duration(text)
    if isinstance(default, int):
        return int(text)
    if name == "status":
        return EntityStatus(text)
    return urlsplit(text).path.removeprefix("/") if name in FORWARDS and text else text


def rule_entry(rule: Rule) -> bytes:
    return entry("RuleDescription", rule_parts(rule))


def rule_parts(rule: Rule) -> str:
    action = "" if rule.action is None else f'<Action i:type="SqlRuleAction">{expression(rule.action)}</Action>'
    return filter_element(rule.filter) + action + f"<Name>{safe(rule.name)}</Name>"


def filter_element(rule_filter: Filter) -> str:
    match rule_filter:
        case SqlFilter():
            inner = expression(rule_filter)
        case CorrelationFilter():
            texts = [f"<{FIELDS[name]}>{safe(text)}</{FIELDS[name]}>" for name, text in rule_filter.texts.items()]
            inner = "".join(texts) + pairs("Properties", rule_filter.properties)
        case _:
            inner = ""
    return f'<Filter i:type="{type(rule_filter).__name__}">{inner}</Filter>'


def expression(of: SqlFilter | Action) -> str:
    return f"<SqlExpression>{safe(of.text)}</SqlExpression>{pairs('Parameters', of.parameters)}"


def pairs(name: str, values: Mapping[str, Any]) -> str:
    listed = (
        f'<{PAIR}><Key>{safe(key)}</Key><Value i:type="x:{type_of(value)}">{safe(text_of(value))}</Value></{PAIR}>'
        for key, value in values.items()
    )
    return f"<{name}>{''.join(listed)}</{name}>"


def stored_rule(found: ElementTree.Element) -> StoredRule:
    description = description_of(found)
    acts, filters = description.find("s:Action", NAMES), description.find("s:Filter", NAMES)
    action = compile_action(value_of(acts, "SqlExpression"), values_of(acts)) if acts.get(TYPE) == "SqlRuleAction" else None
    match filters.get(TYPE):
        case "SqlFilter":
            rule_filter: Filter = compile_filter(value_of(filters, "SqlExpression"), values_of(filters))
        case "CorrelationFilter":
            texts = {name: value_of(filters, element) for name, element in FIELDS.items()}
            rule_filter = CorrelationFilter(**texts, properties=values_of(filters))
        case kind:
            rule_filter = {"TrueFilter": TrueFilter, "FalseFilter": FalseFilter}[kind]()
    url = found.findtext("a:id", namespaces=NAMES)
    path = urlsplit(url).path.removeprefix("/").rpartition("/Rules/")[0]
    subscription = EntityAddress(found.findtext("a:author/a:name", namespaces=NAMES), path)
    rule = Rule(value_of(description, "Name"), rule_filter, action)
    return StoredRule(rule, instant(value_of(description, "CreatedAt")), subscription)


def values_of(parent: ElementTree.Element) -> dict[str, Any]:
    """The typed values in a filter or an action."""
    found = {}
    for pair in parent.iter(f"{{{SERVICE_BUS}}}{PAIR}"):
        value = pair.find("s:Value", NAMES)
        found[value_of(pair, "Key")] = VALUES[value.get(TYPE).rpartition(":")[2]](value.text or "")
    return found


def safe(text: str) -> str:
    return escape(text, {"\r": CARRIAGE_RETURN})


def type_of(value: Any) -> str:
    if isinstance(value, Typed):
        return value.type
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -(2**31) <= value < 2**31 else "long"
    names = {bool: "boolean", float: "double", datetime: "dateTime", timedelta: "duration", str: "string"}
    return names[type(value)]


def text_of(value: Any) -> str | None:
    """None: there is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        days, rest = divmod(abs(value), timedelta(days=1))
        return f"{'-' if value < timedelta(0) else ''}P{days}DT{rest.total_seconds():f}S"
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)


def duration(text: str) -> timedelta:
    sign, *parts = DURATION.fullmatch(text).groups()
    days, hours, minutes, seconds = (float(part or 0) for part in parts)
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return -length if sign else length


def instant(text: str) -> datetime:
    """With seven decimal places, the last of which is 0."""
    return datetime.fromisoformat(text.removesuffix("0Z")).replace(tzinfo=UTC)


VALUES: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "long": lambda text: Typed("long", int(text)),
    "double": float,
    "boolean": lambda text: text == "true",
    "string": str,
    "dateTime": instant,
    "duration": duration,
}


def description_of(found: ElementTree.Element) -> ElementTree.Element:
    """The description in an entry."""
    (description,) = found.find("a:content", NAMES)
    return description


def kind_of(description: ElementTree.Element) -> EntityKind:
    return DESCRIPTIONS[description.tag.rpartition("}")[2]]


def value_of(parent: ElementTree.Element, name: str) -> str | None:
    return parent.findtext(f"s:{name}", namespaces=NAMES)
