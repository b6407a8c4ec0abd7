"""The status and sub code of each error of the administration API (SB, sections 7.2 and 7.7), in one table.

A sub code says more than the status; JavaScript's client takes 409 with 40901 for no conflict of names. If the service documents
only a group, the number within the group is Vitrine's choice.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_core.common import errors
from broker_core.service_bus.rules.sas import TokenRefused
from broker_core.wire.failed_authentications import TooManyFailedAuthentications
from broker_core.wire.http.errors import BodyTooLarge, ConnectionClosed, MethodNotAllowed, UnknownResource
from broker_core.wire.published_keys import PublishedKeyRefused
from broker_core.wire.xml import InvalidXml


class Refusal(NamedTuple):
    status: int
    sub_code: int


INTERNAL = Refusal(500, 50000)

TABLE: dict[type[BaseException], Refusal] = {
    errors.InvalidArgument: Refusal(400, 40000),
    errors.InvalidFilter: Refusal(400, 40000),
    errors.FilterError: Refusal(400, 40000),
    errors.NotAllowed: Refusal(400, 40000),
    errors.LimitReached: Refusal(403, 40300),
    errors.NotAuthorized: Refusal(401, 40105),
    errors.EntityNotFound: Refusal(404, 40400),
    errors.EntityExists: Refusal(409, 40900),
    errors.PreviewOutdated: Refusal(409, 40901),
    errors.EntityDisabled: Refusal(403, 40301),
    errors.EntityProtected: Refusal(403, 40301),
    errors.LockLost: Refusal(404, 40401),
    errors.SessionLockLost: Refusal(404, 40402),
    errors.SessionCannotBeLocked: Refusal(409, 40904),
    errors.NoSessionAvailable: Refusal(408, 40800),
    errors.TransactionEnded: Refusal(409, 40902),
    errors.MessageNotFound: Refusal(404, 40400),
    errors.MessageHeld: Refusal(409, 40904),
    errors.MessageChanged: Refusal(409, 40901),
    errors.MessageTooLarge: Refusal(403, 40300),
    errors.QuotaExceeded: Refusal(403, 40300),
    errors.NamespaceFull: Refusal(403, 40300),
    errors.ServerBusy: Refusal(503, 50004),
    errors.StorageFull: Refusal(503, 50003),
    errors.BrokerUnavailable: Refusal(503, 50002),
    errors.BrokerError: INTERNAL,
    TokenRefused: Refusal(401, TokenRefused.MISSING),
    PublishedKeyRefused: Refusal(403, 40302),
    TooManyFailedAuthentications: Refusal(429, 42900),
    UnknownResource: Refusal(404, 40400),
    MethodNotAllowed: Refusal(405, 40500),
    BodyTooLarge: Refusal(413, 41300),
    InvalidXml: Refusal(400, 40000),
    ConnectionClosed: Refusal(503, 50005),
}


def refusal_of(exc: BaseException) -> Refusal:
    """The table's row for an exception, by its nearest class; INTERNAL for other exceptions."""
    for cls in type(exc).__mro__:
        if row := TABLE.get(cls):
            return Refusal(row.status, exc.sub_code) if isinstance(exc, TokenRefused) else row
    return INTERNAL
