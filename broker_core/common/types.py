"""The broker's value types: addresses, messages, settlements, rights.

Instants are aware UTC datetimes, durations are timedeltas; a missing instant or duration is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, Flag, IntEnum, StrEnum, auto
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote
from uuid import UUID

from .errors import InvalidArgument, LockLost, NotAuthorized, SessionLockLost

if TYPE_CHECKING:
    from .amqp_sections import AmqpSections

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
    others, it is the encoded sections (common.amqp_message)."""

    DATA = 0
    SEQUENCE = 1
    VALUE = 2
    DATA_SECTIONS = 3  # several, or none


MessageId = str | UUID | int | bytes  # AMQP's string, uuid, ulong and binary


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.

    time_to_live: None means the entity's default applies (SB-021).
    properties:   application properties by name; plain Python values or values.Typed.
    amqp:         what the broker only keeps: durable and priority, annotations, user id, times, footer.
    """

    body: bytes = b""
    message_id: MessageId | None = None
    session_id: str | None = None
    correlation_id: MessageId | None = None
    subject: str | None = None
    content_type: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    partition_key: str | None = None
    via_partition_key: str | None = None
    time_to_live: timedelta | None = None
    scheduled_enqueue_at: datetime | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    body_kind: BodyKind = BodyKind.DATA
    amqp: AmqpSections | None = None


# Broker properties stored in one JSON column, by their names in Message; the others have columns of their own.
JSON_PROPERTIES = (
    "correlation_id",
    "subject",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
    "partition_key",
    "via_partition_key",
)


@dataclass(frozen=True)
class StoredMessage:
    """A message as stored; returned by peek and receive-and-delete.

    delivery_count:          failed deliveries so far (SB-090), 0 inside a dead-letter queue (SB-089).
    expires_at:              from its own time-to-live, else from the entity's default.
    message_id:              as sent, with its type; correlation_id likewise.
    broker_properties:       correlation_id, subject, content_type ... as text, present ones only.
    raw_application_properties: name -> [AMQP type, text]; `.properties` gives Python values.
    encoded:                 sections as sent, where the other fields do not say it all; `.amqp` reads them.
    """

    sequence_number: int
    state: MessageState
    delivery_count: int
    enqueued_at: datetime
    expires_at: datetime | None
    time_to_live: timedelta | None
    scheduled_enqueue_at: datetime | None
    message_id: MessageId | None
    session_id: str | None
    body: bytes
    body_kind: BodyKind
    broker_properties: Mapping[str, str]
    raw_application_properties: Mapping[str, list]
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_letter_source: str | None
    enqueued_sequence_number: int | None
    encoded: bytes | None

    @cached_property
    def properties(self) -> dict[str, Any]:
        """Application properties as Python values, with the dead-letter reason and description (SB-082)."""
        from .values import decode_properties

        return decode_properties(self.stored_properties)

    @property
    def stored_properties(self) -> dict[str, list]:
        """As raw_application_properties, with the dead-letter reason and description (SB-082)."""
        found = dict(self.raw_application_properties)
        if self.dead_letter_reason is not None:
            found["DeadLetterReason"] = ["string", self.dead_letter_reason]
        if self.dead_letter_description is not None:
            found["DeadLetterErrorDescription"] = ["string", self.dead_letter_description]
        return found

    @cached_property
    def amqp(self) -> AmqpSections | None:
        """What the sender gave beside the other fields; None: nothing."""
        from .amqp_sections import AmqpSections

        return None if self.encoded is None else AmqpSections.stored(self.encoded)

    @property
    def subject(self) -> str | None:
        return self.broker_properties.get("subject")

    @property
    def content_type(self) -> str | None:
        return self.broker_properties.get("content_type")

    @property
    def correlation_id(self) -> MessageId | None:
        text = self.broker_properties.get("correlation_id")
        return text if self.amqp is None else self.amqp.typed_id("correlation-id", text)


@dataclass(frozen=True)
class LockedMessage(StoredMessage):
    """A message received in peek-lock mode. The token is valid until `locked_until` (SB-061), lock_duration after the receive."""

    lock_token: UUID
    locked_until: datetime
    lock_duration: timedelta
    address: EntityAddress


class Received(list[LockedMessage]):
    """What a receive returned that also completed messages. completed: the report on the tokens that it was to complete."""

    def __init__(self, messages: Iterable[LockedMessage], completed: SettleReport):
        super().__init__(messages)
        self.completed = completed


@dataclass(frozen=True, slots=True)
class Session:
    """A locked session: its messages are delivered to this holder only, in order, until `locked_until` (SB-114).

    state:    as of accepting the session; None if none was set (SB-119).
    messages: those received with accepting the session.
    """

    address: EntityAddress
    session_id: str
    lock_token: UUID
    locked_until: datetime
    lock_duration: timedelta
    state: bytes | None = None
    messages: tuple[LockedMessage, ...] = ()

    @property
    def namespace(self) -> str:
        return self.address.namespace


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as shown in lists. first_number: of its lowest active message; None: it has none.

    locked_until, locked_by: of the last lock that was not closed; it may have ended.
    state_size: bytes; None: no state.
    """

    session_id: str
    first_number: int | None
    locked_until: datetime | None
    locked_by: str | None
    state_size: int | None
    state_updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class SettleReport:
    """The result of a settle or renew call for each token.

    A call with a single token raises LockLost instead of reporting it as lost; `require_all()` does so for a list.

    settled: (token, sequence number) of the tokens whose lock was valid.
    lost:    tokens whose lock had ended (SB-070, SB-071): nothing was changed for them.
    locked_until, lock_duration: after a renew: when the locks in `settled` end, and their duration.
    lost_sessions: (token, entity, session) of those in `lost` whose session lock had ended (SB-117).
    """

    settled: tuple[tuple[UUID, int], ...]
    lost: tuple[UUID, ...]
    locked_until: datetime | None = None
    lock_duration: timedelta | None = None
    lost_sessions: tuple[tuple[UUID, str, str], ...] = ()

    def require_all(self) -> SettleReport:
        """Raise LockLost if any lock was lost, or SessionLockLost if it was a session's; else return self."""
        for token, entity, session_id in self.lost_sessions:
            if token in self.lost:
                raise SessionLockLost(entity, session_id)
        if self.lost:
            raise LockLost(self.lost)
        return self


