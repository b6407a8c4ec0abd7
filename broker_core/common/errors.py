"""The broker's errors: one class for each condition that a caller can act on.

Each has attributes with the values involved; `str(exc)` says what was wrong and what to do. Each has a tracking id, which is
also logged, and says whether a retry can succeed (SB-001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cached_property
from typing import ClassVar


class BrokerError(Exception):
    """Base of all errors. retryable: whether the same call can succeed later without any change. where: the place in an imported
    file that caused the error. advice: what to do, in a sentence or two; empty if the message already says so."""

    retryable = False
    where = ""
    new_tracking_id: ClassVar[Callable[[], str]] = lambda: ""  # set by store/process.py: this package is pure

    def __init__(self, message: str, advice: str = ""):
        super().__init__(message)
        self.message = message
        self.advice = advice

    @cached_property
    def tracking_id(self) -> str:
        """Identifies this occurrence of the error, also in the log."""
        return type(self).new_tracking_id()

    def __str__(self) -> str:
        return self.message


class InvalidArgument(BrokerError):
    """A value that cannot be accepted. name: of the argument; problem: what is wrong with the value and what is allowed."""

    def __init__(self, name: str, problem: str):
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


class InvalidFilter(InvalidArgument):
    """A filter or an action that cannot be parsed (SB-F01). Nothing is stored.

    what: "filter" or "action". column: of the first unexpected character, counted from 1. found, expected: at that column.
    """

    def __init__(self, what: str, text: str, position: int, found: str, expected: str):
        self.column, self.found, self.expected = position + 1, found, expected
        super().__init__(what, f"column {self.column}: found {found}, expected {expected}{_excerpt(text, position)}")


def _excerpt(text: str, position: int, around: int = 16) -> str:
    """The text around a position, with a caret before it."""
    if not text:
        return ""
    before, after = text[max(0, position - around) : position], text[position : position + around]
    start, end = "..." if position > around else "", "..." if position + around < len(text) else ""
    return f", in: {start}{before}^{after}{end}"


class FilterError(InvalidArgument):
    """A filter of messages that cannot be parsed (reads/filters.py). position: of the problem in the text, from 0."""

    def __init__(self, position: int, problem: str):
        super().__init__("filter", problem)
        self.position, self.message = position, f"filter: at character {position + 1}: {problem}"


class FilterEvaluationError(Exception):
    """A filter or an action that cannot be evaluated for a message (SB-218). It affects one subscription, never the sender."""


class NotAllowed(BrokerError):
    """The operation is not supported here, whatever the values (SB-013, SB-089)."""


class LimitReached(NotAllowed):
    """There are as many entities, rules or policies as there can be (SB, section 2.4). Nothing was created."""


class NotAuthorized(BrokerError):
    """The actor lacks a right.

    refusal: (actor, right, entity) -> what is refused, as a sentence. A site whose users have roles sets it to one that names
    the role.
    """

    refusal: ClassVar[Callable[[str, str, str], str]] = "{} does not have the right {} on {}.".format

    def __init__(self, actor: str, right: str, entity: str):
        super().__init__(f"{type(self).refusal(actor, right, entity)} Ask an administrator for access.")
        self.actor, self.right, self.entity = actor, right, entity


class EntityNotFound(BrokerError):
    """The entity does not exist, or is being deleted (SB-240). Clients match the beginning of the message.

    what: the kind of object; for a namespace of a known family, that family's noun.
    """

    def __init__(self, entity: str, what: str = "messaging entity"):
        super().__init__(f"The {what} '{entity}' could not be found. Check the name or create it first.")
        self.entity, self.what = entity, what


class EntityExists(BrokerError):
    """An entity of this name exists; names are compared case-insensitively. what: as in EntityNotFound."""

    def __init__(self, entity: str, what: str = "messaging entity"):
        super().__init__(f"The {what} '{entity}' already exists. Change it or choose another name.")
        self.entity, self.what = entity, what


class EntityDisabled(BrokerError):
    """The entity's status forbids it (SB-231 to SB-233)."""

    def __init__(self, entity: str, status: str, operation: str):
        super().__init__(
            f"'{entity}' is {status} and does not accept {operation}. An administrator can set its status to Active."
        )
        self.entity, self.status, self.operation = entity, status, operation


class EntityProtected(BrokerError):
    """Deleting is refused until the protection is removed. entities: their addresses."""

    def __init__(self, entities: Iterable[str]):
        self.entities = tuple(entities)
        many = len(self.entities) > 1
        listed = ", ".join(f"'{entity}'" for entity in self.entities[:3]) + (" ..." if len(self.entities) > 3 else "")
        super().__init__(
            f"{listed} {'are' if many else 'is'} protected from deletion. Nothing was deleted; remove the protection in the "
            "settings first."
        )


class LockLost(BrokerError):
    """The lock ended, the message was already settled, or its entity was deleted (SB-070, SB-071, SB-076)."""

    def __init__(self, tokens: Iterable[object]):
        self.tokens = tuple(tokens)
        listed = ", ".join(str(t) for t in self.tokens[:3]) + (" ..." if len(self.tokens) > 3 else "")
        super().__init__(
            f"The lock supplied is invalid: {listed}. It expired, or the message was already settled. "
            "Nothing was changed; receive the message again."
        )


