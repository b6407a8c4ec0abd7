"""Shared access signatures of Queue Storage: of an account, and of one queue. Pure functions; keys and time are arguments.

A signature is a set of query parameters. An account SAS (`ss`, `srt`) permits operations on types of resources; a service SAS,
on the messages of one queue, perhaps with a stored access policy (`si`) that says what the signature leaves out (QS-096).
Source: Azure Storage documentation, "Create an account SAS", "Create a service SAS"; versions from 2015-04-05 on.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from broker_core.wire.peers import address_of

from .errors import (
    AuthenticationFailed,
    AuthorizationProtocolMismatch,
    AuthorizationServiceMismatch,
    AuthorizationSourceIPMismatch,
)
from .shared_key import sign

SIGNATURE = "sig"
LETTERS = {  # in the order in which an account SAS has them
    "r": "read", "w": "write", "d": "delete", "l": "list", "a": "add", "c": "create", "u": "update", "p": "process",
}  # fmt: skip
QUEUE_LETTERS = "raup"  # of a service SAS and a stored access policy
EARLIEST_VERSION = "2015-04-05"
VERSION = "2021-12-02"  # of signatures that are made here
_WITH_ENCRYPTION_SCOPE = "2020-12-06"  # since then, an account SAS signs one more line
_VERSION = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:T(\d{2}:\d{2})(?::(\d{2})(?:\.(\d{1,7}))?)?Z)?", re.ASCII)
_DELEGATED = "skoid"  # only in a user delegation SAS


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """A stored access policy of a queue. start, expiry: ISO 8601 as given. permission: of QUEUE_LETTERS. None: the signature
    says it."""

    id: str
    start: str | None = None
    expiry: str | None = None
    permission: str | None = None

    @property
    def words(self) -> str:
        """What it says, in words, such as "read and process, until 2026-11-21"."""
        permission = letters_in_words(self.permission or "")
        start, expiry = self.start and f"from {self.start}", self.expiry and f"until {self.expiry}"
        return ", ".join(filter(None, (permission, start, expiry))) or "no permissions or times of its own"

    def __str__(self) -> str:
        return f"{self.id}: {self.words}"


@dataclass(frozen=True, slots=True)
class Sas:
    """A signature as received, decoded, or to be made. policy_id: of a stored access policy. services, types: of an account SAS;
    None: it is a service SAS."""

    version: str = VERSION
    signature: str = ""
    permission: str | None = None
    start: str | None = None
    expiry: str | None = None
    policy_id: str | None = None
    addresses: str = ""
    protocols: str = ""
    services: str | None = None
    types: str | None = None
    encryption_scope: str = ""

    @property
    def is_for_account(self) -> bool:
        return self.services is not None


def is_signed(query: Sequence[tuple[str, str]]) -> bool:
    """Whether the query has a shared access signature."""
    return any(name.lower() == SIGNATURE for name, _ in query)


def parse(query: Sequence[tuple[str, str]]) -> Sas:
    """The signature of a query. query: decoded pairs. Raises AuthenticationFailed for one that is incomplete or not supported."""
    fields: dict[str, str] = {}
    for name, value in query:
        if name.lower() in _FIELDS and fields.setdefault(name.lower(), value) != value:
            raise AuthenticationFailed(f"The parameter {name} is given twice, with different values")
    if any(name.lower() == _DELEGATED for name, _ in query):
        raise AuthenticationFailed("User delegation signatures are not supported. Use a signature made with the account's key")
    version = fields.get("sv", "")
    if not _VERSION.fullmatch(version) or version < EARLIEST_VERSION:
        raise AuthenticationFailed(f"The signature's version sv={version[:20]!r} must be a date from {EARLIEST_VERSION} on")
    is_for_account = "ss" in fields or "srt" in fields
    required = ("sig", "sp", "se", "ss", "srt") if is_for_account else ("sig",) if "si" in fields else ("sig", "sp", "se")
    if missing := [name for name in required if not fields.get(name)]:
        raise AuthenticationFailed(f"The signature has no {', '.join(missing)}")
    return Sas(
        version=version,
        signature=fields["sig"],
        permission=fields.get("sp"),
        start=fields.get("st"),
        expiry=fields.get("se"),
        policy_id=None if is_for_account else fields.get("si"),
        addresses=fields.get("sip", ""),
        protocols=fields.get("spr", ""),
        services=fields["ss"] if is_for_account else None,
        types=fields["srt"] if is_for_account else None,
        encryption_scope=fields.get("ses", ""),
    )


def check_signature(sas: Sas, keys: Iterable[str], *, account: str, queue: str | None) -> str:
    """The key that made the signature. Raises AuthenticationFailed, with the text that should have been signed, if none of them
    did."""
    if not sas.is_for_account and queue is None:
        raise AuthenticationFailed("A service SAS is for one queue; this request names none. Use an account SAS (QS-925)")
    text = text_to_sign(sas, account=account, queue=queue)
    signers = [key for key in keys if hmac.compare_digest(sign(text, key).encode(), sas.signature.encode())]
    if not signers:
        raise AuthenticationFailed(
            f"The signature {sas.signature[:80]!r} is not that of any key of the account {account!r}. "
            f"The text to sign is {text!r}"
        )
    return signers[-1]


def signed(sas: Sas, key: str, *, account: str, queue: str | None = None) -> Sas:
    """With its signature. key: of the account. queue: of a service SAS."""
    return replace(sas, signature=sign(text_to_sign(sas, account=account, queue=queue), key))


def as_query(sas: Sas) -> str:
    """As the query of a URL, without a question mark: the inverse of parse."""
    return urlencode({name: value for name, field in _FIELDS.items() if (value := getattr(sas, field))}, quote_via=quote, safe="")


def text_to_sign(sas: Sas, *, account: str, queue: str | None) -> str:
    """The signed text. In path style, too, the account stands in it once."""
    permission, start, expiry = sas.permission or "", sas.start or "", sas.expiry or ""
    ends = [sas.addresses, sas.protocols, sas.version]
    if sas.is_for_account:
        lines = [account, permission, sas.services or "", sas.types or "", start, expiry, *ends]
        scope = [sas.encryption_scope] if sas.version >= _WITH_ENCRYPTION_SCOPE else []
        return "\n".join([*lines, *scope, ""])
    return "\n".join([permission, start, expiry, f"/queue/{account}/{queue}", sas.policy_id or "", *ends])


def permitted(sas: Sas, policies: Mapping[str, AccessPolicy], now: datetime) -> str:
    """The letters that a valid signature permits now, with what its stored access policy says.

    policies: those of the queue, by id. Raises AuthenticationFailed for a signature that has expired, is not valid yet, names an
    unknown policy, or says what its policy says, too (QS-096).
    """
    stored = AccessPolicy("") if sas.policy_id is None else policies.get(sas.policy_id)
    if stored is None:
        raise AuthenticationFailed(f"The queue has no stored access policy {sas.policy_id!r}")
    start = _of_one("start (st)", sas.start, stored.start)
    expiry = _of_one("expiry (se)", sas.expiry, stored.expiry)
    permission = _of_one("permission (sp)", sas.permission, stored.permission)
    if not expiry:
        raise AuthenticationFailed("Neither the signature nor its stored access policy has an expiry (se)")
    if start and now < _instant("st", start):
        raise AuthenticationFailed(f"The signature is not valid before {start}; the server's time is {_iso(now)}")
    if now >= _instant("se", expiry):
        raise AuthenticationFailed(f"The signature expired at {expiry}; the server's time is {_iso(now)}")
    return permission or ""


def check_use(sas: Sas, *, is_tls: bool, client_ip: str) -> None:
    """Raise the mismatch of service, protocol or address, if there is one."""
    if sas.services is not None and "q" not in sas.services:
        raise AuthorizationServiceMismatch(f"it is for the services {sas.services!r}, which do not contain q, queues")
    protocol = "https" if is_tls else "http"
    if sas.protocols and protocol not in sas.protocols.split(","):
        raise AuthorizationProtocolMismatch(f"it is for the protocols {sas.protocols[:80]!r}, and this request uses {protocol}")
    if sas.addresses and not _contains(sas.addresses, client_ip):
        raise AuthorizationSourceIPMismatch(f"it is for clients at {sas.addresses}, and this one is at {client_ip}")


def read_instant(text: str) -> datetime | None:
    """A date, with a time in UTC to the minute, the second or a fraction of it; None for anything else."""
    match = _INSTANT.fullmatch(text)
    if not match:
        return None
    day, minute, second, fraction = match.groups()
    try:
        return datetime.fromisoformat(f"{day}T{minute or '00:00'}:{second or '00'}.{(fraction or '0')[:6]:0<6}").replace(
            tzinfo=UTC
        )
    except ValueError:
        return None


def read_addresses(text: str) -> tuple[int, int, int] | None:
    """The version of IP, and the first and last address as numbers, of one address or a range such as 10.0.0.1-10.0.0.9; None for
    anything else."""
    begin, dash, end = text.partition("-")
    first, last = address_of(begin), address_of(end if dash else begin)
    if first is None or last is None or first.version != last.version or int(first) > int(last):
        return None
    return first.version, int(first), int(last)


def letters_in_words(letters: str) -> str:
    """Permissions in words: "read, add and process"."""
    words = [LETTERS.get(letter, letter) for letter in letters]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


_FIELDS = {  # by parameter
    "sv": "version", "ss": "services", "srt": "types", "sp": "permission", "st": "start", "se": "expiry", "si": "policy_id",
    "sip": "addresses", "spr": "protocols", "ses": "encryption_scope", "sig": "signature",
}  # fmt: skip


def _of_one(what: str, of_signature: str | None, of_policy: str | None) -> str | None:
    """What either the signature or the stored policy says."""
    if of_signature and of_policy:
        raise AuthenticationFailed(f"Both the signature and its stored access policy have the {what}; only one of them may")
    return of_signature or of_policy


def _instant(name: str, text: str) -> datetime:
    at = read_instant(text)
    if at is None:
        raise AuthenticationFailed(f"{name}={text[:40]!r} must be a time such as 2026-11-21T02:55:46Z")
    return at


def _contains(addresses: str, client_ip: str) -> bool:
    found, client = read_addresses(addresses), address_of(client_ip)
    if found is None or client is None:
        return False
    version, first, last = found
    return client.version == version and first <= int(client) <= last


def _iso(now: datetime) -> str:
    return f"{now:%Y-%m-%dT%H:%M:%SZ}"
