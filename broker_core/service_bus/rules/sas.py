"""Parse, sign and verify shared-access-signature tokens (docs/http.md). Pure functions; time and keys are arguments.

    SharedAccessSignature sr=<encoded resource URI>&sig=<encoded base64>&se=<unix seconds>&skn=<policy name>

The signed text is the encoded resource exactly as in the token, a line feed, and the expiry; the HMAC-SHA256 key is the UTF-8
text of the policy's key, which is not base64-decoded.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from broker_core.common.errors import BrokerError

SCHEME = "SharedAccessSignature"
PUBLISHED_NAMESPACE = "sbemulatorns"  # of Microsoft's emulator: known to everybody, as the key of its policy is
PUBLISHED_KEY = "SAS_KEY_VALUE"
_LATEST = 253_402_300_799  # the last second of the year 9999
_FIELDS = ("sr", "sig", "se", "skn")
_BEARER = re.compile(f"^Bearer +(?={SCHEME}( |$))", re.IGNORECASE)


class TokenRefused(BrokerError):
    """An invalid shared-access token. sub_code: the failed check, one of the constants below."""

    MISSING, SIGNATURE, AUDIENCE, EXPIRED = 40100, 40103, 40104, 40106

    def __init__(self, sub_code: int, message: str):
        super().__init__(message)
        self.sub_code = sub_code


@dataclass(frozen=True, slots=True)
class Token:
    """A token as received, to be verified with `signed_by` and `check_claims`.

    resource: `sr` exactly as received, still encoded, since that is what was signed.
    expires:  `se` as text, unix seconds.
    """

    resource: str
    signature: str
    expires: str
    policy: str

    @property
    def expires_at(self) -> datetime:
        """The expiry; what is later than the year 9999 is its end."""
        return datetime.fromtimestamp(min(int(self.expires), _LATEST), UTC)


def parse(authorization: str, header: str = "Authorization") -> Token:
    """Parse the value of this header; fields may be in any order. Raises TokenRefused for missing or malformed fields.

    The scheme may be preceded by `Bearer`: so does azure-servicebus for Python send a token of its connection string.
    """
    scheme, _, rest = _BEARER.sub("", authorization.strip()).partition(" ")
    if scheme.lower() != SCHEME.lower():
        raise TokenRefused(TokenRefused.MISSING, _no_token(scheme, header))
    pairs = [field.partition("=")[::2] for field in rest.strip().split("&")]
    fields = dict(pairs)
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing or len(fields) < len(pairs):
        problem = f"has no {', '.join(missing)}" if missing else "has a field twice"
        raise TokenRefused(
            TokenRefused.MISSING, f"The token {problem}; it must contain sr, sig, se and skn once each, separated by '&'."
        )
    if not re.fullmatch("[0-9]{1,15}", fields["se"]):
        raise TokenRefused(
            TokenRefused.MISSING, f"The token's expiry se={fields['se'][:40]!r} must be a number of seconds since 1970."
        )
    return Token(fields["sr"], unquote(fields["sig"]), fields["se"], unquote(fields["skn"]))


def sign(resource_uri: str, policy: str, key: str, expires: int) -> str:
    """An Authorization header's value for `resource_uri` and everything below it, valid until `expires` (unix seconds)."""
    resource = quote(resource_uri, safe="")
    signature = quote(_signature(_signed_text(resource, str(expires)), key), safe="")
    return f"{SCHEME} sr={resource}&sig={signature}&se={expires}&skn={quote(policy, safe='')}"


def signed_by(token: Token, keys: Iterable[str]) -> bool:
    """Whether the signature was made with one of the keys, compared in constant time."""
    signature, signed = token.signature.encode(), _signed_text(token.resource, token.expires)
    agree = [hmac.compare_digest(signature, _signature(signed, key)) for key in keys]
    return any(agree)


def wrong_signature(token: Token) -> TokenRefused:
    """The error for a wrong key and for an unknown policy; it is the same, so that policy names are not revealed."""
    return TokenRefused(
        TokenRefused.SIGNATURE,
        f"The token's signature does not match any key of a policy {token.policy!r} that applies here. Check the policy name, "
        "its key (was it regenerated?), and that the encoded resource URI, a line feed and the expiry were signed.",
    )


def wrong_key(policy: str) -> TokenRefused:
    """As `wrong_signature`, for a name of a policy with a key."""
    return TokenRefused(
        TokenRefused.SIGNATURE,
        f"No policy {policy[:60]!r} that applies here has this key. Check the policy name, and its key (was it regenerated?).",
    )


def expired(at: datetime) -> TokenRefused:
    when = at.isoformat().replace("+00:00", "Z")
    return TokenRefused(TokenRefused.EXPIRED, f"The token expired at {when}. Create a new one with a later se.")


def check_claims(token: Token, *, host: str, path: str, now: float) -> None:
    """Raise TokenRefused unless a token with a valid signature covers http://host/path and has not expired at `now`.

    host: as sent by the client; a port is ignored. path: decoded, with the namespace. now: Unix time in seconds.
    """
    if int(token.expires) <= now:
        raise expired(token.expires_at)
    if not covers(token.resource, host, path):
        raise TokenRefused(
            TokenRefused.AUDIENCE,
            f"The token is for {unquote(token.resource)!r} and resources below it, not for '//{host}{path}'. "
            "Create one for this address or its namespace.",
        )


def covers(resource: str, host: str, path: str) -> bool:
    """Whether a token's encoded resource URI is the address or a parent of it. Scheme, port and case are ignored."""
    given_host, _, given_path = re.sub("^[a-zA-Z][a-zA-Z0-9+.-]*://", "", unquote(resource)).partition("/")
    segments, prefix = _segments(path), _segments(unquote(given_path.partition("?")[0]))
    return _host_name(given_host) == _host_name(host) and segments[: len(prefix)] == prefix


def _signed_text(resource: str, expires: str) -> bytes:
    return f"{resource}\n{expires}".encode()


def _signature(signed: bytes, key: str) -> bytes:
    return base64.b64encode(hmac.digest(key.encode(), signed, "sha256"))


def _segments(path: str) -> list[str]:
    return [segment.lower() for segment in path.split("/") if segment]


def _host_name(netloc: str) -> str:
    return re.sub(":[0-9]*$", "", netloc).lower()


def _no_token(scheme: str, header: str) -> str:
    how = f"Send the header '{header}: {SCHEME} sr=...&sig=...&se=...&skn=...'."
    if not scheme:
        return f"The request has no token. {how}"
    if scheme.lower() == "bearer":
        return f"Bearer tokens are not supported. {how}"
    return f"The {header} header starts with {scheme[:40]!r}. {how}"
