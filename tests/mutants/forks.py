"""Tries the changes inside the functions of one module in forks of one process that has collected the tests once, as a plugin of
pytest: `VITRINE_MUTANTS=broker_core/common/durations.py:3,4 VITRINE_FOUND=FILE pytest -p tests.mutants.forks ...`.

For each file of tests, the first fork runs them without a change and notes which of them run which lines of the module. Each
further fork exchanges the code of the module's functions and runs the tests that run the changed statement, the shortest first,
until one fails. What no test of a file notices is tried with the next file. VITRINE_FOUND has what failed for each change. A
change that nothing notices here may still be noticed at import, or by a test that found its result in a cache: such a one is
tried again in a process of its own (`__main__`).
"""

import gc
import json
import os
import signal
import sys
import threading
import time
from itertools import groupby
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from . import plugin, rules  # noqa: F401 (the plugin sets Hypothesis up)

file, _, indexes = os.environ["VITRINE_MUTANTS"].partition(":")
PATH = rules.ROOT / file


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    _open_database(session)
    functions = [each for each in gc.get_objects() if isinstance(each, FunctionType) and each.__code__.co_filename == str(PATH)]
    gc.freeze()  # a collection in a fork would copy everything
    answers = dict.fromkeys(map(int, indexes.split(",")), "")
    for _, items in groupby(session.items, key=lambda item: item.path):
        survived = [index for index, test in answers.items() if not test]
        if survived:
            answers |= _noticed(session, functions, survived, {item.nodeid: item for item in items})
    Path(os.environ["VITRINE_FOUND"]).write_text(json.dumps(answers))
    return True


def _noticed(session, functions: list[FunctionType], indexes: list[int], items: dict) -> dict[int, str]:
    """Which of these tests notices each change, or an empty text."""
    failed, took, ran = _in_a_fork(lambda: _without_a_change(session, items.values()), seconds=900)
    if failed:
        pytest.exit(f"without a mutant: {failed[0]}", returncode=1)
    results = {}
    for index in indexes:
        lines = rules.lines_of(PATH, index)
        names = sorted((name for name in items if not lines.isdisjoint(ran[name])), key=took.__getitem__)
        seconds = 20 + 10 * sum(took[name] for name in names)
        chosen = [items[name] for name in names]
        answer = _in_a_fork(lambda: _first_failure(session, functions, index, chosen), seconds)
        results[index] = f"not finished after {seconds:.0f} s" if answer is None else answer[0]
    return results


def _open_database(session) -> None:
    """One test makes the test database in this process; connections are closed again, a fork cannot share them."""
    if item := next((item for item in session.items if "django_db_setup" in item.fixturenames), None):
        from django.db import connections as django_connections

        from broker_core.store import connections

        _passes(session, item)
        connections.close_all()
        django_connections.close_all()


def _in_a_fork(work, seconds: float):
    """What `work()` returns in a fork of this process; None if it takes longer, or the process dies."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        os.setpgid(0, 0)
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    timer = threading.Timer(seconds, os.kill, (child, signal.SIGKILL))
    timer.start()
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    timer.cancel()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def _passes(session, item) -> bool:
    before = session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=session)  # the fixtures of the session stay
    return session.testsfailed == before


def _without_a_change(session, items):
    """The tests that fail; how long each takes; the module's lines that it runs."""
    failed, took, ran = [], {}, {}

    def trace(frame, event, _):
        return note if frame.f_code.co_filename == str(PATH) else None

    def note(frame, event, _):
        lines.add(frame.f_lineno)
        return note

    for item in items:
        lines: set[int] = set()
        started = time.monotonic()
        threading.settrace(trace)
        sys.settrace(trace)
        passed = _passes(session, item)
        sys.settrace(None)
        if not passed:
            failed.append(item.nodeid)
        took[item.nodeid] = time.monotonic() - started
        ran[item.nodeid] = sorted(lines)
    return failed, took, ran


def _first_failure(session, functions: list[FunctionType], index: int, items) -> list[str]:
    """The name of the test that notices the change, or an empty text."""
    changed = compile(rules.mutated(PATH, index), str(PATH), "exec")
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(changed)}
    for function in functions:
        function.__code__ = codes[function.__code__.co_qualname, function.__code__.co_firstlineno]
    return [next((item.nodeid for item in items if not _passes(session, item)), "")]


def _codes(code: CodeType):
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
