"""The values of Service Bus: messages, sessions, and the settings of entities.

Instants are aware UTC datetimes, durations are timedeltas; a missing instant or duration is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from broker_core.common.lock_tokens import SettleReport
from broker_core.common.types import BodyKind, EntityAddress, EntityStatus, ExpiryMode, HistoryLevel, MessageState

from .amqp.sections import AmqpSections
from .amqp.types import MessageId
from .kept_properties import KeptValue


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
        from broker_core.service_bus.rules.amqp.properties import decode_properties

        return decode_properties(self.stored_properties)

    @property
    def stored_properties(self) -> dict[str, list]:
        """As raw_application_properties, with the dead-letter reason and description (SB-082)."""
        properties = dict(self.raw_application_properties)
        if self.dead_letter_reason is not None:
            properties["DeadLetterReason"] = ["string", self.dead_letter_reason]
        if self.dead_letter_description is not None:
            properties["DeadLetterErrorDescription"] = ["string", self.dead_letter_description]
        return properties

    @cached_property
    def amqp(self) -> AmqpSections | None:
        """What the sender gave beside the other fields; None: nothing."""
        from broker_core.service_bus.rules.amqp.sections import AmqpSections

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
class QueueSettings:
    """The settings of a queue with the service's defaults. None: never, or not set.

    forward_to, forward_dead_lettered_messages_to: paths of the same namespace (SB-170, SB-178).
    expires_whole_sessions: one expired message expires its whole session (SB-037, SB-901).
    expiry_mode: when expired messages are removed (SB-902). drops_locks_on_change: a change of the entity ends its locks (SB-072,
        SB-907). peek_shows_default_expiry: a peek also shows the expiry of a message without a time-to-live of its own (SB-903).
        None: as the namespace behaves.
    kept_properties: without effect, by the names of the service, where they differ from the defaults (SB-940).
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
    expiry_mode: ExpiryMode | None = None
    expires_whole_sessions: bool = True
    drops_locks_on_change: bool | None = None
    peek_shows_default_expiry: bool | None = None
    history_level: HistoryLevel = HistoryLevel.FULL
    hidden: bool = False
    kept_properties: Mapping[str, KeptValue] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic with the service's defaults; see QueueSettings for those in common. None: never, or not set."""

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
    kept_properties: Mapping[str, KeptValue] = field(default_factory=dict, hash=False)


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
    expiry_mode: ExpiryMode | None = None
    expires_whole_sessions: bool = True
    drops_locks_on_change: bool | None = None
    peek_shows_default_expiry: bool | None = None
    history_level: HistoryLevel = HistoryLevel.FULL
    hidden: bool = False
    kept_properties: Mapping[str, KeptValue] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class GivenPolicy:
    """A shared-access policy as it is wanted. A key that is None is kept, or made for a new policy."""

    name: str
    send: bool = False
    listen: bool = False
    manage: bool = False
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)
