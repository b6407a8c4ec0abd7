"""By what the entities and rules of a scenario are made: by calls of the core, or by requests of the administration API.

A scenario uses `entities` from here as it would use `broker_core.service_bus.entities`; its messages go the same way with both.
`make test` makes its entities with the core, and those of a scenario with the mark `made_by_api` a second time with the API.
`make test-clients` makes those of all scenarios with the API, except where the mark `made_by_core(reason)` says why not.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.service_bus import entities as core

CORE, API = "core", "administration-api"


class _Entities:
    """The functions of `broker_core.service_bus.entities`. maker: who does what they say. It is looked up at the call, since
    parameters of tests name functions before it is known."""

    def __init__(self) -> None:
        self.maker: Any = core

    def __getattr__(self, name: str) -> Any:
        @wraps(getattr(core, name))
        def call(*args, **given):
            return getattr(self.maker, name)(*args, **given)

        return call


if TYPE_CHECKING:
    from broker_core.service_bus import entities
else:
    entities = _Entities()


def ways_of(metafunc: pytest.Metafunc) -> list[Any]:
    """The parameters of the fixture `made_by` for a test; empty: the core alone, without saying so in the test's name."""
    if getattr(metafunc.module, "entities", None) is not entities:
        return []
    by_api = pytest.param(API, marks=pytest.mark.django_db(transaction=True))  # a listener sees what is committed
    if os.environ.get("VITRINE_CLIENTS"):
        return [by_api]
    return [CORE, by_api] if metafunc.definition.get_closest_marker("made_by_api") else []
