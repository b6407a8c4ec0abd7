"""Formats ages, sizes, badges, deadlines and counts. Pure: no request, no query, the time is an argument."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker_core.common.durations import format_iso, human
from broker_core.common.types import Actor, EntityAddress, EntityStatus, SubQueue
from broker_core.reads import EntityRow, Lock, MessageRow
from broker_core.runtime.previews import Effect
from explorer.live.instants import epoch_ms

from .actors import shown_actor
from .family import pages_of
from .figures import at_hand
from .values import Badge, Fact

STATUS_WORDS = {
    EntityStatus.ACTIVE: "Active",
    EntityStatus.SEND_DISABLED: "Sending paused",
    EntityStatus.RECEIVE_DISABLED: "Receiving paused",
    EntityStatus.DISABLED: "Paused",
}
SUBQUEUE_SLUGS = {
    SubQueue.MAIN: "main",
    SubQueue.DEAD_LETTER: "dead-letter",
    SubQueue.TRANSFER_DEAD_LETTER: "transfer-dead-letter",
}
SUBQUEUES = {slug: subqueue for subqueue, slug in SUBQUEUE_SLUGS.items()}


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant at which the state changes. words: the text before the countdown, such as "lock ends in"."""

    words: str
    at: datetime

    @property
    def epoch_ms(self) -> int:
        return epoch_ms(self.at)


_CITED = re.compile(r" \(((?:SB|QS|RMQ)-\w+(?:, (?:SB|QS|RMQ)-\w+)*)\)")
_EFFECTS = {  # the effect of a change on one message, and on several
    "expired": ("expires now", "expire now"),
    "too many": ("exceeds the limit", "exceed the limit"),
    "dead-lettered": ("is dead-lettered", "are dead-lettered"),
    "dropped": ("is dropped", "are dropped"),
    "saved": ("is kept instead of removed", "are kept instead of removed"),
    "unlocked": ("loses its lock", "lose their lock"),
    "forwarded": ("is forwarded", "are forwarded"),
    "undeliverable": ("can no longer be delivered", "can no longer be delivered"),
    "deliverable": ("can be delivered now", "can be delivered now"),
    "moved to the poison queue": ("moves to the poison queue now", "move to the poison queue now"),
    "moved to the poison queue once visible": ("moves to the poison queue once visible", "move to the poison queue once visible"),
    "moved to another poison queue than before": ("moves to a different poison queue", "move to a different poison queue"),
    "removed, expired": ("has expired and is removed", "have expired and are removed"),
    "given out again": ("becomes available again", "become available again"),
    "shown longer, expired": ("has expired and is shown longer", "have expired and are shown longer"),
}
GONE = Badge("gone", "gone", "gone")


def badge(row: MessageRow) -> Badge:
    """The state of a present message, from its family."""
    return pages_of(row.family).badge(row)


def deadline(row: MessageRow) -> Deadline | None:
    """The next timed change of the message; None: none."""
    at = row.deadline
    if at is None:
        return None
    expires_first = row.visible_at is not None and at != row.visible_at
    return Deadline("expires in" if expires_first else pages_of(row.family).ends.get(row.display_state, "expires in"), at)


