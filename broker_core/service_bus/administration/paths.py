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

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import SUBSCRIPTIONS, EntityAddress
from broker_core.service_bus.rules.limits import STRICT
from broker_core.wire.http.errors import UnknownResource

RULES = "Rules"
_LONGEST = STRICT.entity_path + len(f"/{SUBSCRIPTIONS}/") + STRICT.subscription_name + len(f"/{RULES}/") + STRICT.rule_name
_MESSAGES = "messages"
_HEAD_OF_MESSAGES = f"/{_MESSAGES}/head"  # whose DELETE receives a message (SB, section 8.1)
_HEALTH = "/health"  # whose GET says whether the service is healthy
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
        """Whether GET and DELETE of the path reach this API, as a PUT has: other front ends at the port have some of them."""
        return self.path.lower() != _HEALTH and not self.path.lower().endswith(_HEAD_OF_MESSAGES)

    @property
    def is_like_that_of_messages(self) -> bool:
        """Whether the path is almost one of the API for messages."""
        return _MESSAGES in self.path.lower().split("/")[-3:]

    def address(self, namespace: str) -> EntityAddress:
        return EntityAddress(namespace, self.entity)


def target_of(raw_path: str) -> Target:
    """raw_path: percent-encoded, as received. Raises UnknownResource, and InvalidArgument for a path that cannot be a name."""
    segments = _segments(raw_path)
    if segments[-1]:
        return _target(segments)
    found = _target(segments[:-1])
    if found.level not in (Level.SUBSCRIPTIONS, Level.RULES):
        raise InvalidArgument("path", f"{raw_path[:200]!r} must not end in a slash; {_HOW}")
    return found


def _target(segments: list[str]) -> Target:
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
    if not all(segments[:-1]) or not {".", ".."}.isdisjoint(segments):
        raise InvalidArgument("path", f"{raw_path[:200]!r} must not contain empty segments, '.' or '..'; {_HOW}")
    if "\x00" in raw_path or "\x00" in "".join(segments):
        raise InvalidArgument("path", "contains a NUL character, which no name has")
    if sum(map(len, segments)) + len(segments) > _LONGEST + 1:
        raise InvalidArgument("path", f"has more than {_LONGEST} characters, the most that an entity's path can have")
    return segments


def _unknown(path: str) -> UnknownResource:
    return UnknownResource(f"No resource at {path[:200]!r}; {_HOW}.")