def sequence_number_of(token: UUID) -> int:
    """The sequence number in the last 60 bits of a lock token.

    A token thus identifies its message, and settling needs no index on tokens, which each lock would have to update.
    """
    return token.int & ((1 << 60) - 1)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue with the service's defaults. None: never, or not set.

    forward_to, forward_dead_lettered_messages_to: paths of the same namespace (SB-170, SB-178).
    expires_whole_sessions: one expired message expires its whole session (SB-037, SB-901).
    drops_locks_on_change: a change of the entity ends its locks (SB-072, SB-907).
    """

    lock_duration: timedelta = timedelta(minutes=1)
    max_delivery_count: int = 10
    default_message_time_to_live: timedelta | None = None
    dead_lettering_on_message_expiration: bool = False
    auto_delete_on_idle: timedelta | None = None
    requires_session: bool = False
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_size_in_megabytes: int = 1024
    max_message_size_in_kilobytes: int = 256
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    expiry_mode: ExpiryMode = ExpiryMode.EAGER
    expires_whole_sessions: bool = True
    drops_locks_on_change: bool = False
    history_level: HistoryLevel = HistoryLevel.FULL
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic with the service's defaults. None: never, or not set."""

    default_message_time_to_live: timedelta | None = None
    auto_delete_on_idle: timedelta | None = None
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    max_size_in_megabytes: int = 1024
    max_message_size_in_kilobytes: int = 256
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    history_level: HistoryLevel = HistoryLevel.FULL
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """The settings of a subscription with the service's defaults; see QueueSettings for those in common.

    dead_lettering_on_filter_evaluation_exceptions: messages whose rules raise an error are dead-lettered (SB-218).
    """

    lock_duration: timedelta = timedelta(minutes=1)
    max_delivery_count: int = 10
    default_message_time_to_live: timedelta | None = None
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    auto_delete_on_idle: timedelta | None = None
    requires_session: bool = False
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    expiry_mode: ExpiryMode = ExpiryMode.EAGER
    expires_whole_sessions: bool = True
    drops_locks_on_change: bool = False
    history_level: HistoryLevel = HistoryLevel.FULL
    hidden: bool = False


Tokens = UUID | Sequence[UUID]  # one lock token or a list of them; a token may also be given as a string


def is_one_token(tokens: Tokens | str | Sequence[str]) -> bool:
    """Whether a single token was given rather than a list: a lost lock is then an error."""
    return isinstance(tokens, (UUID, str))


def unique_tokens(tokens: Tokens | str | Sequence[str]) -> list[UUID]:
    """The tokens as UUIDs without duplicates, in the order given. Raises InvalidArgument for an invalid UUID."""
    given: Any = [tokens] if is_one_token(tokens) else tokens
    try:
        tokens = [t if isinstance(t, UUID) else UUID(t) for t in given]
    except (ValueError, AttributeError, TypeError) as exc:
        raise InvalidArgument("lock_token", "must be a UUID as a receive returned it, or a list of them") from exc
    return list({t.int: t for t in tokens}.values())  # hashing a UUID itself is slow