def age(delta: timedelta) -> str:
    """An age in one unit, never negative: "now", "12 s", "4 min", "3 h", "9 days"."""
    seconds = int(delta.total_seconds())
    if seconds < 1:
        return "now"
    for word, size in (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size:
            count = seconds // size
            return f"{count} {word}{'s' if word == 'day' and count > 1 else ''}"
    return "now"


def age_in_words(delta: timedelta) -> str:
    """An age in a sentence: "12 s ago", or "now"."""
    text = age(delta)
    return text if text == "now" else f"{text} ago"


def clock_text(delta: timedelta) -> str:
    """A countdown's first value, in the format of live.js: "0:41", "12:05", "3:00:00", "9 days". Zero and less: "moments"."""
    seconds = int(delta.total_seconds())
    if seconds <= 0:
        return "moments"
    if seconds >= 2 * 86_400:
        return f"{(seconds + 43_200) // 86_400} days"  # rounded: seven days are still "7 days" a second later
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def filesize(count: int) -> str:
    """A size with up to three digits: "312 B", "4.1 KB", "23 MB"; 1 KB is 1,024 bytes."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KB", "MB", "GB", "TB"):
        size /= 1024
        if size < 1024 or unit == "TB":
            return f"{size:.1f} {unit}" if size < 10 else f"{size:,.0f} {unit}"
    raise AssertionError("unreachable")


def rate(per_second: float) -> str:
    """A rate per second, or per minute if it is slow."""
    if per_second <= 0:
        return "0"
    if per_second >= 1:
        return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"
    return f"{per_second * 60:.0f}/min" if per_second * 60 >= 1 else "<1/min"


def byte_rate(per_second: float) -> str:
    """Bytes a second: "4.1 KB/s"."""
    return f"{filesize(round(per_second))}/s" if per_second >= 0.5 else "0"


def per_minute(per_second: float) -> str:
    """A rate as a number per minute."""
    each = per_second * 60
    return f"{each:,.0f}" if each >= 1 or not each else "<1"


def plural(count: int, singular: str, several: str = "") -> str:
    """A count with its noun: "1 message", "2,000 messages". several: an irregular plural."""
    return f"{count:,} {singular if count == 1 else several or f'{singular}s'}"


def copies(count: int) -> str:
    """A number of copies: "1 copy", "3 copies"."""
    return plural(count, "copy", "copies")


def numbered(numbers: Sequence[int]) -> str:
    """Messages with their numbers: "message 4", "messages 4, 5"."""
    return f"message{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def absolute(at: datetime) -> str:
    """An instant in UTC, to the millisecond."""
    at = at.astimezone(UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03} UTC"


def time_of_day(at: datetime, now: datetime) -> str:
    """An instant in a sentence: "14:02:54 UTC", with its day if that is another one than now's."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%H:%M:%S} UTC on {at.day} {at:%b %Y}"


def actor_name(actor: str | None, me: Actor | None = None) -> str:
    """The name of an actor as all pages show it (frames/actors.py), in a sentence: "ada (you)" if it is `me`; "" for None."""
    if not actor:
        return ""
    name = shown_actor(actor).name
    return f"{name} (you)" if me is not None and actor in (str(me), me.holder_label) else name


def by_actor(name: str, stored: str) -> Fact:
    """A fact of this name: an actor."""
    actor = shown_actor(stored)
    return Fact(name, actor.name, f"from {actor.client}" if actor.client else "", url=actor.url)


def typed_text(kind: str, text: str | None) -> tuple[str, str]:
    """The stored text of a typed value for people, and a note: of a time span "1 h 30 min" and its ISO 8601 form."""
    if kind == "timespan" and text:
        try:
            length = timedelta(microseconds=float(text))
        except (ValueError, OverflowError):
            return text, ""
        return human(length), format_iso(length)
    return text or "", ""


def clock_shown(now: datetime, rate: float) -> str:
    """A clock's time, in the format of live.js; to the millisecond if it is paused."""
    return absolute(now) if rate == 0 else f"{now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def shown_path(address: EntityAddress) -> str:
    """A path for display; that of a subscription is "topic/name"."""
    return f"{address.topic.path}/{address.name}" if address.topic else address.path


def tags(entity: EntityRow) -> list[tuple[str, str]]:
    """The tags of an entity in a list, each with its meaning."""
    return [*pages_of(entity.family).tags(entity)]


def effects_text(effects: Sequence[Effect]) -> str:
    """The effects of a change on existing messages, as one sentence, summed over all lists."""
    sums: dict[str, int] = {}
    for effect in effects:
        sums[effect.what] = sums.get(effect.what, 0) + effect.count
    if not sums:
        return "No existing messages are affected."
    least = "at least " if any(effect.at_least for effect in effects) else ""
    return f"Of the existing messages, {', '.join(f'{least}{n:,} {_EFFECTS[what][n != 1]}' for what, n in sums.items())}."


def effect_verb(effect: Effect) -> str:
    """The effect of a change on messages, as the predicate of a sentence."""
    return _EFFECTS[effect.what][effect.count != 1]


def without_rules(text: str) -> tuple[str, str]:
    """A text without the rules that it cites in parentheses, and a list of these rules."""
    cited = [rule for group in _CITED.findall(text) for rule in group.split(", ")]
    return _CITED.sub("", text), ", ".join(dict.fromkeys(cited))


def is_neglected(entity: EntityRow) -> bool:
    """Whether messages wait and no receiver has asked for any within the last minute.

    Messages that wait for an operator do not count.
    """
    if pages_of(entity.family).needs_a_person(entity):
        return False
    if not at_hand(entity) or entity.consumers or entity.consumers_waiting or not entity.status.may_receive:
        return False
    last = entity.last_receive_at
    return last is None or entity.clock.now - last > timedelta(minutes=1)


def consuming(entity: EntityRow) -> str:
    """The state of an entity's consumers, in a word or two."""
    if entity.status != EntityStatus.ACTIVE:
        return STATUS_WORDS[entity.status]
    if entity.forward_to:
        return "forwards"
    if entity.consumers:
        return f"{plural(entity.consumers, 'consumer')}"
    if entity.consumers_waiting:
        return "waiting"
    if entity.last_receive_at is None:
        return pages_of(entity.family).texts.no_consumer
    idle = entity.clock.now - entity.last_receive_at
    return "active" if idle < timedelta(minutes=1) else f"idle {age(idle)}"


def status_words(status: EntityStatus) -> str:
    """What is paused."""
    return STATUS_WORDS[status]


def is_received_from(entity: EntityRow) -> bool:
    """Whether an entity has receivers now, or forwards its messages."""
    last = entity.last_receive_at
    active = last is not None and entity.clock.now - last < timedelta(minutes=1)
    return bool(entity.forward_to or entity.consumers or entity.consumers_waiting or active)


def receiving(entity: EntityRow) -> str:
    """Who receives from an entity now, in a few words."""
    noun = pages_of(entity.family).texts.receiver
    if entity.forward_to:
        return "forwards its messages"
    if entity.consumers:
        return plural(entity.consumers, noun)
    if entity.consumers_waiting:
        return f"{noun}s waiting"
    if entity.last_receive_at is None:
        return f"no {noun} yet"
    if is_received_from(entity):
        return f"{noun}s active"
    return f"no {noun} for {age(entity.clock.now - entity.last_receive_at)}"


def property_name(name: str) -> str:
    """A property's name in Azure's pages: content_type -> Content type, correlation_id -> Correlation ID."""
    words = name.replace("-", "_").split("_")
    return " ".join([words[0].capitalize(), *words[1:]]).removesuffix(" id") + (" ID" if words[-1] == "id" else "")


def release_title(lock: Lock) -> str:
    """What is released, and from whom: the list behind the question may change meanwhile."""
    subject = f"session {lock.session_id or '(empty)'}" if lock.is_session else f"message {lock.number}"
    place = f"{lock.address.namespace}/{shown_path(lock.address)}"
    return f"Release {subject} of {place}, held by {actor_name(lock.holder) or 'an unknown receiver'}"
