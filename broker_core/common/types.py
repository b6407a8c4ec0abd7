"""The broker's value types: addresses, messages, settlements, rights.

Instants are aware UTC datetimes, durations are timedeltas; a missing instant or duration is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, StrEnum, auto
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import unquote

from .errors import InvalidArgument, NotAuthorized

DEAD_LETTER_QUEUE = "$DeadLetterQueue"
TRANSFER = "$Transfer"
SUBSCRIPTIONS = "Subscriptions"


class SubQueue(IntEnum):
    """The lists of an entity; the dead-letter queue always exists (SB-100)."""

    MAIN = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2
    TRANSFER = 3  # on the way to another entity (SB-166); it has no address


class MessageState(IntEnum):
    """The states of the wire protocol (SB-143). Locked, expired and due are derived from the clock and not stored."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class WaitKind(IntEnum):
    """What calls wait for in an entity."""

    MESSAGES = 0
    NEXT_SESSION = 1
    THIS_SESSION = 2
    MESSAGES_OF_SESSION = 3


class UseKind(IntEnum):
    """The activity that keeps an entity from being deleted on idle (SB-190 to SB-192)."""

    CREATE = 0
    SEND = 1
    RECEIVE = 2  # also a receiver that waits (SB-195)
    PEEK = 3
    CHANGE = 4  # of its settings, or an added rule
    ACTIVATE = 5  # a scheduled message became active
    CANCEL = 6  # a scheduled message was cancelled, deleted or moved away
    RESUBMIT = 7  # of dead letters
    RESTORE = 8  # an operation was undone


class HoldKind(IntEnum):
    """Why a storage queue's message is invisible until its visible_at. Stored with the message and used by the ledger."""

    GET = 10
    PUT = 12
    UPDATE_BEFORE_GET = 13
    UPDATE = 14


class LedgerState(IntEnum):
    """Ledger states beyond MessageState: messages that are locked or invisible, counted by the instant at which that ends.

    These messages are also counted in their own state: the ledger's active messages include the locked ones.
    """

    LOCKED = 10  # active and locked; in a storage queue: invisible since a get
    DEFERRED_LOCKED = 11  # always LOCKED + the state
    DELAYED = 12  # in a storage queue, by HoldKind: put with a delay,
    RESCHEDULED = 13  # delayed by an update before any get,
    EXTENDED = 14  # or by an update after a get


class Family(StrEnum):
    """The product whose documented semantics a namespace follows (docs/design.md D10)."""

    SERVICE_BUS = "service_bus"
    QUEUE_STORAGE = "queue_storage"
    RABBITMQ = "rabbitmq"


class EntityKind(StrEnum):
    """The kind of an entity. A topic stores only scheduled messages; a subscription stores its own copies."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


class Tier(StrEnum):
    """The tier of a namespace. Basic has only queues, and its messages live at most 14 days."""

    BASIC = "basic"
    STANDARD = "standard"
    PREMIUM = "premium"


class EntityStatus(StrEnum):
    """Whether the entity accepts sends and receives (SB-230 to SB-233)."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def may_send(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def may_receive(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class Behaviour(StrEnum):
    """How the entities of a Service Bus namespace behave where Vitrine is by choice kinder than the service's pages: when expired
    messages are removed (SB-902), what a peek shows (SB-903), and whether changed settings end locks (SB-907)."""

    CONVENIENT = "convenient"
    DOCUMENTED = "documented"


class ExpiryMode(StrEnum):
    """When an expired message is removed (SB-902). No mode ever delivers it."""

    EAGER = "eager"
    ON_ACTIVITY = "on_activity"
    AT_HEAD = "at_head"


class HistoryLevel(IntEnum):
    """How many events are recorded for a message."""

    OFF = 0
    LIFECYCLE = 1
    FULL = 2


