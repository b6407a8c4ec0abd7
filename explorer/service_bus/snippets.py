"""Service Bus operations as code (explorer/snippets/), in Python and for the runtime REST API (docs/http.md)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from broker_core.common.types import EntityAddress, EntityKind
from broker_core.reads import EntityRow, MessageDetail
from explorer.snippets.code import (
    ADDRESS,
    TIME,
    Args,
    Code,
    Operation,
    Program,
    address,
    advance,
    arguments,
    body_literal,
    curl_data,
    editing,
    literal,
    plain_properties,
    url,
)

_BUS = "from broker_core import service_bus"
_ENTITIES = "from broker_core.service_bus import entities"
_MESSAGE = "from broker_core.service_bus import Message"
_READS = "from broker_core import reads"
_TEXTS = ("message_id", "session_id", "subject", "correlation_id", "content_type", "to", "reply_to", "partition_key")
_HTTP_NAMES = {
    "message_id": "MessageId", "session_id": "SessionId", "subject": "Label", "correlation_id": "CorrelationId", "to": "To",
    "reply_to": "ReplyTo", "partition_key": "PartitionKey",
}  # fmt: skip
_AUTHORIZED = '-H "Authorization: $TOKEN"'
_LOCKED = """LOCATION=$(curl -s -o /dev/null -D - -X POST "$Q/messages/head?timeout=5" -H "Authorization: $TOKEN" \\
  | tr -d '\\r' | sed -n 's/^[Ll]ocation: //p')"""


_SIGNED = """Q={url}
KEY_NAME={policy}
KEY={key}

# a token for this address, valid for an hour
RESOURCE={resource}
EXPIRES=$(($(date +%s) + 3600))
SIGNATURE=$(printf '%s\\n%s' "$RESOURCE" "$EXPIRES" | openssl dgst -sha256 -hmac "$KEY" -binary | base64 \\
  | sed 's/+/%2B/g; s/\\//%2F/g; s/=/%3D/g')
TOKEN="SharedAccessSignature sr=$RESOURCE&sig=$SIGNATURE&se=$EXPIRES&skn=$KEY_NAME"
"""
_SENT = """
# send a message
curl -i "$Q/messages" -H "Authorization: $TOKEN" -H 'Content-Type: text/plain'{session} -d hello
"""
_TAKEN = """
# receive the next one, and delete it
curl -i -X DELETE "$Q/messages/head?timeout=5" -H "Authorization: $TOKEN"
"""
_ADMINISTRATION = """from azure.servicebus.management import ServiceBusAdministrationClient  # pip install azure-servicebus

with ServiceBusAdministrationClient.from_connection_string({string}) as client:
{calls}
"""
_ADMINISTRATION_BY_HTTP = """from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient  # pip install azure-servicebus


class PlainHttp(RequestsTransport):  # the client always uses HTTPS; this port is without TLS
    def send(self, request, **options):
        request.url = request.url.replace("https:", "http:", 1)
        return super().send(request, **options)