class SessionLockLost(BrokerError):
    """The token no longer locks the session: the lock ended, or the session was closed (SB-117, SB-119)."""

    def __init__(self, entity: str, session_id: str):
        super().__init__(
            f"The session lock has expired: '{session_id}' of '{entity}' is no longer held. "
            "Nothing was changed; accept the session again."
        )
        self.entity, self.session_id = entity, session_id


class SessionCannotBeLocked(BrokerError):
    """Another receiver holds the session (SB-112). A retry succeeds once it is closed or its lock has ended."""

    retryable = True

    def __init__(self, entity: str, session_id: str):
        super().__init__(
            f"The session '{session_id}' of '{entity}' cannot be accepted: another receiver holds it. Try again later."
        )
        self.entity, self.session_id = entity, session_id


class NoSessionAvailable(BrokerError):
    """No unlocked session had messages to deliver within the given time (SB-113). waited: seconds."""

    retryable = True

    def __init__(self, entity: str, waited: float):
        super().__init__(
            f"No session of '{entity}' with messages to deliver was available within {waited:g} seconds. "
            "Try again or wait longer."
        )
        self.entity, self.waited = entity, waited


class MessageNotFound(BrokerError):
    """A sequence number that is not there in the state asked for (SB-048, SB-085)."""

    def __init__(self, entity: str, sequence_numbers: Iterable[int], what: str):
        self.entity, self.sequence_numbers = entity, tuple(sequence_numbers)
        listed = ", ".join(str(n) for n in self.sequence_numbers[:5]) + (" ..." if len(self.sequence_numbers) > 5 else "")
        super().__init__(f"'{entity}' has no {what} with the sequence number {listed}. Nothing was changed.")


class MessageHeld(BrokerError):
    """A message that cannot be edited while somebody holds it (docs/design.md D22). holder: None: unknown. until: when the lock
    ends; None: it does not end by itself. hold: what holds it: "lock", "lease" or "delivery"."""

    retryable = True

    def __init__(self, entity: str, sequence_number: int, hold: str, holder: str | None, until: datetime | None):
        end = f" until {until:%H:%M:%S} UTC" if until else ""
        super().__init__(
            f"Message {sequence_number} of '{entity}' is held by {holder or 'a receiver'}{end}. Nothing was changed; release its "
            f"{hold} first."
        )
        self.entity, self.sequence_number, self.holder, self.until = entity, sequence_number, holder, until


class MessageChanged(BrokerError):
    """A message that was received or edited since it was read, so that an edit could undo a change (docs/design.md D22)."""

    def __init__(self, entity: str, sequence_number: int):
        super().__init__(
            f"Message {sequence_number} of '{entity}' has changed since you opened it. Nothing was changed; open it again."
        )
        self.entity, self.sequence_number = entity, sequence_number


class MessageTooLarge(BrokerError):
    """A message or batch over the limit (SB-007). size and limit in bytes."""

    def __init__(self, what: str, size: int, limit: int):
        super().__init__(f"The {what} has {size:,} bytes; at most {limit:,} are allowed. Nothing was stored.")
        self.what, self.size, self.limit = what, size, limit


class QuotaExceeded(BrokerError):
    """The entity is full (SB-012). limit: in bytes. A retry succeeds once messages have been removed."""

    retryable = True

    def __init__(self, entity: str, limit: int):
        super().__init__(
            f"'{entity}' has reached its size of {limit // 2**20:,} MB. Receive or purge messages, or raise MaxSizeInMegabytes."
        )
        self.entity, self.limit = entity, limit


class NamespaceFull(QuotaExceeded):
    """The namespace of the entity is full (SB-012). limit: in bytes."""

    def __init__(self, namespace: str, limit: int):
        BrokerError.__init__(
            self,
            f"The namespace '{namespace}' has reached its size of {limit // 2**20:,} MB. Receive or purge messages in it, or "
            "raise its maximum size.",
        )
        self.entity, self.limit = namespace, limit


class BrokerUnavailable(BrokerError):
    """The database could not be reached or ended the call; it is unknown whether a send was stored (SB-001)."""

    retryable = True


class ServerBusy(BrokerError):
    """Too many connections, a lock wait or a deadlock: nothing was changed."""

    retryable = True


class StorageFull(BrokerError):
    """The database's disk is full: nothing was stored. A retry succeeds once there is space."""

    retryable = True


class PreviewOutdated(BrokerError):
    """The effects differ from those previewed, so nothing was changed. what: the difference."""

    def __init__(self, entity: str, what: str):
        super().__init__(f"'{entity}' has changed since the preview: {what}. Nothing was changed; preview again.")
        self.entity, self.what = entity, what


class TransactionEnded(BrokerError):
    """Using a transaction after its end (SB-162)."""

    def __init__(self, how: str):
        super().__init__(f"The transaction {how}. Start a new one.")