class EventKind(IntEnum):
    """What happened to a message. The numbers are stored in tables and archives: never change one."""

    SENT = 1
    SCHEDULED = 2
    ACTIVATED = 3
    RECEIVED = 4
    RENEWED = 5
    COMPLETED = 6
    ABANDONED = 7
    RELEASED = 8
    DEFERRED = 9
    DEAD_LETTERED = 10
    EXPIRED = 11
    LOCK_LOST = 12
    CANCELLED = 13
    PURGED = 14
    RESUBMITTED = 15
    DELETED = 16
    FORWARDED = 17
    RECEIVED_AND_DELETED = 18
    DUPLICATE_DROPPED = 19  # a later message with the id of this one was dropped (SB-131, SB-931)
    PUBLISHED = 20  # by a topic, to its matching subscriptions
    DROPPED = 21  # by its queue; `reason` says why: rejected, over a limit, delivered too often, unroutable
    MOVED = 22  # to other entities; `reason` says why: dead-lettered by an exchange, or moved to a poison queue
    SETTLE_REFUSED = 23  # a settlement without a valid lock, which changed nothing (SB-071); `reason` says which: complete, renew
    RESTORED = 24  # to its list, by undoing an operation that had removed it
    EDITED = 25  # its body or properties, by an operator, while nobody held it (docs/design.md D22); `details` says what changed

    @property
    def is_terminal(self) -> bool:
        """Whether the entity no longer has a message of this number afterwards."""
        return self in TERMINAL_KINDS


TERMINAL_KINDS = frozenset(
    {
        EventKind.ACTIVATED,
        EventKind.COMPLETED,
        EventKind.EXPIRED,
        EventKind.CANCELLED,
        EventKind.PURGED,
        EventKind.RESUBMITTED,
        EventKind.DELETED,
        EventKind.FORWARDED,
        EventKind.RECEIVED_AND_DELETED,
        EventKind.PUBLISHED,
        EventKind.DROPPED,
        EventKind.MOVED,
    }
)


class Right(Flag):
    """Rights of an actor. Clients have Send, Listen and Manage; people can have all of them."""

    NONE = 0
    BROWSE = auto()
    SEE_BODIES = auto()
    SEND = auto()
    LISTEN = auto()
    OPERATE = auto()
    MANAGE = auto()
    ALL = BROWSE | SEE_BODIES | SEND | LISTEN | OPERATE | MANAGE


ACTOR_KINDS = ("user", "key", "process")


@dataclass(frozen=True, slots=True)
class Actor:
    """The person, key or process that acts; recorded in events, locks and the audit log.

    kind:   one of ACTOR_KINDS.
    holder: how the actor is shown as the holder of a lock; defaults to kind:name.
    namespace: the one in which it has `rights`; in all others it has rights_elsewhere. Empty: it has `rights` everywhere.
    """

    process_name: ClassVar[Callable[[], str]] = lambda: "local"  # set by store/process.py: this package is pure

    kind: str
    name: str
    rights: Right = Right.NONE
    holder: str = ""
    namespace: str = ""
    rights_elsewhere: Right = Right.NONE

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def __post_init__(self) -> None:
        for name in ("kind", "name", "holder", "namespace"):
            require_text(name, getattr(self, name))
        for name in ("rights", "rights_elsewhere"):
            if not isinstance(getattr(self, name), Right):
                raise InvalidArgument(name, f"must be one of Right, or several, not {repr(getattr(self, name))[:80]}")

    @property
    def holder_label(self) -> str:
        return self.holder or str(self)

    def require(self, right: Right, entity: EntityAddress | str) -> None:
        """Raise NotAuthorized unless the actor has every right named."""
        rights = self._rights_in(entity) if self.namespace else self.rights
        if right._value_ & ~rights._value_:  # of the enum itself, `&` and `~` would take longer than the rest of the check
            raise NotAuthorized(str(self), right.name or str(right), str(entity))

    def _rights_in(self, entity: EntityAddress | str) -> Right:
        name = entity.namespace if isinstance(entity, EntityAddress) else entity
        return self.rights if name.lower() == self.namespace.lower() else self.rights_elsewhere

    @classmethod
    def local(cls, name: str | None = None) -> Actor:
        """An actor with all rights: code in this process could open the database itself. name: default: the process's."""
        return _process_actor(name or cls.process_name())


BROKER = "process:broker"  # the actor of sweeps and other automatic changes


