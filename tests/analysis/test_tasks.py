"""Celery's side: when a worker counts as stopping."""

import pytest
from celery.worker import state

from explorer.analysis.running import task


@pytest.mark.parametrize(
    ("should_stop", "should_terminate", "stopping"),
    [(None, None, False), (False, None, False), (0, None, True), (None, 0, True), (1, None, True), (None, True, True)],
)
def test_a_stopping_worker_may_have_any_exit_code(monkeypatch, should_stop, should_terminate, stopping):
    monkeypatch.setattr(state, "should_stop", should_stop)
    monkeypatch.setattr(state, "should_terminate", should_terminate)
    assert task._is_stopping() is stopping
