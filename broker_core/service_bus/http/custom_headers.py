"""Read and write application properties as custom headers (docs/http.md). Pure functions.

A value is a JSON scalar: a string in double quotes, a number, true or false; a quoted RFC 1123 date is a timestamp. Any other
unquoted value is taken as a string, as in the service's own examples (`Priority: High`).

HTTP servers lower-case names, and some names are not valid header names ("größe", "with space", "Date"). The header
`Vitrine-Properties` holds such properties as one JSON object, with names and case preserved; it is also accepted in requests.

The sender of a message chooses the names, and its receiver gets them. A name that browsers, proxies or caches act on
("Clear-Site-Data", "X-Accel-Redirect") is therefore never a header of a response; it is in `Vitrine-Properties`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.wire.http.dates import read_rfc1123
from broker_core.wire.http.json_text import read_json, require_object, require_text, write_json

from .scalars import read_scalar, write_scalar

EXACT = "Vitrine-Properties"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_JSON_SCALAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|null")

# Standard headers are not properties. `Priority` is missing on purpose: it is the service's own example of a property.
_STANDARD_NAMES = """
    accept accept-charset accept-encoding accept-language accept-ranges age allow alt-svc alt-used authorization
    brokerproperties cache-control connection content-disposition content-encoding content-language content-length
    content-location content-md5 content-range content-type cookie date dnt etag expect expires forwarded from host
    http2-settings if-match if-modified-since if-none-match if-range if-unmodified-since keep-alive last-modified link
    location max-forwards origin pragma range referer retry-after save-data server set-cookie strict-transport-security te
    trailer transfer-encoding upgrade upgrade-insecure-requests user-agent vary via warning www-authenticate x-real-ip
"""
_STANDARD = frozenset(_STANDARD_NAMES.split())
_STANDARD_PREFIXES = ("access-control-", "proxy-", "sec-", "vitrine-", "x-forwarded-", "x-ms-")

# Response headers that browsers, proxies, caches and servers act on.
_CONTROL_NAMES = """
    activate-storage-access critical-ch dpr ect nel p3p refresh rtt server-timing sourcemap timing-allow-origin tk
    use-as-dictionary x-powered-by x-xss-protection
"""
_CONTROL = frozenset(_CONTROL_NAMES.split())
_CONTROL_PREFIXES = (
    *("accept-", "alt-", "attribution-reporting-", "cache-", "cdn-", "cf-", "clear-site-", "cloudflare-", "connection-allow"),
    *("content-", "cross-origin-", "document-", "edge-", "expect-", "fastly-", "feature-policy", "http2-", "hx-", "integrity-"),
    *("netlify-", "no-vary-", "observe-browsing-", "origin-", "permissions-policy", "public-key-", "report-to", "reporting-"),
    *(
        "require-document-",
        "service-worker-",
        "set-",
        "speculation-rules",
        "strict-",
        "supports-loading-",
        "surrogate-",
        "turbo-",
    ),
    *("x-accel-", "x-akamai-", "x-amz-", "x-appengine-", "x-archive-", "x-cache", "x-cdn-", "x-cloud-", "x-content-", "x-dns-"),
    *("x-download-", "x-firefox-", "x-frame-", "x-goog-", "x-lighttpd-", "x-litespeed-", "x-original-", "x-permitted-"),
    *("x-pjax", "x-proxy-", "x-reproxy-", "x-rewrite-", "x-robots-", "x-sendfile", "x-served-", "x-sourcemap", "x-turbo"),
    *("x-ua-", "x-varnish", "x-webkit-"),
)


def is_custom(name: str) -> bool:
    """Whether a request header of this name is an application property."""
    return name.lower() not in _STANDARD and not name.lower().startswith(_STANDARD_PREFIXES)


def may_answer(name: str) -> bool:
    """Whether an application property of this name may be a response header."""
    return bool(_NAME.fullmatch(name)) and is_custom(name) and not _controls(name.lower())


def _controls(name: str) -> bool:
    return name in _CONTROL or name.startswith(_CONTROL_PREFIXES)


def read(headers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Application properties from a request's headers, with names as the server passes them (lower case).

    Raises InvalidArgument with the header for unbalanced quotes, numbers out of range and duplicates.
    """
    properties: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for name, text in headers:
        if name.lower() == EXACT.lower():
            exact |= read_object(read_json(text, f"header {EXACT}"), EXACT)
        elif is_custom(name):
            if name in properties:
                raise InvalidArgument(f"header {name}", "is given twice; a property has only one value")
            properties[name] = _read_value(text, f"header {name}")
    return properties | exact


def read_object(value: Any, where: str) -> dict[str, Any]:
    """Application properties from a JSON object of scalars (a batch item's UserProperties)."""
    members = require_object(value, where)
    return {require_text(name, where): read_scalar(item, f"{where}.{name}") for name, item in members.items()}


def write(properties: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Headers of a response. Types without a header representation are written as text; the stored message keeps them."""
    headers: dict[str, tuple[str, str]] = {}
    exact: dict[str, Any] = {}
    for name, value in properties.items():
        if may_answer(name) and name.lower() not in headers:
            headers[name.lower()] = (name, write_json(write_scalar(value)))
        else:
            exact[name] = write_scalar(value)
    return [*headers.values(), *([(EXACT, write_json(exact))] if exact else [])]


def _read_value(text: str, where: str) -> Any:
    text = text.strip()
    if text.startswith('"'):
        value = require_text(read_json(text, where), where)
        return read_rfc1123(value) or value
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _JSON_SCALAR.fullmatch(text):
        return read_scalar(read_json(text, where), where)
    return require_text(text, where)