def _require_enum(name: str, kind: type[Enum], value: Any) -> None:
    if isinstance(value, bool) or value not in list(kind):
        raise InvalidArgument(name, f"must be one of {kind.__name__}, not {repr(value)[:80]}")


@lru_cache(maxsize=64)
def _process_actor(name: str) -> Actor:
    return Actor("process", name, Right.ALL)


def require_text(name: str, value: Any) -> str:
    """Return the value. Raises InvalidArgument with this name if it is not a string."""
    if not isinstance(value, str):
        raise InvalidArgument(name, f"must be a string, not {repr(value)[:80]}")
    return value


@dataclass(frozen=True, slots=True)
class EntityAddress:
    """A queue, topic or subscription of a namespace, or one of its sub-queues. The broker compares addresses case-insensitively.

    path: a subscription's is topic/Subscriptions/name.
    """

    namespace: str
    path: str
    subqueue: SubQueue = SubQueue.MAIN

    def __post_init__(self) -> None:
        require_text("namespace", self.namespace)
        require_text("path", self.path)
        if type(self.subqueue) is not SubQueue:
            _require_enum("subqueue", SubQueue, self.subqueue)

    @classmethod
    def parse(cls, text: str) -> EntityAddress:
        """Read "namespace/path", "namespace/path/$DeadLetterQueue" or ".../$Transfer/$DeadLetterQueue".

        A slash in a virtual host's name is %2F, as str() writes it.
        """
        namespace, _, path = require_text("address", text).strip("/").partition("/")
        namespace = unquote(namespace)
        segments = path.split("/")
        subqueue = SubQueue.MAIN
        if segments[-1].lower() == DEAD_LETTER_QUEUE.lower():
            subqueue, segments = SubQueue.DEAD_LETTER, segments[:-1]
            if segments and segments[-1].lower() == TRANSFER.lower():
                subqueue, segments = SubQueue.TRANSFER_DEAD_LETTER, segments[:-1]
        if not namespace or not segments or not all(segments):
            raise InvalidArgument("address", f"{text!r} is not namespace/queue or namespace/queue/{DEAD_LETTER_QUEUE}")
        return cls(namespace, "/".join(segments), subqueue)

    @property
    def dead_letter(self) -> EntityAddress:
        return EntityAddress(self.namespace, self.path, SubQueue.DEAD_LETTER)

    @property
    def transfer_dead_letter(self) -> EntityAddress:
        return EntityAddress(self.namespace, self.path, SubQueue.TRANSFER_DEAD_LETTER)

    def subscription(self, name: str) -> EntityAddress:
        """The address of a topic's subscription."""
        return EntityAddress(self.namespace, f"{self.path}/{SUBSCRIPTIONS}/{name}")

    @property
    def topic(self) -> EntityAddress | None:
        """The topic of a subscription's address, else None."""
        at = self._subscriptions_at
        return EntityAddress(self.namespace, self.path[:at]) if at > 0 else None

    @property
    def name(self) -> str:
        """The name of a subscription, the path of anything else."""
        at = self._subscriptions_at
        return self.path[at + len(SUBSCRIPTIONS) + 2 :] if at > 0 else self.path

    @property
    def _subscriptions_at(self) -> int:
        return self.path.lower().rfind(f"/{SUBSCRIPTIONS.lower()}/")

    @property
    def main(self) -> EntityAddress:
        return EntityAddress(self.namespace, self.path)

    def __str__(self) -> str:
        suffix = ("", f"/{DEAD_LETTER_QUEUE}", f"/{TRANSFER}/{DEAD_LETTER_QUEUE}", f"/{TRANSFER}")[self.subqueue]
        namespace = self.namespace.replace("%", "%25").replace("/", "%2F")
        return f"{namespace}/{self.path}{suffix}"


class BodyKind(IntEnum):
    """The AMQP sections of a body. A body of the kind DATA is the content of its only section, as with HTTP and Python; of the
    others, it is the encoded sections (a family says how)."""

    DATA = 0
    SEQUENCE = 1
    VALUE = 2
    DATA_SECTIONS = 3  # several, or none
