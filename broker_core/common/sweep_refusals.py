"""Refusals that a sweep met, so that none is swallowed: counted, and shown with the first reasons on the page System."""

from __future__ import annotations

from typing import Any

from .errors import BrokerError

REASONS = 3


class Refusals:
    """What a sweep could not do and skipped."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._count = 0

    def add(self, what: str, refusal: BrokerError) -> None:
        """Count a refusal. what: the object that the sweep could not process, such as "shop/orders"."""
        self._count += 1
        if self._count <= REASONS:
            self._reasons.append(f"{what}: {refusal}")

    def outcome(self) -> dict[str, Any]:
        """The part of the sweep's outcome: `refused`, their number, and `reasons`, the first of them; empty without refusals."""
        return {"refused": self._count, "reasons": self._reasons} if self._count else {}
