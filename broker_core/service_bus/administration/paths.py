"""What a path of the administration API names (SB, section 7.1). Pure functions.

    /{entity}                                       a queue or topic, whose path may contain slashes
    /{topic}/Subscriptions/{name}                   a subscription
    /{topic}/Subscriptions/{name}/Rules/{name}      a rule
    /{topic}/Subscriptions, .../Rules               the subscriptions of a topic, the rules of a subscription
    /$Resources/queues, /$Resources/topics          the queues, the topics of the namespace
    /$namespaceinfo                                 the namespace

The fixed segments are case-insensitive, and a slash may follow `Subscriptions` and `Rules` at the end of a list's path, as
@azure/service-bus for JavaScript sends it. The path is split at its slashes and each segment decoded once; an encoded slash in a
name is a slash. Routing, the address and the scope that a token must cover all come from what is found here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote_to_bytes
from uuid import UUID

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import SUBSCRIPTIONS, EntityAddress
from broker_core.service_bus.rules.limits import STRICT
from broker_core.wire.http.errors import UnknownResource

RULES = "Rules"
_LONGEST = STRICT.entity_path + len(f"/{SUBSCRIPTIONS}/") + STRICT.subscription_name + len(f"/{RULES}/") + STRICT.rule_name
_LISTS = (SUBSCRIPTIONS.lower(), RULES.lower())
_HEAD_OF_MESSAGES = ["messages", "head"]  # whose DELETE receives a message (SB, section 8.1)
_HOW = (
    f"use /<queue or topic>, /<topic>/{SUBSCRIPTIONS}/<name>, .../{RULES}/<name>, /$Resources/queues, /$Resources/topics or "
    "/$namespaceinfo"
)


class Level(StrEnum):
    NAMESPACE = "namespace"
    QUEUES = "queues"
    TOPICS = "topics"
    ENTITY = "entity"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    RULES = "rules"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Target:
    """path: decoded, for what a token must cover. entity: the path of the queue, topic or subscription; empty: the namespace.
    rule: the name of a rule."""

    level: Level
    path: str
    entity: str = ""
    rule: str = ""

    @property
    def can_be_created(self) -> bool:
        """Whether requests to the path would always reach this API: others are for messages, to receive or to settle one."""
        words = self.path.lower().split("/")
        is_lock = words[-3:-2] == _HEAD_OF_MESSAGES[:1] and _is_uuid(words[-1])
        return words[-2:] != _HEAD_OF_MESSAGES and not is_lock

    def address(self, namespace: str) -> EntityAddress:
        return EntityAddress(namespace, self.entity)


def target_of(raw_path: str) -> Target:
    """raw_path: percent-encoded, as received. Raises UnknownResource, and InvalidArgument for a path that cannot be a name."""
    segments = _segments(raw_path)
    path, words = "/" + "/".join(segments), [segment.lower() for segment in segments]
    match words:
        case ["$namespaceinfo"]:
            return Target(Level.NAMESPACE, path)
        case ["$resources", "queues" | "topics" as kind]:
            return Target(Level(kind), path)
        case ["$resources", *_]:
            raise _unknown(path)
    if SUBSCRIPTIONS.lower() not in words[1:]:
        return Target(Level.ENTITY, path, "/".join(segments))
    at = words.index(SUBSCRIPTIONS.lower(), 1)
    return _below(path, "/".join(segments[:at]), segments[at + 1 :])


def _below(path: str, topic: str, segments: list[str]) -> Target:
    """topic: a path. segments: what is after `Subscriptions`."""
    if not segments:
        return Target(Level.SUBSCRIPTIONS, path, topic)
    subscription = f"{topic}/{SUBSCRIPTIONS}/{segments[0]}"
    match [segment.lower() for segment in segments[1:2]], segments[2:]:
        case [], []:
            return Target(Level.SUBSCRIPTION, path, subscription)
        case ["rules"], []:
            return Target(Level.RULES, path, subscription)
        case ["rules"], [rule]:
            return Target(Level.RULE, path, subscription, rule)
    raise _unknown(path)


def _segments(raw_path: str) -> list[str]:
    first, *encoded = raw_path.split("/")
    try:
        segments = [part for segment in encoded for part in unquote_to_bytes(segment).decode().split("/")]
    except UnicodeDecodeError:
        raise InvalidArgument("path", "is not UTF-8; percent-encode the UTF-8 bytes of each name") from None
    if first or segments in ([], [""]):
        raise _unknown(raw_path)
    if len(segments) > 2 and segments[-1] == "" and segments[-2].lower() in _LISTS:
        segments.pop()
    if not all(segments) or not {".", ".."}.isdisjoint(segments):
        raise InvalidArgument("path", f"{raw_path[:200]!r} must not contain empty segments, '.' or '..'; {_HOW}")
    if "\x00" in raw_path or "\x00" in "".join(segments):
        raise InvalidArgument("path", "contains a NUL character, which no name has")
    if sum(map(len, segments)) + len(segments) > _LONGEST + 1:
        raise InvalidArgument("path", f"has more than {_LONGEST} characters, the most that an entity's path can have")
    return segments


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _unknown(path: str) -> UnknownResource:
    return UnknownResource(f"No resource at {path[:200]!r}; {_HOW}.")
