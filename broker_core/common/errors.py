"""What the broker refuses, as one class for each thing a caller can act on.

Each carries values rather than prose to parse; `str(exc)` says what was wrong and what to do. Every one has a tracking id
(it is in the log, too) and says whether trying the same again can help (SB-001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import ClassVar


class BrokerError(Exception):
    """Base of all refusals. retryable: whether the same call can succeed later without any change. where: the place in a file
    that asked for what is refused. advice: what to do about it, in a sentence or two; empty where the message says so itself."""

    retryable = False
    where = ""
    new_tracking_id: ClassVar[Callable[[], str]] = lambda: ""  # set by store/process.py: the rules make nothing up

    def __init__(self, message: str, advice: str = ""):
        super().__init__(message)
        self.message = message
        self.advice = advice

    @cached_property
    def tracking_id(self) -> str:
        """Names this one refusal, in the log as well."""
        return type(self).new_tracking_id()

    def __str__(self) -> str:
        return self.message


class InvalidArgument(BrokerError):
    """A value that cannot be accepted. name: which one; problem: what is wrong with it and what would be right."""

    def __init__(self, name: str, problem: str):
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


class InvalidFilter(InvalidArgument):
    """A filter or an action that cannot be understood (SB-F01): nothing of it is kept.

    what: "filter" or "action". column: of the first character that does not fit, counted from 1. found, expected: what stands
    there, and what would be right.
    """

    def __init__(self, what: str, text: str, position: int, found: str, expected: str):
        self.column, self.found, self.expected = position + 1, found, expected
        super().__init__(what, f"column {self.column}: found {found}, expected {expected}{_excerpt(text, position)}")


def _excerpt(text: str, position: int, around: int = 16) -> str:
    """The text about a position, with a caret before it."""
    if not text:
        return ""
    before, after = text[max(0, position - around) : position], text[position : position + around]
    start, end = "..." if position > around else "", "..." if position + around < len(text) else ""
    return f", in: {start}{before}^{after}{end}"


class FilterEvaluationError(Exception):
    """A filter or an action that has no answer for a message (SB-218). It concerns one subscription, never the sender."""


class NotAllowed(BrokerError):
    """The operation makes no sense here, whatever the values (SB-013, SB-089)."""


class NotAuthorized(BrokerError):
    """The actor lacks a right."""

    def __init__(self, actor: str, right: str, entity: str):
        super().__init__(f"{actor} does not have the right {right} on {entity}. Ask an administrator for access.")
        self.actor, self.right, self.entity = actor, right, entity


class EntityNotFound(BrokerError):
    """No such entity; also while it is being deleted (SB-240). The sentence is one that clients look for.

    what: what was looked for; a namespace is called by its family's word where the family is known.
    """

    def __init__(self, entity: str, what: str = "messaging entity"):
        super().__init__(f"The {what} '{entity}' could not be found. Check the name or create it first.")
        self.entity = entity


class EntityExists(BrokerError):
    """Creating what is there already; names are compared without case. what: as of EntityNotFound."""

    def __init__(self, entity: str, what: str = "messaging entity"):
        super().__init__(f"The {what} '{entity}' already exists. Change it or choose another name.")
        self.entity = entity


class EntityDisabled(BrokerError):
    """The entity's status forbids it (SB-231 to SB-233)."""

    def __init__(self, entity: str, status: str, operation: str):
        super().__init__(
            f"'{entity}' is {status} and does not accept {operation}. An administrator can set its status to Active."
        )
        self.entity, self.status, self.operation = entity, status, operation


class LockLost(BrokerError):
    """The lock ended, the message was settled already, or its entity is gone (SB-070, SB-071, SB-076)."""

    def __init__(self, tokens: Iterable[object]):
        self.tokens = tuple(tokens)
        shown = ", ".join(str(t) for t in self.tokens[:3]) + (" ..." if len(self.tokens) > 3 else "")
        super().__init__(
            f"The lock supplied is invalid: {shown}. It expired, or the message was already settled. "
            "Nothing was changed; receive the message again."
        )


class SessionLockLost(BrokerError):
    """The session is not held with this token any more: its lock ended, or it was closed (SB-117, SB-119)."""

    def __init__(self, entity: str, session_id: str):
        super().__init__(
            f"The session lock has expired: '{session_id}' of '{entity}' is no longer held. "
            "Nothing was changed; accept the session again."
        )
        self.entity, self.session_id = entity, session_id


class SessionCannotBeLocked(BrokerError):
    """Another receiver holds the session (SB-112). Trying again helps once it is closed or its lock ends."""

    retryable = True

    def __init__(self, entity: str, session_id: str):
        super().__init__(
            f"The session '{session_id}' of '{entity}' cannot be accepted: another receiver holds it. Try again later."
        )
        self.entity, self.session_id = entity, session_id


class NoSessionAvailable(BrokerError):
    """No session with something to deliver was free in the time given (SB-113). waited: seconds."""

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
        shown = ", ".join(str(n) for n in self.sequence_numbers[:5]) + (" ..." if len(self.sequence_numbers) > 5 else "")
        super().__init__(f"'{entity}' has no {what} with the sequence number {shown}. Nothing was changed.")


class MessageTooLarge(BrokerError):
    """A message or batch over the limit (SB-007). size and limit in bytes."""

    def __init__(self, what: str, size: int, limit: int):
        super().__init__(f"The {what} has {size:,} bytes; at most {limit:,} are allowed. Nothing was stored.")
        self.what, self.size, self.limit = what, size, limit


class QuotaExceeded(BrokerError):
    """The entity is full (SB-012). limit in bytes. Trying again helps once messages have been received."""

    retryable = True

    def __init__(self, entity: str, limit: int):
        super().__init__(
            f"'{entity}' has reached its size of {limit // 2**20:,} MB. Receive or purge messages, or raise MaxSizeInMegabytes."
        )
        self.entity, self.limit = entity, limit


class BrokerUnavailable(BrokerError):
    """The database could not be reached or ended the call; what happened to a send then is not known (SB-001)."""

    retryable = True


class ServerBusy(BrokerError):
    """Too many connections, a lock wait or a deadlock: nothing was changed."""

    retryable = True


class StorageFull(BrokerError):
    """The database's disk is full: nothing was stored. Trying again helps once there is room."""

    retryable = True


class PreviewOutdated(BrokerError):
    """What was previewed is no longer what would happen. what: how it differs now. Nothing was changed; preview again."""

    def __init__(self, entity: str, what: str):
        super().__init__(f"'{entity}' has changed since the preview: {what}. Nothing was changed; preview again.")
        self.entity, self.what = entity, what


class TransactionEnded(BrokerError):
    """Using a transaction after its end (SB-162)."""

    def __init__(self, how: str):
        super().__init__(f"The transaction {how}. Start a new one.")
