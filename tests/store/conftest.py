"""The broker's fixtures, and statements with a text of the test's own."""

import pytest

from broker_core.store import statements
from broker_core.store.statements import SQL, Statement
from tests.fixtures import *  # noqa: F403


@pytest.fixture
def named(monkeypatch):
    """named(sql, **params): a statement with this text."""

    def make(sql, **params):
        name = f"test_{abs(hash(sql))}"
        monkeypatch.setitem(SQL, name, sql)
        monkeypatch.setitem(statements._KINDS, name, {})
        return Statement(name, params)

    return make
