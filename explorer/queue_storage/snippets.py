"""Queue Storage operations as code (explorer/snippets/), in Python."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

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
    calling,
    editing,
    literal,
)

_QUEUES = "from broker_core import queue_storage"
_PRINT = "for message in messages:\n    print(message.sequence_number, message.dequeue_count, message.text)"


def _put(at: EntityAddress, args: Args) -> Code:
    times = {"visibility_timeout": args.get("visibility"), "time_to_live": args.get("ttl")}
    texts = args.get("texts") or [str(args.get("text", "hello"))]
    imports = [_QUEUES, ADDRESS, *([TIME] if any(times.values()) else [])]
    return Code(imports, "\n".join(f"queue_storage.put({address(at)}, {literal(text)}{arguments(times)})" for text in texts))


def _get(at: EntityAddress, args: Args) -> Code:
    count = f", {args['count']}" if args.get("count", 1) != 1 else ""
    times = {"visibility_timeout": args.get("visibility")}
    lines = f"messages = queue_storage.get({address(at)}{count}{arguments(times)})\n"
    then = args.get("then", "hold")
    if then == "hold":
        return Code([_QUEUES, ADDRESS, *([TIME] if args.get("visibility") else [])], lines + _PRINT)
    settle = {"delete": _DELETE, "release": _RELEASE}[then].format(at=address(at))
    return Code([_QUEUES, ADDRESS, TIME], f"{lines}for message in messages:\n    {settle}")


_DELETE = "queue_storage.delete({at}, message.message_id, message.pop_receipt)"
_RELEASE = "queue_storage.update({at}, message.message_id, message.pop_receipt, visibility_timeout=timedelta(0))"
_NUMBER = "from broker_core import reads"


def _by_receipt(text: str) -> Callable[[EntityAddress, Args], Code]:
    """A call with the id and present receipt of the message of a number, or without one of the next that is got."""

    def write(at: EntityAddress, args: Args) -> Code:
        if args.get("number") is None:
            lines = f"(message,) = queue_storage.get({address(at)})\n" + text.format(
                at=address(at), id="message.message_id", receipt="message.pop_receipt", visibility=_visibility(args)
            )
            return Code([_QUEUES, ADDRESS, TIME], lines)
        lines = f"row = reads.message({address(at)}, {args['number']}).row  # it is leased\n" + text.format(
            at=address(at), id="row.message_id", receipt="row.lock_token", visibility=_visibility(args)
        )
        return Code([_QUEUES, ADDRESS, _NUMBER, TIME], lines)

    return write


def _visibility(args: Args) -> str:
    return literal(args.get("visibility", timedelta(seconds=30)))


def _options(call: str) -> Callable[[EntityAddress, Args], Code]:
    def write(at: EntityAddress, args: Args) -> Code:
        options = {name: args.get(name) for name in ("max_dequeue_count", "poison_queue")}
        return Code([_QUEUES, ADDRESS], f"queue_storage.{call}({address(at)}{arguments(options)})")

    return write


_CLIENT = """# pip install azure-storage-queue
from azure.storage.queue import QueueClient

queue = QueueClient.from_connection_string(
    {string},
    {queue},
)
queue.send_message("hello")

message = queue.receive_message()  # the next one, hidden from others for 30 seconds
if message:
    print(message.content)
    queue.delete_message(message)
"""


_SIGNED = """Q={url}
KEY={key}

# a shared access signature for the messages of this queue, valid for an hour
ENDS=$(($(date +%s) + 3600))
EXPIRY=$(date -u -d @$ENDS +%Y-%m-%dT%H:%M:%SZ 2> /dev/null || date -u -r $ENDS +%Y-%m-%dT%H:%M:%SZ)
HEX_KEY=$(printf '%s' "$KEY" | base64 -d | od -An -v -tx1 | tr -d ' \\n')
SIGNATURE=$(printf 'raup\\n\\n%s\\n%s\\n\\n\\n\\n2021-12-02' "$EXPIRY" {resource} \\
  | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$HEX_KEY" -binary | base64 | sed 's/+/%2B/g; s/\\//%2F/g; s/=/%3D/g')
TOKEN="sv=2021-12-02&sp=raup&se=$EXPIRY&sig=$SIGNATURE"

# put a message
curl -i "$Q/messages?$TOKEN" -d '<QueueMessage><MessageText>hello</MessageText></QueueMessage>'

# get the next one, hidden from others for 30 seconds
curl -i "$Q/messages?visibilitytimeout=30&$TOKEN"
"""


def for_clients(entity: EntityRow, strings: Mapping[str, str], base: str) -> list[Program]:
    """A program of the official client, and requests with curl. strings: connection strings, by name; that of TLS is used if the
    port without TLS is off."""
    string, queue = strings.get("sdk") or strings["tls"], entity.address.path
    fields = dict(part.split("=", 1) for part in string.rstrip(";").split(";"))
    of_sdk = _CLIENT.format(string=literal(string), queue=literal(queue))
    of_curl = _SIGNED.format(
        url=shlex.quote(f"{fields['QueueEndpoint']}/{queue}"),
        key=shlex.quote(fields["AccountKey"]),
        resource=shlex.quote(f"/queue/{entity.address.namespace}/{queue}"),
    )
    return [
        Program("azure-storage-queue", "azure-storage-queue (Python)", of_sdk),
        Program("curl", "curl (REST API)", of_curl),
    ]


OPERATIONS = {
    "put": Operation("Put", _put),
    "get": Operation("Get", _get),
    "update": Operation("Update", _by_receipt("queue_storage.update({at}, {id}, {receipt}, visibility_timeout={visibility})")),
    "delete": Operation("Delete", _by_receipt("queue_storage.delete({at}, {id}, {receipt})")),
    "release": Operation("Release lease", calling("queue_storage.release({at}, [{number}])", _QUEUES)),
    "edit": Operation("Edit", editing("queue_storage.edit", 'text="new text"', _QUEUES)),
    "discard": Operation("Discard", calling("queue_storage.remove({at}, [{number}])", _QUEUES)),
    "requeue": Operation("Requeue", calling("queue_storage.requeue_poison({at}, [{number}])", _QUEUES)),
    "peek": Operation("Peek", calling("for message in queue_storage.peek({at}, 10):\n    print(message.text)", _QUEUES)),
    "purge": Operation("Clear", calling("count = queue_storage.clear({at})\nprint(count)", _QUEUES)),
    "create_queue": Operation("Create queue", _options("create_queue")),
    "change_queue": Operation("Change settings", _options("update_queue")),
    "advance": Operation("Advance the clock", advance),
}

OF_ENTITY = {EntityKind.QUEUE: ("put", "get", "delete", "update", "peek", "purge", "create_queue")}
OF_MESSAGE = ("put", "edit", "delete", "update", "release", "discard")
OF_DEAD_LETTER = OF_MESSAGE


def like(detail: MessageDetail, body: bytes) -> dict[str, Any]:
    """The arguments of a put of the same message."""
    return {"text": body.decode(errors="replace"), "ttl": detail.time_to_live}
