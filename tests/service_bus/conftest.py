"""The broker's fixtures, and by what a test's entities are made."""

from collections.abc import Iterator

import pytest

from tests.fixtures import *  # noqa: F403

from .made_by import CORE, entities, ways_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if ways := ways_of(metafunc):
        metafunc.parametrize("made_by", ways, indirect=True)


@pytest.fixture(autouse=True)
def made_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """By what `entities` makes them: CORE or API."""
    way = getattr(request, "param", CORE)
    if way is CORE:
        yield way
        return
    for mark in request.node.iter_markers("made_by_core"):
        pytest.skip(*mark.args)
    from .administration.entities import AdministrationEntities

    maker = AdministrationEntities(request.getfixturevalue("listener").port("SERVICE_BUS_PORT"))
    monkeypatch.setattr(entities, "maker", maker)
    yield way
    maker.close()
