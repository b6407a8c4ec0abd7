"""The operations of the administration API (SB, section 7.1), in one table. Nothing is answered before it is committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from broker_core import namespaces
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EntityKind, Right
from broker_core.service_bus import entities, http_requests
from broker_core.service_bus.entities import Description, StoredRule
from broker_core.service_bus.rules.entity_settings import SERVICE_NAMES, values_of
from broker_core.service_bus.rules.filters import DEFAULT_RULE_NAME, Rule
from broker_core.service_bus.rules.sas import TokenRefused
from broker_core.wire import xml
from broker_core.wire.http.answer import Answer
from broker_core.wire.xml import element

from . import documents
from .documents import EntityElement, Entry
from .elements import instant
from .paths import RULES, Level
from .request import Request

Operation = Callable[[Request, Actor], Awaitable[Answer]]
_ENTRY = [("content-type", "application/atom+xml;type=entry;charset=utf-8")]
_FEED = [("content-type", "application/atom+xml;type=feed;charset=utf-8")]
_TOKENS = {  # the headers with a token for the destination of each forward
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_lettered_messages_to": "ServiceBusDlqSupplementaryAuthorization",
}
_KINDS = {
    Level.ENTITY: (EntityKind.QUEUE, EntityKind.TOPIC),
    Level.SUBSCRIPTION: (EntityKind.SUBSCRIPTION,),
    Level.QUEUES: (EntityKind.QUEUE,),
    Level.TOPICS: (EntityKind.TOPIC,),
    Level.SUBSCRIPTIONS: (EntityKind.SUBSCRIPTION,),
}


# Queues, topics and subscriptions


async def put_entity(request: Request, actor: Actor) -> Answer:
    """201 for a new entity; 200 for one that is changed as a whole, with `If-Match: *`."""
    updates, address = request.updates, _address(request)
    given = documents.read_entity(await request.body(), _KINDS[request.target.level])
    await _check_forwards(request, given, actor)
    if updates:
        changed = await entities.replace_entity.aio(address, given.kind, given.settings, policies=given.policies, actor=actor)
        return _entry(200, _entity(request, changed))
    if not request.target.can_be_created:
        raise InvalidArgument("path", "must not be /health or end in /messages/head: requests to it have another meaning")
    rule = None if given.rule is None else Rule(given.rule.name or DEFAULT_RULE_NAME, given.rule.filter, given.rule.action)
    created = await entities.create_entity.aio(
        address, given.kind, given.settings, policies=given.policies or (), rule=rule, actor=actor
    )
    return _entry(201, _entity(request, created))


async def get_entity(request: Request, actor: Actor) -> Answer:
    return _entry(200, _entity(request, await entities.describe_entity.aio(_address(request), actor=actor)))


async def delete_entity(request: Request, actor: Actor) -> Answer:
    await entities.delete_entity.aio(_address(request), actor=actor)
    return Answer(200)


async def list_entities(request: Request, actor: Actor) -> Answer:
    """A page of the queues or topics, or of the subscriptions of a topic, by name."""
    level, namespace = request.target.level, request.verified.namespace
    topic = _address(request) if level is Level.SUBSCRIPTIONS else None
    first, most = request.first, request.max_count
    found = await entities.describe_entities.aio(namespace, _KINDS[level][0], topic, first=first, max_count=most + 1, actor=actor)
    return _feed(request, [_entity(request, each) for each in found])


async def _check_forwards(request: Request, given: EntityElement, actor: Actor) -> None:
    """Whose key allows it may forward to an entity: the request's own for the whole namespace, or that of the token in the header
    for the destination, if it was sent. A forward that is as it was needs no right."""
    new = {setting: path for setting in _TOKENS if (path := given.settings.get(setting)) is not None}
    stored = await _stored_forwards(request, actor) if new and request.updates else {}
    for setting, path in new.items():
        if path.lower() != stored.get(setting):
            await _check_forward(request, setting, path)


async def _stored_forwards(request: Request, actor: Actor) -> dict[str, str]:
    """The forwards of the entity that is changed, in lower case."""
    try:
        settings = (await entities.get_entity.aio(_address(request), actor=actor)).settings
    except EntityNotFound:  # the update then answers 404
        return {}
    return {setting: path.lower() for setting in _TOKENS if (path := getattr(settings, setting, None)) is not None}


async def _check_forward(request: Request, setting: str, path: str) -> None:
    verified, header = request.verified, _TOKENS[setting]
    destination = EntityAddress(verified.namespace, path)
    if request.header(header) is None:
        if verified.policy.path is not None and not verified.policy.applies_to(destination):
            raise NotAuthorized(f"key:{verified.policy.name}", "SEND", str(destination))
        return
    try:
        other = await http_requests.authenticate(
            request, path=f"/{path}", entity=path, namespace=verified.namespace, header=header
        )
    except TokenRefused as problem:
        raise TokenRefused(problem.sub_code, f"{header}, for {SERVICE_NAMES[setting]}: {problem}") from problem
    other.actor("http", request.client_ip).require(Right.SEND, destination)


# Rules


async def put_rule(request: Request, actor: Actor) -> Answer:
    """201 for a new rule; 200 for one that is replaced, with `If-Match: *`."""
    updates = request.updates
    given = documents.read_rule(await request.body())
    rule = Rule(request.target.rule, given.filter, given.action)
    if updates:
        return _entry(200, _rule(request, await entities.update_rule.aio(_address(request), rule, actor=actor)))
    return _entry(201, _rule(request, await entities.create_rule.aio(_address(request), rule, actor=actor)))


async def get_rule(request: Request, actor: Actor) -> Answer:
    return _entry(200, _rule(request, await entities.get_rule.aio(_address(request), request.target.rule, actor=actor)))


async def delete_rule(request: Request, actor: Actor) -> Answer:
    await entities.delete_rule.aio(_address(request), request.target.rule, actor=actor)
    return Answer(200)


async def list_rules(request: Request, actor: Actor) -> Answer:
    """A page of the rules of a subscription by name, `$Default` first."""
    first, most = request.first, request.max_count
    found = await entities.list_rules.aio(_address(request), first=first, max_count=most + 1, actor=actor)
    return _feed(request, [_rule(request, each) for each in found])


# The namespace


async def get_namespace(request: Request, actor: Actor) -> Answer:
    found = await namespaces.get_namespace.aio(request.verified.namespace, actor=actor)
    entry = Entry(request.url("/$namespaceinfo"), found.name, found.name, found.created_at, found.created_at)
    return _entry(200, documents.entry(entry, documents.namespace_content(found.name, found.tier, found.created_at)))


def _read(operation: Operation) -> dict[str, Operation]:
    return {"GET": operation, "HEAD": operation}


OPERATIONS: Mapping[Level, Mapping[str, Operation]] = {
    Level.NAMESPACE: _read(get_namespace),
    **dict.fromkeys((Level.QUEUES, Level.TOPICS, Level.SUBSCRIPTIONS), _read(list_entities)),
    **dict.fromkeys((Level.ENTITY, Level.SUBSCRIPTION), _read(get_entity) | {"PUT": put_entity, "DELETE": delete_entity}),
    Level.RULES: _read(list_rules),
    Level.RULE: _read(get_rule) | {"PUT": put_rule, "DELETE": delete_rule},
}


# Answers


def _address(request: Request) -> EntityAddress:
    return request.target.address(request.verified.namespace)


def _entry(status: int, entry: str) -> Answer:
    return Answer(status, list(_ENTRY), xml.document(entry))


def _feed(request: Request, entries: list[str]) -> Answer:
    """entries: of the page, and one more if there is a next page."""
    most = request.max_count
    has_more = len(entries) > most
    own = {name: text for name in ("api-version", "enrich") if (text := request.query(name)) is not None}
    following = urlencode({"$skip": request.first + most, "$top": most} | own, safe="$")
    url = request.url(request.raw_path)
    next_url = f"{url}?{following}" if has_more else None
    feed = documents.feed(request.target.level.capitalize(), url, next_url, datetime.now(UTC), entries[:most])
    return Answer(200, list(_FEED), xml.document(feed))


def _entity(request: Request, found: Description) -> str:
    entity = found.entity
    address, kind = entity.address, entity.kind
    content = documents.entity_content(kind, values_of(entity.settings), _computed(request, found), request.host)
    title = address.name if kind is EntityKind.SUBSCRIPTION else address.path
    entry = Entry(request.url(f"/{address.path}"), title, address.namespace, entity.created_at, entity.updated_at)
    return documents.entry(entry, content)


def _computed(request: Request, found: Description) -> dict[str, str]:
    """The elements of a description that are no settings."""
    counts = {
        "ActiveMessageCount": found.counts.active,
        "DeadLetterMessageCount": found.counts.dead_letter,
        "ScheduledMessageCount": found.counts.scheduled,
        "TransferMessageCount": found.counts.transfer,
        "TransferDeadLetterMessageCount": found.counts.transfer_dead_letter,
    }
    numbers = {
        "SizeInBytes": found.size_bytes,
        "MessageCount": found.counts.total,
        "SubscriptionCount": found.subscriptions,
        **({"SqlFilterCount": found.sql_filters} if request.wants_filter_counts else {}),
        **({"CorrelationFilterCount": found.correlation_filters} if request.wants_filter_counts else {}),
    }
    accessed = documents.NEVER if found.accessed_at is None else instant(found.accessed_at)
    times = {"CreatedAt": instant(found.entity.created_at), "UpdatedAt": instant(found.entity.updated_at), "AccessedAt": accessed}
    return {
        **{name: element(name, str(number)) for name, number in numbers.items()},
        **{name: element(name, text) for name, text in times.items()},
        "CountDetails": documents.counts(counts),
        "AuthorizationRules": documents.policies(found.policies),
    }


def _rule(request: Request, stored: StoredRule) -> str:
    rule, subscription = stored.rule, stored.subscription
    url = request.url(f"/{subscription.path}/{RULES}/{rule.name}")  # not encoded: JavaScript's client takes the name from it
    entry = Entry(url, rule.name, subscription.namespace, stored.created_at, stored.created_at)
    return documents.entry(entry, documents.rule_content(rule, stored.created_at))
