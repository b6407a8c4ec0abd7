"""The status and code of each error. Errors of the family carry their own (rules/errors.py); here are those of other parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker_core.common import errors
from broker_core.queue_storage.rules.errors import StorageRefusal
from broker_core.wire.failed_authentications import TooManyFailedAuthentications
from broker_core.wire.http.errors import BodyTooLarge, ConnectionClosed, MethodNotAllowed, UnknownResource
from broker_core.wire.published_keys import PublishedKeyRefused
from broker_core.wire.xml import InvalidXml


@dataclass(frozen=True, slots=True)
class WireError:
    """The representation of one kind of error. details: extra elements of the answer, by name."""

    status: int
    code: str
    details: Mapping[str, str] = field(default_factory=dict)


INTERNAL = WireError(500, "InternalError")

TABLE: dict[type[BaseException], WireError] = {
    errors.InvalidArgument: WireError(400, "InvalidInput"),
    errors.InvalidFilter: WireError(400, "InvalidInput"),
    errors.FilterError: WireError(400, "InvalidInput"),
    errors.NotAllowed: WireError(409, "OperationNotAllowed"),
    errors.LimitReached: WireError(403, "QuotaExceeded"),
    errors.NotAuthorized: WireError(403, "AuthorizationFailure"),
    errors.EntityNotFound: WireError(404, "ResourceNotFound"),
    errors.EntityExists: WireError(409, "ResourceAlreadyExists"),
    errors.PreviewOutdated: WireError(412, "ConditionNotMet"),
    errors.EntityDisabled: WireError(409, "QueueDisabled"),
    errors.EntityProtected: WireError(409, "QueueProtected"),
    errors.LockLost: WireError(400, "PopReceiptMismatch"),
    errors.SessionLockLost: WireError(400, "PopReceiptMismatch"),
    errors.SessionCannotBeLocked: WireError(409, "OperationNotAllowed"),
    errors.NoSessionAvailable: WireError(409, "OperationNotAllowed"),
    errors.TransactionEnded: WireError(409, "OperationNotAllowed"),
    errors.MessageNotFound: WireError(404, "MessageNotFound"),
    errors.MessageHeld: WireError(409, "OperationNotAllowed"),
    errors.MessageChanged: WireError(412, "ConditionNotMet"),
    errors.MessageTooLarge: WireError(413, "RequestBodyTooLarge"),
    errors.QuotaExceeded: WireError(403, "QuotaExceeded"),
    errors.NamespaceFull: WireError(403, "QuotaExceeded"),
    errors.ServerBusy: WireError(503, "ServerBusy"),
    errors.StorageFull: WireError(503, "ServerBusy"),
    errors.BrokerUnavailable: WireError(503, "ServerBusy"),
    errors.BrokerError: INTERNAL,
    UnknownResource: WireError(404, "ResourceNotFound"),
    MethodNotAllowed: WireError(405, "UnsupportedHttpVerb"),
    BodyTooLarge: WireError(413, "RequestBodyTooLarge"),
    PublishedKeyRefused: WireError(403, "AuthorizationFailure"),
    TooManyFailedAuthentications: WireError(503, "ServerBusy"),  # the code for throttling, after which SDKs retry
    ConnectionClosed: WireError(503, "ServerBusy"),
    InvalidXml: WireError(400, "InvalidXmlDocument"),
}


def wire_error(exc: BaseException) -> WireError:
    """The representation of an exception: its own, or that of its nearest class; INTERNAL for other exceptions."""
    if isinstance(exc, StorageRefusal):
        return WireError(exc.status, exc.code, exc.details)
    if isinstance(exc, BodyTooLarge):
        return WireError(413, "RequestBodyTooLarge", {"MaxLimit": str(exc.limit)})
    return next((row for cls in type(exc).__mro__ if (row := TABLE.get(cls))), INTERNAL)
