"""Signatures of requests with an account's key: SharedKey and SharedKeyLite. Pure functions; keys and time are arguments.

    Authorization: SharedKey ACCOUNT:SIGNATURE

The HMAC-SHA256 key is the decoded base64 of the account's key. What is signed are the request's parts as they were sent: the path
still percent-encoded, the headers before any change by a proxy.
Source: Azure Storage documentation, "Authorize with Shared Key"; the order of the headers is that of the SDKs (QS-909).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

from broker_core.wire.http.dates import read_rfc1123

from .errors import AuthenticationFailed, InvalidAuthenticationInfo

SHARED_KEY, SHARED_KEY_LITE = "SharedKey", "SharedKeyLite"
LARGEST_SKEW = timedelta(minutes=15)
SECONDARY = "-secondary"
PUBLISHED_ACCOUNT = "devstoreaccount1"  # of Microsoft's emulators: known to everybody, as its key is
PUBLISHED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SIGNED_HEADERS = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
_LENGTH, _DATE = _SIGNED_HEADERS.index("content-length"), _SIGNED_HEADERS.index("date")
_FIRST_VERSION_WITHOUT_ZERO = "2015-02-21"  # since then a Content-Length of 0 is signed as an empty line
_CREDENTIAL = re.compile(r"(SharedKey|SharedKeyLite) +([a-z0-9]{1,24}):([A-Za-z0-9+/]{43}=)")

# The SDK for Python sorts headers as the service once did, by weight instead of by code point: of punctuation before digits
# before letters, where the two characters below count only between names that are otherwise equal.
_BY_WEIGHT = {character: place for place, character in enumerate("!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz")}
_BETWEEN_EQUALS = {"'": 1, "-": 2}


@dataclass(frozen=True)
class SignedParts:
    """The parts of a request that are signed.

    path: as sent, percent-encoded, without the query. query: decoded pairs. headers: pairs, with names in any case.
    """

    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Sequence[tuple[str, str]]

    @cached_property
    def values(self) -> dict[str, str]:
        """The values of each header, joined, by its name in lower case."""
        values: dict[str, str] = {}
        for given, value in self.headers:
            name = given.lower()
            values[name] = f"{values[name]},{value.strip()}" if name in values else value.strip()
        return values

    def header(self, name: str) -> str:
        """Its values, joined; empty if there is none."""
        return self.values.get(name, "")

    @property
    def date(self) -> str:
        return self.header("x-ms-date") or self.header("date")


@dataclass(frozen=True, slots=True)
class Credential:
    """An Authorization header as received, to be verified. scheme: SHARED_KEY or SHARED_KEY_LITE."""

    scheme: str
    account: str
    signature: str


def parse(authorization: str) -> Credential:
    """Raises InvalidAuthenticationInfo if it is malformed."""
    match = _CREDENTIAL.fullmatch(authorization.strip())
    if not match:
        raise InvalidAuthenticationInfo(
            f"{authorization[:80]!r} must be 'SharedKey ACCOUNT:SIGNATURE' or 'SharedKeyLite ACCOUNT:SIGNATURE', "
            "where SIGNATURE is the base64 of 32 bytes"
        )
    return Credential(*match.groups())


def check_signature(credential: Credential, parts: SignedParts, keys: Sequence[str]) -> str:
    """The key that signed the request. Raises AuthenticationFailed, with the text that should have been signed, if none of them
    did. Each comparison is made in constant time; most clients sign with the first key what is documented."""
    for text in texts_to_sign(credential, parts):
        for key in keys:
            if hmac.compare_digest(sign(text, key), credential.signature):
                return key
    documented = next(texts_to_sign(credential, parts))
    raise AuthenticationFailed(
        f"The signature {credential.signature} is not that of any key of the account {credential.account!r}. Check the key, "
        f"and that nothing between client and server changes the path or a header. The text to sign is {documented!r}"
    )


def check_date(parts: SignedParts, now: datetime) -> None:
    """Raise AuthenticationFailed unless the request was made within 15 minutes of now (QS-920); InvalidAuthenticationInfo for
    text that is no date."""
    if not parts.date:
        raise AuthenticationFailed(
            "A signed request needs a date: send the header x-ms-date, such as 'Sun, 06 Nov 1994 08:49:37 GMT'"
        )
    at = read_rfc1123(parts.date)
    if at is None:
        raise InvalidAuthenticationInfo(f"the date {parts.date[:80]!r} must be such as 'Sun, 06 Nov 1994 08:49:37 GMT'")
    if abs(now - at) > LARGEST_SKEW:
        raise AuthenticationFailed(
            f"The request is dated {parts.date}, which differs from the server's time {now:%Y-%m-%dT%H:%M:%SZ} by more than "
            "15 minutes. Check the clock of the client"
        )


def sign(text: str, key: str) -> str:
    """The signature of a text. key: base64, checked when it was stored."""
    signing = _with_key(key).copy()
    signing.update(text.encode())
    return base64.b64encode(signing.digest()).decode()


@lru_cache(1000)
def _with_key(key: str) -> hmac.HMAC:
    """Half of the work of a signature depends on the key alone."""
    return hmac.new(base64.b64decode(key), digestmod="sha256")


def is_key(text: str) -> bool:
    """Whether this can be an account's key: base64 of 32 to 64 bytes (the service's keys have 64)."""
    try:
        return 32 <= len(base64.b64decode(text, validate=True)) <= 64
    except (binascii.Error, ValueError):
        return False


def texts_to_sign(credential: Credential, parts: SignedParts) -> Iterator[str]:
    """The texts that clients may have signed, the documented one first."""
    is_whole = credential.scheme == SHARED_KEY
    values = _signed_values(parts) if is_whole else [parts.header("content-md5"), parts.header("content-type"), _date_line(parts)]
    query = _canonical_query(parts.query) if is_whole else _component(parts.query)
    for path in _paths(parts.path, credential.account):
        for order in (_by_code_point, by_weight):
            headers = _canonical_headers(parts, order)
            yield "\n".join([parts.method, *values, f"{headers}/{credential.account}{path}{query}"])


def _paths(path: str, account: str) -> Iterator[str]:
    """The path as sent; of the secondary endpoint, also that of the primary."""
    yield path
    secondary = f"/{account}{SECONDARY}"
    if path == secondary or path.startswith(f"{secondary}/"):
        yield f"/{account}{path[len(secondary) :]}"


def _signed_values(parts: SignedParts) -> list[str]:
    values = [parts.values.get(name, "") for name in _SIGNED_HEADERS]
    values[_DATE] = _date_line(parts)
    if values[_LENGTH] == "0" and not "" < parts.header("x-ms-version") < _FIRST_VERSION_WITHOUT_ZERO:
        values[_LENGTH] = ""
    return values


def _date_line(parts: SignedParts) -> str:
    """Empty if the date is signed among the x-ms headers."""
    return "" if parts.header("x-ms-date") else parts.header("date")


def _canonical_headers(parts: SignedParts, order: Callable[[str], Any]) -> str:
    names = sorted((name for name in parts.values if name.startswith("x-ms-")), key=order)
    return "".join(f"{name}:{parts.values[name]}\n" for name in names)


def _by_code_point(name: str) -> str:
    return name


def by_weight(name: str) -> tuple[list[int], list[int]]:
    """The key of a header's name in the order of the SDK for Python."""
    return (
        [_BY_WEIGHT[character] for character in name if character in _BY_WEIGHT],
        [_BETWEEN_EQUALS.get(character, 0) for character in name],
    )


def _canonical_query(query: Sequence[tuple[str, str]]) -> str:
    values: dict[str, list[str]] = defaultdict(list)
    for name, value in query:
        values[name.lower()].append(value)
    return "".join(f"\n{name}:{','.join(sorted(values[name]))}" for name in sorted(values))


def _component(query: Sequence[tuple[str, str]]) -> str:
    return next((f"?comp={value}" for name, value in query if name.lower() == "comp"), "")
