"""Which failures the demo is made to have, so that a page can tell them from real ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .parts import DemoPart, parts
from .state import demo_state

PAUSED = "The demo is paused."


class DesignedFailures:
    """Those of all parts. is_paused: whether the demo is paused, so that its queues have no receivers."""

    def __init__(self, demo_parts: Iterable[DemoPart], *, is_paused: bool = False):
        self._by_namespace = {part.NAMESPACE: tuple(part.DESIGNED) for part in demo_parts}
        self._is_paused = is_paused

    def why(self, namespace: str, path: str, rule: str, reasons: Collection[str | None] = ()) -> str:
        """Why the demo has this problem; empty: it is a real one."""
        known = self._by_namespace.get(namespace)
        if known is None:
            return ""
        if self._is_paused and rule in ("receivers", "old"):
            return PAUSED
        return next((designed.why for designed in known if designed.explains(path, rule, reasons)), "")


def designed_failures() -> DesignedFailures:
    """Those of this site; none if it has no demo."""
    demo = demo_state()
    return DesignedFailures(parts() if demo else (), is_paused=demo is not None and demo.is_paused)
