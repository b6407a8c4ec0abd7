"""How log lines look."""

import logging
import sys
import threading
import traceback

import pytest
from celery.beat import SchedulingError
from django.db import OperationalError

from explorer.site import logs
from explorer.site.logs import MOST_LINES, Formatter, LimitRepeats


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


def test_a_task_that_beat_cannot_send_takes_two_log_lines():
    lines = logged(OperationalError("the connection is closed\n\tis the server running?")).splitlines()
    assert lines == [
        "ERROR celery.beat: Message Error: Couldn't apply scheduled task sweep: the connection is closed",
        "  OperationalError: the connection is closed is the server running?",
    ]


@pytest.mark.parametrize("shown", ["Traceback", "KeyError: 'sweep'", "test_logs.py"])
def test_another_error_keeps_its_traceback(shown):
    assert shown in logged(KeyError("sweep"))


@pytest.fixture
def limited(monkeypatch):
    """A logger whose repeated lines are limited, its lines, and a function that ends the window."""
    windows = []

    class Window:
        def __init__(self, seconds, end, arguments):
            windows.append(lambda: end(*arguments))

        def start(self):
            pass

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(f"{record.levelname} {record.getMessage()}")

    lines: list[str] = []
    monkeypatch.setattr(threading, "Timer", Window)
    logger = logging.getLogger(f"limited-{id(lines)}")
    logger.propagate = False
    logger.addFilter(LimitRepeats())
    logger.addHandler(Lines())
    return logger, lines, lambda: [windows.pop(0)() for _ in list(windows)]


def test_repeated_log_lines_of_clients_are_counted_and_summarized(limited):
    """Regression: a line for each malformed request, and a traceback for each malformed frame, filled the log."""
    logger, lines, end_window = limited
    for number in range(1_234 + MOST_LINES):
        logger.warning("Invalid request %d of 100 %%", number)
    logger.error("Another problem")
    assert len(lines) == MOST_LINES + 1 and lines[-1] == "ERROR Another problem"
    end_window()
    assert lines[MOST_LINES + 1 :] == ["WARNING 1,234 more in 60 s: Invalid request %d of 100 %%"]
    logger.warning("Invalid request %d of 100 %%", 1)
    assert lines[-1] == "WARNING Invalid request 1 of 100 %"


def test_tracebacks_of_different_exceptions_are_not_repetitions(limited):
    logger, lines, _ = limited
    for error in (ValueError(), KeyError()) * MOST_LINES:
        logger.error("Exception in ASGI application", exc_info=error)
    assert len(lines) == 2 * MOST_LINES


def test_repetitions_are_limited_on_the_logger_of_the_web_server():
    assert any(isinstance(each, LimitRepeats) for each in logging.getLogger("uvicorn.error").filters)
    assert logs.WINDOW_SECONDS == 60
