"""What the URL of a request names. Pure functions.

    http://HOST:PORT/ACCOUNT/QUEUE/messages/ID          path style, of emulators
    http://ACCOUNT.queue.HOST:PORT/QUEUE/messages/ID    host style

This is the only place where URLs are read: the path is split at its slashes first, and each segment is decoded once, so that no
encoded slash or dot leads to another queue. Signatures are made of the raw path (rules/shared_key.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote_to_bytes

from broker_core.queue_storage.rules.names import check_queue_name
from broker_core.queue_storage.rules.shared_key import SECONDARY
from broker_core.wire.http.errors import UnknownResource

_HOST_STYLE = re.compile(r"(?P<account>[a-z0-9]+(?:-secondary)?)\.queue\..+", re.IGNORECASE)
_HOW = "/<account>/<queue>/messages/<id>"


class Level(StrEnum):
    """What a request is about."""

    SERVICE = "service"
    QUEUE = "queue"
    MESSAGES = "messages"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Target:
    """account: without the suffix of its secondary endpoint. is_path_style: whether the account is in the path."""

    level: Level
    account: str
    is_secondary: bool
    is_path_style: bool
    queue: str = ""
    message_id: str = ""


def target_of(host: str, raw_path: str) -> Target:
    """host: as sent, with its port. raw_path: percent-encoded, without the query; one slash at its end is ignored (QS-921).

    Raises UnknownResource for a path that names nothing; InvalidResourceName and OutOfRangeInput for a queue's name.
    """
    if not raw_path.startswith("/"):
        raise UnknownResource(f"The path {raw_path[:200]!r} must start with a slash.")
    segments = [_decoded(segment, raw_path) for segment in raw_path[1:].split("/")]
    if segments[-1] == "":
        segments.pop()
    account = _account_of_host(host)
    is_path_style = not account
    if is_path_style:
        account, *segments = segments or [""]
    if "" in segments or not account:
        raise UnknownResource(f"The path {raw_path[:200]!r} names no resource: use {_HOW}.")
    is_secondary = account.endswith(SECONDARY)
    return _target(segments, raw_path, account.removesuffix(SECONDARY), is_secondary, is_path_style)


def _target(segments: list[str], raw_path: str, account: str, is_secondary: bool, is_path_style: bool) -> Target:
    match segments:
        case []:
            return Target(Level.SERVICE, account, is_secondary, is_path_style)
        case [queue]:
            level, message_id = Level.QUEUE, ""
        case [queue, "messages"]:
            level, message_id = Level.MESSAGES, ""
        case [queue, "messages", message_id]:
            level = Level.MESSAGE
        case _:
            raise UnknownResource(f"The path {raw_path[:200]!r} names no resource: use {_HOW}.")
    return Target(level, account, is_secondary, is_path_style, check_queue_name(queue), message_id)


def _account_of_host(host: str) -> str:
    """Empty if the host names no account."""
    match = _HOST_STYLE.fullmatch(host.rpartition(":")[0] or host)
    return match["account"].lower() if match else ""


def _decoded(segment: str, raw_path: str) -> str:
    if segment.isascii() and "%" not in segment and "\x00" not in segment:
        return segment
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise UnknownResource(f"The path {raw_path[:200]!r} is not UTF-8.") from None
    if "\x00" in text:
        raise UnknownResource(f"The path {raw_path[:200]!r} contains the character NUL.")
    return text
