"""Errors of storage queues, each with the code, status and details of the service's response.

A class also derives from the broker's general error of the same meaning, if there is one, so that handlers of that catch it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from broker_core.common import errors


class StorageRefusal(errors.BrokerError):
    """code, status: of the service's response; each class that is raised has a code. details: its extra elements, by name."""

    code: ClassVar[str]
    status = 400
    details: Mapping[str, str] = {}


class InvalidResourceName(StorageRefusal, errors.InvalidArgument):
    """A queue's name with invalid characters."""

    code = "InvalidResourceName"

    def __init__(self, name: str):
        super().__init__(
            "queue", f"{name!r} must be lower-case letters, digits and single dashes, with a letter or digit at both ends"
        )


class OutOfRangeInput(StorageRefusal, errors.InvalidArgument):
    """A queue's name that is too short or too long."""

    code = "OutOfRangeInput"

    def __init__(self, name: str, minimum: int, maximum: int):
        count = f"{len(name):,} character{'s' * (len(name) != 1)}"
        super().__init__("queue", f"{name!r} has {count}; {minimum} to {maximum} are allowed")


class OutOfRangeQueryParameterValue(StorageRefusal, errors.InvalidArgument):
    """A number outside its range. name: of the request parameter."""

    code = "OutOfRangeQueryParameterValue"

    def __init__(self, name: str, value: Any, minimum: int, maximum: int):
        super().__init__(name, f"{value} is out of range: {minimum} to {maximum} are allowed")
        self.details = {
            "QueryParameterName": name,
            "QueryParameterValue": str(value),
            "MinimumAllowed": str(minimum),
            "MaximumAllowed": str(maximum),
        }


class InvalidQueryParameterValue(StorageRefusal, errors.InvalidArgument):
    """A value that is invalid, or inconsistent with another parameter. reason: what follows the value in a sentence."""

    code = "InvalidQueryParameterValue"

    def __init__(self, name: str, value: Any, reason: str):
        super().__init__(name, f"{value!r} {reason}")
        self.details = {"QueryParameterName": name, "QueryParameterValue": str(value), "Reason": reason}


class MissingRequiredQueryParameter(StorageRefusal, errors.InvalidArgument):
    """A required parameter is missing (QS-054)."""

    code = "MissingRequiredQueryParameter"

    def __init__(self, name: str):
        super().__init__(name, "is required")
        self.details = {"QueryParameterName": name}


class InvalidHeaderValue(StorageRefusal, errors.InvalidArgument):
    """A header of the request that is missing or cannot be read. problem: what follows the value, if there is one, in a
    sentence."""

    code = "InvalidHeaderValue"

    def __init__(self, name: str, value: str, problem: str):
        super().__init__(name, f"{value[:80]!r} {problem}" if value else problem)
        self.details = {"HeaderName": name, "HeaderValue": value[:80]}


class InvalidMarker(StorageRefusal, errors.InvalidArgument):
    """A marker of a list of queues that this server has not made."""

    code = "InvalidMarker"

    def __init__(self, marker: str):
        super().__init__("marker", f"{marker[:80]!r} is not a marker of this server: use the NextMarker of the previous page")


class CorsPreflightFailure(StorageRefusal):
    """No CORS rule allows what a browser asks for."""

    code = "CorsPreflightFailure"
    status = 403

    def __init__(self, problem: str):
        super().__init__(f"The CORS rules of the account do not allow this request: {problem}")
        self.details = {"MessageDetails": problem}


class InvalidMetadata(StorageRefusal, errors.InvalidArgument):
    """Metadata whose names or values cannot be sent as headers."""

    code = "InvalidMetadata"

    def __init__(self, problem: str):
        super().__init__("metadata", problem)


class EmptyMetadataKey(InvalidMetadata):
    """A metadata pair without a name."""

    code = "EmptyMetadataKey"

    def __init__(self) -> None:
        super().__init__("a name is empty; it must start with a letter or an underscore")


class MetadataTooLarge(InvalidMetadata):
    """The metadata pairs are too large in total."""

    code = "MetadataTooLarge"

    def __init__(self, size: int, limit: int):
        super().__init__(f"names and values have {size:,} bytes together; at most {limit:,} are allowed")


class InvalidXmlDocument(StorageRefusal, errors.InvalidArgument):
    """A text with a character that XML cannot represent (QS-912)."""

    code = "InvalidXmlDocument"

    def __init__(self, position: int, character: str):
        super().__init__("text", f"the character U+{ord(character):04X} at position {position} cannot be in a message's text")


class InvalidAccessPolicy(StorageRefusal, errors.InvalidArgument):
    """Stored access policies that a queue cannot have (QS-095)."""

    code = "InvalidXmlDocument"

    def __init__(self, problem: str):
        super().__init__("access_policies", problem)


class InvalidServiceProperties(StorageRefusal, errors.InvalidArgument):
    """Properties that a queue service cannot have. name: of the element."""

    code = "InvalidXmlDocument"


class RequestBodyTooLarge(StorageRefusal, errors.MessageTooLarge):
    """A text over the limit (QS-010, QS-905)."""

    code = "RequestBodyTooLarge"
    status = 413

    def __init__(self, size: int, limit: int):
        super().__init__("text", size, limit)
        self.details = {"MaxLimit": str(limit)}