STRING = {string}
with ServiceBusAdministrationClient.from_connection_string(STRING, transport=PlainHttp()) as client:
{calls}
"""
_CALLS = {
    EntityKind.QUEUE: """    queue = client.get_queue({path})
    print(queue.max_delivery_count, client.get_queue_runtime_properties(queue.name).active_message_count)""",
    EntityKind.TOPIC: """    topic = client.get_topic({path})
    print([subscription.name for subscription in client.list_subscriptions(topic.name)])""",
    EntityKind.SUBSCRIPTION: """    for rule in client.list_rules({topic}, {name}):
        print(rule.name, rule.filter, rule.action)""",
}
_LIST_QUEUES = """    for queue in client.list_queues():
        print(queue.name)"""
_IN_SESSION = """ -H 'BrokerProperties: {"SessionId": "session-1"}'"""


def for_clients(entity: EntityRow, strings: Mapping[str, str], base: str) -> list[Program]:
    """What the REST API and the administration client do with an entity. strings: connection strings, by name. Sessions cannot be
    received from over HTTP."""
    fields = dict(part.split("=", 1) for part in strings["site"].split(";"))
    at = url(entity.address, base)
    policy, key = quote(fields["SharedAccessKeyName"], safe=""), fields["SharedAccessKey"]
    text = _SIGNED.format(
        url=shlex.quote(at), key=shlex.quote(key), resource=shlex.quote(quote(at, safe="")), policy=shlex.quote(policy)
    )
    if entity.kind != EntityKind.SUBSCRIPTION:
        text += _SENT.format(session=_IN_SESSION if entity.requires_session else "")
    if entity.holds_messages and not entity.requires_session:
        text += _TAKEN
    return [Program("curl", "curl (REST API)", text), *_of_administration(strings, _calls(entity))]


def for_namespace(strings: Mapping[str, str]) -> list[Program]:
    """What the administration client does with a namespace. strings: connection strings, by name."""
    return _of_administration(strings, _LIST_QUEUES)


def _calls(entity: EntityRow) -> str:
    at, topic = entity.address, entity.address.topic
    return _CALLS[entity.kind].format(path=literal(at.path), topic=literal(topic.path if topic else ""), name=literal(at.name))


def _of_administration(strings: Mapping[str, str], calls: str) -> list[Program]:
    """A program of the administration client; by TLS if the port without TLS is off. Empty: neither is served."""
    string = strings.get("admin") or strings.get("admin-tls")
    if string is None:
        return []
    text = _ADMINISTRATION_BY_HTTP if "admin" in strings else _ADMINISTRATION
    return [
        Program("azure-servicebus", "azure-servicebus (Python), administration", text.format(string=literal(string), calls=calls))
    ]


def _messages(args: Args) -> list[dict[str, Any]]:
    """The messages that a `send` sends, as arguments of Message."""
    body = args.get("body")
    ids = args.get("ids") or [args.get("id", args.get("message_id"))] * args.get("count", 1)
    given = {"session_id": args.get("session"), "time_to_live": args.get("ttl"), "properties": args.get("properties") or None}
    texts = {name: args.get(name) for name in _TEXTS if name not in ("message_id", "session_id")}
    return [
        {"body": _as_bytes(body if body is not None else message_id or "hello"), "message_id": message_id, **texts, **given}
        for message_id in ids
    ]


def _as_bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode()


def _send(at: EntityAddress, args: Args) -> Code:
    """args: as of the action `send`, and the broker properties of a message."""
    messages, wait = _messages(args), args.get("in")
    due = "scheduled_enqueue_at=due" if wait else ""
    texts = []
    for message in messages:
        rest = {name: value for name, value in message.items() if name != "body"}
        named = arguments(rest) + (f", {due}" if due else "")
        texts.append(f"Message({body_literal(message['body'])}{named})")
    listed = f"[{texts[0]}] * {len(texts)}" if len(set(texts)) == 1 and len(texts) > 1 else "[" + ", ".join(texts) + "]"
    begin = f"due = namespaces.get_clock({literal(at.namespace)}).now + {literal(wait)}\n" if wait else ""
    uses_time = wait or any(message["time_to_live"] for message in messages)
    imports = [
        _BUS,
        _MESSAGE,
        ADDRESS,
        *(["from broker_core import namespaces"] if wait else []),
        *([TIME] if uses_time else []),
    ]
    lines = f"{begin}service_bus.send({address(at)}, {listed})"
    return Code(imports, lines, "" if wait else "\n".join(map(_post, messages)), at)


def _post(message: Mapping[str, Any]) -> str:
    before, data = curl_data(message["body"])
    broker: dict[str, Any] = {_HTTP_NAMES[name]: message[name] for name in _HTTP_NAMES if message.get(name) is not None}
    if message["time_to_live"]:
        broker["TimeToLive"] = message["time_to_live"].total_seconds()
    headers = [f"Content-Type: {message.get('content_type') or 'text/plain'}"]
    headers += [f"BrokerProperties: {json.dumps(broker)}"] if broker else []
    headers += [f"Vitrine-Properties: {json.dumps(dict(message['properties']))}"] if message["properties"] else []
    shown = " \\\n  ".join(f"-H {shlex.quote(header)}" for header in headers)
    return f'{before}curl -i "$Q/messages" {_AUTHORIZED} \\\n  {shown} \\\n  {data}'


def _received(at: EntityAddress, args: Args, after: str, request: str, imports: tuple[str, ...] = ()) -> Code:
    count = args.get("count", 1)
    begin = f"messages = service_bus.receive({address(at)}{f', {count}' if count != 1 else ''})\n"
    return Code([_BUS, ADDRESS, *imports], begin + after, request if count == 1 else "", at)


_PRINT = "for message in messages:\n    print(message.sequence_number, message.message_id, message.body)"


def _receive(at: EntityAddress, args: Args) -> Code:
    """args: as of the action `receive`."""
    then, session = args.get("then", "hold"), args.get("session")
    if session is not None:
        return _receive_in_session(at, args, session)
    if then == "delete":
        count = args.get("count", 1)
        lines = f"messages = service_bus.receive_and_delete({address(at)}{f', {count}' if count != 1 else ''})\n{_PRINT}"
        return Code([_BUS, ADDRESS], lines, f'curl -i -X DELETE "$Q/messages/head?timeout=5" {_AUTHORIZED}', at)
    if then in ("complete", "abandon"):
        return _settle(then, at, {**args, "number": None})
    return _received(at, args, _PRINT, f'curl -i -X POST "$Q/messages/head?timeout=5" {_AUTHORIZED}')


def _receive_in_session(at: EntityAddress, args: Args, session: str) -> Code:
    then = args.get("then", "hold")
    settle = "" if then == "hold" else f"\nservice_bus.{then}({address(at)}, [message.lock_token for message in messages])"
    lines = (
        f"session = service_bus.accept_session({address(at)}, {literal(session)})\n"
        f"messages = service_bus.receive_from_session(session, {args.get('count', 1)})\n{_PRINT}{settle}"
    )
    return Code([_BUS, ADDRESS], lines)


def _settle(how: str, at: EntityAddress, args: Args, *texts: str) -> Code:
    """Settle a message: the one of a number by its present lock, or without a number the next one."""
    extra = arguments({name: args.get(name) for name in texts})
    request = {"complete": "DELETE", "abandon": "PUT", "renew": "POST"}.get(how)
    requests = f'{_LOCKED}\ncurl -i -X {request} "$LOCATION" {_AUTHORIZED}' if request else ""
    number = args.get("number")
    if number is None:
        tokens = "[message.lock_token for message in messages]"
        return _received(at, args, f"service_bus.{how}({address(at)}, {tokens}{extra})", requests)
    lines = (
        f"message = reads.message({address(at)}, {number})  # it is locked\n"
        f"service_bus.{how}({address(at)}, [message.row.lock_token]{extra})"
    )
    return Code([_BUS, ADDRESS, _READS], lines, requests, at)


def _settling(how: str, *texts: str) -> Callable[[EntityAddress, Args], Code]:
    return lambda at, args: _settle(how, _listed(at, args), args, *texts)


def _listed(at: EntityAddress, args: Args) -> EntityAddress:
    return at.dead_letter if args.get("dead_letters") else at


def _call(text: str) -> Callable[[EntityAddress, Args], Code]:
    """A call in Python. {at}: the address of the list; {main}: of the entity; {number}: of a message, or 1."""

    def write(at: EntityAddress, args: Args) -> Code:
        number = args.get("number") or 1
        return Code([_BUS, ADDRESS], text.format(at=address(_listed(at, args)), main=address(at.main), number=number))

    return write


def _create(kind: str) -> Callable[[EntityAddress, Args], Code]:
    def write(at: EntityAddress, args: Args) -> Code:
        settings = {name: value for name, value in args.items() if name not in ("queue", "topic", "name", *_RULE)}
        lines = f"entities.create_{kind}({address(at)}{arguments(settings)})"
        times = [TIME] if any(isinstance(value, timedelta) for value in settings.values()) else []
        return Code([ADDRESS, _ENTITIES, *times], lines)

    return write


_RULE = ("filter", "subject", "correlation", "matching", "change", "subscription")


def _create_subscription(at: EntityAddress, args: Args) -> Code:
    place = at.subscription(args.get("name", "mine"))
    has_rule = any(name in args for name in _RULE)
    code = _create("subscription")(place, {**args, **({"rule": None} if has_rule else {})})
    if not has_rule:
        return code
    rule_imports, rule = _rule({**args, "name": args.get("name", "mine")})
    lines = code.lines[:-1] + f", rule={rule})"
    return Code([*code.imports, *rule_imports], lines)


def _create_rule(at: EntityAddress, args: Args) -> Code:
    place = at.subscription(args["subscription"]) if "subscription" in args else at
    imports, rule = _rule(args)
    return Code([ADDRESS, _ENTITIES, *imports], f"entities.create_rule({address(place)}, {rule})")


def _rule(args: Args) -> tuple[list[str], str]:
    """The imports and the expression of a rule."""
    if "correlation" in args or "matching" in args or "subject" in args:
        texts = args.get("correlation") or ({"subject": args["subject"]} if "subject" in args else {})
        condition = f"CorrelationFilter({arguments({**texts, 'properties': args.get('matching')})[2:]})"
    else:
        condition = f"compile_filter({literal(args.get('filter', '1=1'))})"
    change = f", compile_action({literal(args['change'])})" if "change" in args else ""
    names = [
        name for name in ("CorrelationFilter", "Rule", "compile_action", "compile_filter") if name in condition + change + "Rule"
    ]
    return [
        f"from broker_core.service_bus.rules.filters import {', '.join(names)}"
    ], f"Rule({literal(args['name'])}, {condition}{change})"


def _change_queue(at: EntityAddress, args: Args) -> Code:
    settings = {name: value for name, value in args.items() if name != "queue"}
    return Code([ADDRESS, _ENTITIES, TIME], f"entities.update_queue({address(at)}{arguments(settings)})")


def _accept_session(at: EntityAddress, args: Args) -> Code:
    session = f", {literal(args['session'])}" if "session" in args else ""
    return Code([_BUS, ADDRESS], f"session = service_bus.accept_session({address(at)}{session})\nprint(session.session_id)")


def _close_session(at: EntityAddress, args: Args) -> Code:
    accept = f"session = service_bus.accept_session({address(at)}, {literal(args['session'])})"
    return Code([_BUS, ADDRESS], f"{accept}\nservice_bus.close_session(session)")


_PEEK = "for message in service_bus.peek({at}, max_count=10):\n    print(message.sequence_number, message.state.name)"
OPERATIONS = {
    "send": Operation("Send", _send),
    "receive": Operation("Receive", _receive),
    "complete": Operation("Complete", _settling("complete")),
    "abandon": Operation("Abandon", _settling("abandon")),
    "defer": Operation("Defer", _settling("defer")),
    "dead_letter": Operation("Dead-letter", _settling("dead_letter", "reason", "description")),
    "renew": Operation("Renew lock", _settling("renew")),
    "receive_deferred": Operation(
        "Receive deferred", _call("(message,) = service_bus.receive_deferred({at}, [{number}])\nprint(message.body)")
    ),
    "release": Operation("Release lock", _call("service_bus.release_locks({at}, [{number}])")),
    "release_all": Operation("Release all locks", _call("count = service_bus.drop_locks({at})\nprint(count)")),
    "cancel": Operation("Cancel", _call("service_bus.cancel_scheduled({at}, [{number}])")),
    "edit": Operation("Edit", editing("service_bus.edit", 'body=b"new body"', _BUS)),
    "resubmit": Operation("Resubmit", _call("service_bus.resubmit({main}.dead_letter, [{number}])")),
    "discard": Operation("Discard", _call("service_bus.purge({at}, sequence_numbers=[{number}])")),
    "peek": Operation("Peek", _call(_PEEK)),
    "purge": Operation("Purge", _call("count = service_bus.purge({at})\nprint(count)")),
    "accept_session": Operation("Accept session", _accept_session),
    "close_session": Operation("Close session", _close_session),
    "create_queue": Operation("Create queue", _create("queue")),
    "create_topic": Operation("Create topic", _create("topic")),
    "create_subscription": Operation("Create subscription", _create_subscription),
    "create_rule": Operation("Create rule", _create_rule),
    "change_queue": Operation("Change settings", _change_queue),
    "advance": Operation("Advance the clock", advance),
}
RECEIVING = ("receive", "complete", "abandon", "defer", "dead_letter", "renew")
OF_ENTITY = {
    EntityKind.QUEUE: ("send", *RECEIVING, "peek", "purge", "release_all", "create_queue"),
    EntityKind.TOPIC: ("send", "create_topic", "create_subscription"),
    EntityKind.SUBSCRIPTION: (*RECEIVING, "peek", "purge", "release_all", "create_rule"),
}
OF_MESSAGE = ("send", "edit", "complete", "abandon", "defer", "dead_letter", "renew", "release", "discard")
OF_DEAD_LETTER = ("send", "resubmit", "complete", "discard")


def like(detail: MessageDetail, body: bytes) -> dict[str, Any]:
    """The arguments of a send of the same message, as far as they are plain values."""
    row = detail.row
    known = {name: detail.broker_properties.get(name) for name in _TEXTS if name in detail.broker_properties}
    return {
        "body": body, "message_id": row.message_id, "session": row.session_id, "subject": row.subject, "ttl": detail.time_to_live,
        "content_type": row.content_type, "correlation_id": row.correlation_id, **known,
        "properties": plain_properties(detail.application_properties),
    }  # fmt: skip
