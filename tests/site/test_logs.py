"""How log lines look."""

import logging
import sys
import traceback

import pytest
from celery.beat import SchedulingError
from django.db import OperationalError

from explorer.site.logs import Formatter


def logged(error: Exception) -> str:
    """What beat's error looks like in the log: its message has the stack in a second line."""
    formatter = Formatter("{levelname} {name}: {message}", style="{")
    try:
        try:
            raise error
        except (OperationalError, KeyError) as found:
            raise SchedulingError(f"Couldn't apply scheduled task sweep: {found}")  # noqa: B904 - as Celery does it
    except SchedulingError as found:
        arguments = (found, traceback.format_stack())
        record = logging.LogRecord("celery.beat", logging.ERROR, "", 0, "Message Error: %s\n%s", arguments, sys.exc_info())
    return formatter.format(record)


def test_a_task_that_beat_cannot_send_while_the_database_is_away_takes_two_lines():
    lines = logged(OperationalError("the connection is closed\n\tis the server running?")).splitlines()
    assert lines == [
        "ERROR celery.beat: Message Error: Couldn't apply scheduled task sweep: the connection is closed",
        "  OperationalError: the connection is closed is the server running?",
    ]


@pytest.mark.parametrize("shown", ["Traceback", "KeyError: 'sweep'", "test_logs.py"])
def test_another_error_keeps_its_traceback(shown):
    assert shown in logged(KeyError("sweep"))
