"""Calls of threads that are made together (`broker_core.runtime.gathering`), in a known order."""

from concurrent.futures import ThreadPoolExecutor

import psycopg

from broker_core.store import connections

from .eventually import eventually


def group_sizes(monkeypatch, *gatherings):
    """A list that gets the number of calls of each group that is made from now on."""
    made = []
    for gathering in gatherings:
        together = gathering._together
        monkeypatch.setattr(
            gathering, "_together", lambda key, calls, make=together: (made.append(len(calls)), make(key, calls))[1]
        )
    return made


def results_behind_first(gathering, blocked, entity_id, works):
    """The answers of calls, or what they were refused: the first waits for rows, and the others for it.

    blocked: the statement that locks the rows of an entity.
    """
    lines = gathering._of_threads
    with psycopg.connect(**connections.Database().parameters() | {"autocommit": False}) as other, ThreadPoolExecutor() as pool:
        other.execute(blocked, [entity_id])
        calls = [pool.submit(works[0])]
        eventually(lambda: any(line.is_busy() for line in list(lines.values())))
        calls += [pool.submit(work) for work in works[1:]]
        eventually(lambda: sum(len(line.waiting) for line in list(lines.values())) == len(works) - 1)
        other.rollback()
        return [call.exception() or call.result() for call in calls]
