"""Published keys: those of the official emulators, which everybody knows. Who may use one (docs/design.md D23).

Setting WELL_KNOWN_KEYS: "loopback": peers on this machine, as RabbitMQ treats `guest`; "everywhere": any; "off": nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from broker_core.common.errors import BrokerError

from .http.request import Request
from .peers import is_loopback

LOOPBACK, EVERYWHERE, OFF = "loopback", "everywhere", "off"
_OF_PROXIES = ("x-forwarded-for", "forwarded", "x-real-ip", "via")
_OF_OTHER_PAGES = ("cross-site", "same-site")  # of Sec-Fetch-Site, which browsers send with each request


class PublishedKeyRefused(BrokerError):
    """A valid signature with a published key, by someone who may not use it. The text says what to do."""


def require_peer(client: str) -> None:
    """Raise PublishedKeyRefused unless a client at this address may use published keys."""
    allowed = _who()
    if allowed == OFF:
        raise PublishedKeyRefused(
            "Published keys are turned off here (WELL_KNOWN_KEYS=off). Replace the key, or use another one."
        )
    if allowed == LOOPBACK and not is_loopback(client):
        raise PublishedKeyRefused(
            f"A published key is accepted only from the machine that Vitrine runs on, and this request is from {client}. "
            "Use a key of your own, or set WELL_KNOWN_KEYS=everywhere in a network that you trust."
        )


def require_allowed(request: Request, allows_origin: Callable[[str], bool]) -> None:
    """Raise PublishedKeyRefused unless this request may use a published key: its peer must be allowed to, it must not come
    through a proxy, behind which everybody looks like the proxy's machine, and not from a web page elsewhere, also not from one
    whose name was pointed at this machine (DNS rebinding).

    allows_origin: whether a rule of CORS allows the request to pages of an origin.
    """
    require_peer(request.client_ip)
    if _who() == LOOPBACK and (header := next(filter(request.header, _OF_PROXIES), None)):
        raise PublishedKeyRefused(
            "A published key is accepted only from the machine that Vitrine runs on, and this request came through a proxy "
            f"(it has the header {header}). Use a key of your own, or set WELL_KNOWN_KEYS=everywhere in a network that you trust."
        )
    domain, _ = split_domain_port(request.host)
    if not domain or not (_is_local(domain) or validate_host(domain, settings.ALLOWED_HOSTS)):
        raise PublishedKeyRefused(
            f"A published key is accepted only for hosts that are known, and not for {request.host[:200]!r}. "
            "Name localhost, add this host to ALLOWED_HOSTS, or use a key of your own."
        )
    origin = request.header("origin")
    if is_from_page(request) and not (origin and allows_origin(origin)):
        raise PublishedKeyRefused(
            f"Web pages must not use a published key, and this request is of a page{f' of {origin[:200]}' if origin else ''}. "
            "Allow its origin in a CORS rule of the storage account (Service Bus has none), or use a key of your own."
        )


def _who() -> str:
    return getattr(settings, "WELL_KNOWN_KEYS", LOOPBACK)


def is_from_page(request: Request) -> bool:
    """Whether a browser made this request for a page of another origin. For an image it names no origin."""
    return bool(request.header("origin")) or request.header("sec-fetch-site") in _OF_OTHER_PAGES


def _is_local(domain: str) -> bool:
    """Whether a Host header's name, in lower case and without its port, always means this machine."""
    return domain == "localhost" or domain.endswith(".localhost") or is_loopback(domain.strip("[]"))