class PopReceiptMismatch(StorageRefusal):
    """The message exists, but the receipt is not its current one (QS-061, QS-902)."""

    code = "PopReceiptMismatch"

    def __init__(self, queue: str, message_id: str):
        super().__init__(
            f"The pop receipt is not the current one of message {message_id} in '{queue}': it was received or updated since. "
            "Nothing was changed."
        )
        self.queue, self.message_id = queue, message_id


class MessageNotFound(StorageRefusal, errors.MessageNotFound):
    """No such message: never put, deleted, or expired (QS-050, QS-052, QS-061)."""

    code = "MessageNotFound"
    status = 404

    def __init__(self, queue: str, message_id: str):
        errors.BrokerError.__init__(self, f"'{queue}' has no message {message_id}, or it has expired. Nothing was changed.")
        self.entity, self.message_id, self.sequence_numbers = queue, message_id, ()


class QueueNotFound(StorageRefusal, errors.EntityNotFound):
    """No such queue (QS-012, QS-028)."""

    code = "QueueNotFound"
    status = 404

    def __init__(self, queue: str):
        errors.BrokerError.__init__(self, f"The queue '{queue}' does not exist. Check the name or create it first.")
        self.entity = queue


class QueueDisabled(StorageRefusal, errors.EntityDisabled):
    """An operator has paused puts, or gets (QS-926)."""

    code = "QueueDisabled"
    status = 409  # type: ignore[assignment]  # here of the response

    def __init__(self, queue: str, status: str, operation: str):
        errors.BrokerError.__init__(
            self, f"The queue '{queue}' has been disabled by the administrator: {operation} are paused. Nothing was changed."
        )
        self.entity, self.operation = queue, operation


class AccountNotFound(StorageRefusal, errors.EntityNotFound):
    """No such account."""

    code = "ResourceNotFound"
    status = 404

    def __init__(self, account: str):
        errors.BrokerError.__init__(self, f"The storage account '{account}' does not exist. Check the name or create it first.")
        self.entity = account


class QueueAlreadyExists(StorageRefusal, errors.EntityExists):
    """A queue of this name exists with different metadata (QS-085)."""

    code = "QueueAlreadyExists"
    status = 409

    def __init__(self, queue: str):
        errors.BrokerError.__init__(self, f"The queue '{queue}' already exists with different metadata. Nothing was changed.")
        self.entity = queue


def beyond_expiry(seconds: Any, expires_at: datetime) -> InvalidQueryParameterValue:
    """The error for hiding a message until after its expiry, on a queue with strict_visibility (QS-903)."""
    return InvalidQueryParameterValue(
        "visibilitytimeout", seconds, f"would hide the message until after its expiration time, {expires_at.isoformat()}"
    )


class AuthenticationFailed(StorageRefusal, errors.NotAuthorized):
    """A request without a valid signature: wrong key, expired, not yet valid, or none at all. detail: which check failed."""

    code = "AuthenticationFailed"
    status = 403

    def __init__(self, detail: str):
        errors.BrokerError.__init__(self, f"The request could not be authenticated: {detail}")
        self.details = {"AuthenticationErrorDetail": detail}


class SecondaryIsReadOnly(StorageRefusal, errors.NotAllowed):
    """A request to the secondary endpoint of an account that is not only a read."""

    code = "InsufficientAccountPermissions"
    status = 403

    def __init__(self, account: str):
        errors.BrokerError.__init__(
            self, f"The secondary endpoint of the account '{account}' is read-only. Use the primary endpoint for this request."
        )


class InvalidAuthenticationInfo(StorageRefusal, errors.InvalidArgument):
    """An Authorization header, or the date of a signed request, that cannot be read."""

    code = "InvalidAuthenticationInfo"

    def __init__(self, problem: str):
        errors.InvalidArgument.__init__(self, "Authorization", problem)
        self.details = {"AuthenticationErrorDetail": problem}


class AuthorizationMismatch(StorageRefusal, errors.NotAuthorized):
    """A valid shared access signature that does not permit the request."""

    status = 403

    def __init__(self, problem: str):
        errors.BrokerError.__init__(self, f"The shared access signature does not permit this request: {problem}")


class AuthorizationPermissionMismatch(AuthorizationMismatch):
    """It lacks the permission of the operation."""

    code = "AuthorizationPermissionMismatch"


class AuthorizationResourceTypeMismatch(AuthorizationMismatch):
    """It is not for this type of resource: service, queues or messages."""

    code = "AuthorizationResourceTypeMismatch"


class AuthorizationServiceMismatch(AuthorizationMismatch):
    """It is for other services than queues."""

    code = "AuthorizationServiceMismatch"


class AuthorizationProtocolMismatch(AuthorizationMismatch):
    """It is for another protocol, such as https only."""

    code = "AuthorizationProtocolMismatch"


class AuthorizationSourceIPMismatch(AuthorizationMismatch):
    """It is for other addresses of clients."""

    code = "AuthorizationSourceIPMismatch"
