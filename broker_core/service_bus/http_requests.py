"""What the two HTTP APIs of Service Bus, of messages and of administration, have in common: who makes a request, and the answer
if it is refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar
from xml.sax.saxutils import escape

from broker_core.common.errors import BrokerError
from broker_core.wire import published_keys
from broker_core.wire.clients import MOST_TEXT
from broker_core.wire.failed_authentications import TooManyFailedAuthentications, failed_authentications, peer_of
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.errors import BodyTooLarge, MethodNotAllowed
from broker_core.wire.http.request import ClientGone, Request
from broker_core.wire.published_keys import is_from_page

from . import tokens
from .rules.sas import PUBLISHED_KEY, SCHEME, TokenRefused
from .tokens import Verified

if TYPE_CHECKING:
    R = TypeVar("R", bound=Request)

RETRY_AFTER_SECONDS = 2
MOST_DETAIL = 2000  # characters of the text of an error, which may repeat what the client gave
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_log = logging.getLogger(__name__)


class Refusal(Protocol):
    """The row of an error in the table of an API."""

    @property
    def status(self) -> int: ...

    @property
    def sub_code(self) -> int: ...


async def authenticate(
    request: Request, *, path: str, entity: str, namespace: str | None = None, header: str = "Authorization"
) -> Verified:
    """Whose token a request has, in this header. path: what it must cover. entity, namespace: as in `tokens.verify_token`.

    Raises TokenRefused with the reason, PublishedKeyRefused and TooManyFailedAuthentications.
    """
    text = _token_of(request, header)
    async with failed_authentications.limited(peer_of(request.client_ip, is_from_page=is_from_page(request)), _is_failure):
        verified = await tokens.verify_token(
            text, host=request.host, path=path, entity=entity, namespace=namespace, header=header
        )
        if verified.key == PUBLISHED_KEY:
            published_keys.require_allowed(request, lambda origin: False)
    return verified


async def answer_or_refuse(
    request: R, answer: Callable[[R], Awaitable[Answer]], refusal_of: Callable[[BrokerError], Refusal]
) -> Answer:
    """The answer to a request, or the Error document with the status and sub code that its API has for the error. What is no
    BrokerError is an internal error, whose cause is in the log under the tracking id."""
    try:
        return await answer(request)
    except BrokerError as exc:
        problem = exc
    except ClientGone:
        raise
    except Exception as exc:
        problem = BrokerError("Internal error. See the broker's log under the tracking id.")
        problem.__cause__ = exc
    return _refuse(problem, request, refusal_of(problem))


def _refuse(problem: BrokerError, request: Request, refusal: Refusal) -> Answer:
    if refusal.status >= 500:
        traceback = problem if refusal.status == 500 else None  # no traceback if the database is down
        _log.error("%s %s: %s (tracking id %s)", request.method, request.path, problem, problem.tracking_id, exc_info=traceback)
    return error_answer(problem, refusal, request.path)


def error_answer(exc: BrokerError, refusal: Refusal, path: str) -> Answer:
    """The Error document: Code, and a Detail with sub code, text, whether to retry, tracking id, path and time."""
    retry = "You can retry." if exc.retryable else "Retrying the same request does not help."
    text = str(exc).removesuffix(".")
    if len(text) > MOST_DETAIL:
        text = f"{text[:MOST_DETAIL]}..."
    detail = (
        f"SubCode={refusal.sub_code}. {text}. {retry} TrackingId:{exc.tracking_id}, SystemTracker:{path[:MOST_TEXT]}, "
        f"Timestamp:{datetime.now(UTC).isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    )
    body = f"<Error><Code>{refusal.status}</Code><Detail>{escape(_NO_XML.sub('?', detail))}</Detail></Error>"
    headers = [
        ("content-type", "application/xml; charset=utf-8"),
        ("vitrine-tracking-id", exc.tracking_id),
        ("vitrine-retryable", "true" if exc.retryable else "false"),
    ]
    return Answer(refusal.status, headers + _particular_headers(exc, refusal.status), body.encode())


def _particular_headers(exc: BrokerError, status: int) -> list[tuple[str, str]]:
    if status == 401:
        return [("www-authenticate", SCHEME)]
    if status == 503:
        return [("retry-after", str(RETRY_AFTER_SECONDS))]
    if isinstance(exc, TooManyFailedAuthentications):
        return [("retry-after", str(exc.retry_after))]
    if isinstance(exc, MethodNotAllowed):
        return [("allow", ", ".join(exc.allowed))]
    return [("connection", "close")] if isinstance(exc, BodyTooLarge) and exc.is_awaited else []


def _token_of(request: Request, header: str) -> str:
    """The value of a header; empty: there is none. Raises TokenRefused if there are several, of which a proxy and Vitrine could
    read different ones."""
    texts = [text for name, text in request.headers if name.lower() == header.lower()]
    if len(texts) > 1:
        raise TokenRefused(TokenRefused.MISSING, f"The request has {len(texts)} {header} headers. Send one.")
    return "".join(texts)


def _is_failure(problem: BaseException) -> bool:
    """Whether it was tried to authenticate: a request without a token, or with text that is none, is no guess."""
    return isinstance(problem, TokenRefused) and problem.sub_code != TokenRefused.MISSING
