"""Presenting a lesson: a link by which others follow it, and what they predict."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cachetools import TTLCache

from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.reads import EntityRow
from explorer.models import FollowerAnswer, Sandbox

from .run import Run

SHARED_SECONDS = 0.9  # less than the feed's interval for a manual clock
MOST_SHARED = 50  # views


@dataclass(frozen=True, slots=True)
class Votes:
    """How many followers took a choice, of all that answered."""

    choice: str
    count: int
    total: int
    is_right: bool


_shared: TTLCache[Hashable, tuple[tuple[Any, ...], dict[str, Any]]] = TTLCache(MOST_SHARED, SHARED_SECONDS)  # by view
_lock = threading.Lock()


def share(sandbox: Sandbox) -> None:
    """Let others follow, by a link that nobody can guess."""
    if not sandbox.code:
        _set_code(sandbox, secrets.token_hex(6))


def end(sandbox: Sandbox) -> None:
    """The link no longer works."""
    _set_code(sandbox, "")


def state_of(run: Run, rows: Sequence[EntityRow], now: datetime) -> tuple[Any, ...]:
    """What the screen of a lesson depends on, whoever follows. It differs after each event, step of the clock and change of an
    entity."""
    newest = run.events[-1].event_id if run.events else 0
    ignored: dict[str, Any] = {"clock": None, "sent_rate": 0.0, "completed_rate": 0.0}  # these differ with each reading
    entities = [replace(row, **ignored) for row in rows]
    return run.sandbox.step, run.state.get("mark"), run.answer, run.is_performed, newest, now, entities


def read_once(view: Hashable, state: tuple[Any, ...], read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `read` returns, once for all that follow the same view, which the live feed draws for each of them. It is read again
    in another state, and after SHARED_SECONDS, because some things, such as who holds a session, are no part of the state."""
    with _lock:
        known_state, context = _shared.get(view, (None, {}))
    if known_state != state:
        context = read()
        with _lock:
            _shared[view] = state, context
    return context


def _set_code(sandbox: Sandbox, code: str) -> None:
    sandbox.code = code
    Sandbox.objects.filter(pk=sandbox.pk).update(code=code)


def followed(code: str) -> Sandbox:
    """Raises EntityNotFound."""
    sandbox = Sandbox.objects.select_related("owner").filter(code=code).exclude(lesson="").first() if code else None
    if sandbox is None:
        raise EntityNotFound(code, "presentation")
    return sandbox


def answer(run: Run, follower: Any, number: str) -> None:
    """Note or change a follower's prediction, until the step is done. Raises InvalidArgument."""
    ask = run.step.ask
    if ask is None or run.is_over or run.is_done:
        raise InvalidArgument("answer", "is no longer asked for")
    FollowerAnswer.objects.update_or_create(
        sandbox=run.sandbox, follower=follower, step=run.index, defaults={"choice": ask.choice(number)}
    )


def answer_of(run: Run, follower: Any) -> int | None:
    """The follower's prediction for the current step."""
    return run.sandbox.answers.filter(follower=follower, step=run.index).values_list("choice", flat=True).first()


def votes(run: Run) -> list[Votes]:
    """What the followers predict for the current step; empty: it asks nothing, or nobody may follow."""
    ask = run.step.ask
    if ask is None or run.is_over or not run.sandbox.code:
        return []
    choices = list(run.sandbox.answers.filter(step=run.index).values_list("choice", flat=True))
    return [Votes(text, choices.count(i), len(choices), i == ask.right) for i, text in enumerate(ask.choices)]
