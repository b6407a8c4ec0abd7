"""Cross-origin requests of browsers, as the account's CORS rules allow them."""

from __future__ import annotations

from broker_core.queue_storage.accounts import StorageAccount
from broker_core.queue_storage.rules import service_properties
from broker_core.queue_storage.rules.errors import CorsPreflightFailure, InvalidHeaderValue
from broker_core.wire.http.answer import Answer

from . import answers
from .request import Request

ORIGIN = "origin"
_METHOD, _HEADERS = "access-control-request-method", "access-control-request-headers"


def preflight(request: Request, account: StorageAccount) -> Answer:
    """The answer to OPTIONS. Raises InvalidHeaderValue without an origin or a method, CorsPreflightFailure."""
    origin, method = request.header(ORIGIN) or "", request.header(_METHOD) or ""
    for name, value in ((ORIGIN, origin), (_METHOD, method)):
        if not value:
            raise InvalidHeaderValue(name, "", "is required in a preflight request")
    asked = request.header(_HEADERS) or ""
    headers = [name for part in asked.split(",") if (name := part.strip())]
    rule = service_properties.rule_for(account.properties.cors, origin, method, headers)
    if rule is None:
        raise CorsPreflightFailure(f"no rule allows {method} with these headers from {origin}")
    allowed = {
        **_allowed(rule, origin),
        "access-control-allow-methods": method,
        "access-control-max-age": str(rule.max_age_seconds),
        **({"access-control-allow-headers": asked} if headers else {}),
    }
    return answers.answer(request, 200, headers=allowed)


def rule_of(request: Request, account: StorageAccount) -> service_properties.CorsRule | None:
    """The rule that allows a request of a page elsewhere; None: there is none, or it is not of a page."""
    origin = request.header(ORIGIN)
    return service_properties.rule_for(account.properties.cors, origin, request.method) if origin else None


def exposed(request: Request, account: StorageAccount, answer: Answer) -> list[tuple[str, str]]:
    """The headers that let a page read this answer; none without a rule. A rule for all origins does not vary by origin."""
    rule = rule_of(request, account)
    if rule is None:
        return [("vary", "Origin")] if account.properties.cors and request.header(ORIGIN) else []
    names = [name for name, _ in answer.headers if service_properties.matches(rule.exposed_headers, name)]
    return [
        *_allowed(rule, request.header(ORIGIN) or "").items(),
        *([("access-control-expose-headers", ",".join(names))] if names else []),
        *([] if service_properties.ANY in rule.origins else [("vary", "Origin")]),
    ]


def _allowed(rule: service_properties.CorsRule, origin: str) -> dict[str, str]:
    """Browsers take no wildcard for a request with credentials, so that one is sent only without them."""
    if service_properties.ANY in rule.origins:
        return {"access-control-allow-origin": service_properties.ANY}
    return {"access-control-allow-origin": origin, "access-control-allow-credentials": "true"}
