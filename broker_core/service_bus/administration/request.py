"""A request of the administration API: what its path names, its conditional headers, its page and its body."""

from __future__ import annotations

import re

from django.utils.functional import cached_property

from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.tokens import Verified
from broker_core.wire.http import request

from .paths import Target, target_of

MOST_BODY_BYTES = 256 * 1024
MOST_ON_A_PAGE = 100
_CONDITIONS = ("if-match", "if-none-match")
_NUMBER = re.compile("[0-9]{1,9}")
_WITH_FILTER_COUNTS = "2024-05"


class Request(request.Request):
    """verified: whose it is, when it was authenticated."""

    verified: Verified

    @cached_property
    def target(self) -> Target:
        """Raises UnknownResource and InvalidArgument."""
        return target_of(self.raw_path)

    @property
    def updates(self) -> bool:
        """Whether a PUT is for an entity that exists: it has `If-Match: *`. Raises InvalidArgument for other conditions."""
        given = [(name.lower(), text.strip()) for name, text in self.headers if name.lower() in _CONDITIONS]
        if len(given) > 1:
            raise InvalidArgument("If-Match", "is given with another condition; send 'If-Match: *' to update, or none to create")
        for name, text in given:
            if text not in ("*", '"*"'):
                raise InvalidArgument(name.title(), f"{text[:40]!r} must be *: entities have no versions")
        return bool(given) and given[0][0] == _CONDITIONS[0]

    @property
    def first(self) -> int:
        """How many entities are before the page: `$skip`. Raises InvalidArgument."""
        return self._whole("$skip", 0, least=0)

    @property
    def max_count(self) -> int:
        """How many entities the page has at most: `$top`, but no more than MOST_ON_A_PAGE. Raises InvalidArgument."""
        return min(self._whole("$top", MOST_ON_A_PAGE, least=1), MOST_ON_A_PAGE)

    @property
    def wants_filter_counts(self) -> bool:
        """Whether its api-version knows the counts of filters."""
        return (self.query("api-version") or "") >= _WITH_FILTER_COUNTS

    async def body(self, most: int = MOST_BODY_BYTES) -> bytes:
        return await super().body(most)

    def _whole(self, name: str, default: int, *, least: int) -> int:
        text = self.query(name)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text) or int(text) < least:
            raise InvalidArgument(name, f"{text[:40]!r} must be a whole number from {least} to 999999999")
        return int(text)
