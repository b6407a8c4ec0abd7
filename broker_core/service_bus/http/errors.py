"""The AMQP condition, HTTP status and sub code of each error, in one table for all front ends.

The statuses are those documented for the runtime API (410 for a missing entity, 404 for a lost lock). Sub codes 40103 and 40106
are the service's (docs/http.md); if it documents only a group, the number within the group is Vitrine's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.common import errors
from broker_core.service_bus.rules.sas import TokenRefused
from broker_core.wire.failed_authentications import TooManyFailedAuthentications
from broker_core.wire.http.errors import BodyTooLarge, ConnectionClosed, MethodNotAllowed, UnknownResource
from broker_core.wire.published_keys import PublishedKeyRefused
from broker_core.wire.xml import InvalidXml


@dataclass(frozen=True, slots=True)
class WireError:
    """The representation of one kind of error."""

    amqp_condition: str
    status: int
    sub_code: int


INTERNAL = WireError("amqp:internal-error", 500, 50000)

TABLE: dict[type[BaseException], WireError] = {
    errors.InvalidArgument: WireError("com.microsoft:argument-error", 400, 40000),
    errors.InvalidFilter: WireError("com.microsoft:argument-error", 400, 40000),
    errors.FilterError: WireError("com.microsoft:argument-error", 400, 40000),
    errors.NotAllowed: WireError("amqp:not-allowed", 400, 40000),
    errors.LimitReached: WireError("amqp:resource-limit-exceeded", 403, 40300),
    errors.NotAuthorized: WireError("amqp:unauthorized-access", 401, 40105),
    errors.EntityNotFound: WireError("amqp:not-found", 410, 41000),
    errors.EntityExists: WireError("com.microsoft:entity-already-exists", 409, 40900),
    errors.PreviewOutdated: WireError("com.microsoft:precondition-failed", 412, 41200),
    errors.EntityDisabled: WireError("com.microsoft:entity-disabled", 403, 40301),
    errors.EntityProtected: WireError("amqp:not-allowed", 409, 40903),
    errors.LockLost: WireError("com.microsoft:message-lock-lost", 404, 40401),
    errors.SessionLockLost: WireError("com.microsoft:session-lock-lost", 404, 40402),
    errors.SessionCannotBeLocked: WireError("com.microsoft:session-cannot-be-locked", 409, 40901),
    errors.NoSessionAvailable: WireError("com.microsoft:timeout", 408, 40800),
    errors.TransactionEnded: WireError("amqp:transaction:unknown-id", 409, 40902),
    errors.MessageNotFound: WireError("com.microsoft:message-not-found", 404, 40400),
    errors.MessageHeld: WireError("com.microsoft:message-locked", 409, 40904),
    errors.MessageChanged: WireError("com.microsoft:precondition-failed", 412, 41200),
    errors.MessageTooLarge: WireError("amqp:link:message-size-exceeded", 403, 40300),
    errors.QuotaExceeded: WireError("amqp:resource-limit-exceeded", 403, 40300),
    errors.NamespaceFull: WireError("amqp:resource-limit-exceeded", 403, 40300),
    errors.ServerBusy: WireError("com.microsoft:server-busy", 503, 50004),
    errors.StorageFull: WireError("com.microsoft:server-busy", 503, 50003),
    errors.BrokerUnavailable: WireError("com.microsoft:server-busy", 503, 50002),
    errors.BrokerError: INTERNAL,
    TokenRefused: WireError("com.microsoft:auth-failed", 401, TokenRefused.MISSING),
    PublishedKeyRefused: WireError("amqp:unauthorized-access", 403, 40302),
    TooManyFailedAuthentications: WireError("com.microsoft:server-busy", 429, 42900),
    UnknownResource: WireError("amqp:not-found", 404, 40400),
    MethodNotAllowed: WireError("amqp:not-allowed", 405, 40500),
    BodyTooLarge: WireError("amqp:link:message-size-exceeded", 413, 41300),
    InvalidXml: WireError("com.microsoft:argument-error", 400, 40000),
    ConnectionClosed: WireError("amqp:connection:forced", 503, 50005),
}


def wire_error(exc: BaseException) -> WireError:
    """The table's row for an exception, by its nearest class; INTERNAL for other exceptions."""
    for cls in type(exc).__mro__:
        if row := TABLE.get(cls):
            return WireError(row.amqp_condition, row.status, exc.sub_code) if isinstance(exc, TokenRefused) else row
    return INTERNAL
