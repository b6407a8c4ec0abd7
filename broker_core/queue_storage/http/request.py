"""A request of Queue Storage's REST API: its parts as they were sent, and what its URL names."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes
from uuid import uuid4

from django.utils.functional import cached_property

from broker_core.queue_storage.rules import sas
from broker_core.queue_storage.rules.errors import InvalidHeaderValue, InvalidQueryParameterValue
from broker_core.queue_storage.rules.shared_key import SignedParts
from broker_core.wire.http import request

from .paths import Target, target_of

VERSION = "x-ms-version"
CLIENT_REQUEST_ID = "x-ms-client-request-id"
DEFAULT_VERSION = "2021-12-02"  # of a request that names none (QS-906)
_VERSION = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,1024}")


class Request(request.Request):
    """id: of its answer, and in the text of an error."""

    @cached_property
    def id(self) -> str:
        return str(uuid4())

    @cached_property
    def target(self) -> Target:
        """Raises UnknownResource, InvalidResourceName, OutOfRangeInput."""
        return target_of(self.host, self.raw_path)

    @cached_property
    def query_pairs(self) -> list[tuple[str, str]]:
        """The decoded pairs in their order. A plus means a space only to HTML forms, not here. Raises InvalidQueryParameterValue
        for one that is not UTF-8."""
        raw = self._scope.get("query_string", b"").decode("latin-1")
        pairs = (part.partition("=")[::2] for part in raw.split("&") if part)
        return [(_decoded(name, name), _decoded(name, value)) for name, value in pairs]

    @cached_property
    def _first_parameters(self) -> dict[str, str]:
        return {name.lower(): value for name, value in reversed(self.query_pairs)}

    def parameter(self, name: str) -> str | None:
        """The first query parameter of this name, whose case does not matter; None: there is none, or an empty one."""
        return self._first_parameters.get(name) or None

    @cached_property
    def version(self) -> str:
        """The service version for the answer (QS-906). Raises InvalidHeaderValue."""
        given = self.header(VERSION)
        if given is None:
            given = self.parameter("sv") if sas.is_signed(self.query_pairs) else None
        if given is None:
            return DEFAULT_VERSION
        if not _VERSION.fullmatch(given):
            raise InvalidHeaderValue(VERSION, given, "must be a date such as 2021-12-02")
        return given

    @property
    def client_request_id(self) -> str:
        """As sent, to be echoed; empty if there is none, or one that cannot be in a header."""
        given = self.header(CLIENT_REQUEST_ID) or ""
        return given if _VISIBLE.fullmatch(given) else ""

    @property
    def signed_parts(self) -> SignedParts:
        return SignedParts(self.method, self.raw_path, self.query_pairs, self.headers)


def _decoded(name: str, text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidQueryParameterValue(name[:80], text[:80], "is not UTF-8") from None
