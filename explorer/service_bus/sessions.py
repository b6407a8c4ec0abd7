"""Manual work on sessions: accept, receive in order, renew, set the state, close. Part of the receiver page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, QueryDict

from broker_core import reads, service_bus
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, EntityAddress
from broker_core.reads import SessionRow
from broker_core.service_bus.rules.values import Session, StoredMessage
from explorer.frames.presenters import plural
from explorer.frames.shell import Act, act
from explorer.service_bus.forms.receiver import AcceptForm, ReceiveDeferredForm, SessionForm

_UNKNOWN = datetime.max.replace(tzinfo=UTC)
LARGEST_STATE = 64 * 1024  # bytes; a larger state is not put into the form


@dataclass(frozen=True, slots=True)
class HeldSession:
    """A session that the user holds. state: its text for the form; None: too large, not text, or not readable."""

    row: SessionRow
    state: str | None


def held_sessions(address: EntityAddress, actor: Actor) -> list[HeldSession]:
    """The sessions that the actor holds a lock on, by id."""
    rows = reads.sessions(address, holder=actor.holder_label, actor=actor).rows
    return [HeldSession(row, _state(address, row, actor)) for row in rows]


def _state(address: EntityAddress, row: SessionRow, actor: Actor) -> str | None:
    if row.state_size is None:
        return ""
    if row.state_size > LARGEST_STATE:
        return None
    try:
        state = service_bus.get_session_state(_session(address, row.session_id, row.lock_token), actor=actor)
        return (state or b"").decode()
    except (BrokerError, UnicodeDecodeError):  # no right to it, lock lost, or not text
        return None


def carry_out(request: HttpRequest, address: EntityAddress, action: str) -> tuple[Act, list[StoredMessage] | None]:
    """Carry out an action on a session. The second value: messages that were received and deleted."""
    if action == "accept":
        return _accept(request, address), None
    form = SessionForm(request.POST)
    try:
        values = form.require()
    except InvalidArgument as exc:
        return Act(error=exc), None
    session = _session(address, values["session_id"], values["token"])
    if action == "receive-session":
        return _receive(request, session, values)
    if action == "receive-session-deferred":
        return _receive_deferred(request, session, request.POST), None
    name, call, says = _OTHERS[action]
    return _act(request, name, session, lambda: call(session, values, request.actor), says), None


def _accept(request: HttpRequest, address: EntityAddress) -> Act:
    form = AcceptForm(request.POST)
    try:
        values = form.require()
    except InvalidArgument as exc:
        return Act(error=exc)
    session_id = values["session_id"] or None
    return act(
        request, "accept session", address,
        lambda: service_bus.accept_session(address, session_id, max_count=values["count"] or 0, actor=request.actor),
        target=f"session {session_id}" if session_id else "the next available", says=_accepted,
    )  # fmt: skip


def _accepted(session: Session) -> str:
    return f"Accepted session {session.session_id}{_with_messages(session.messages)}."


def _with_messages(messages) -> str:
    return f", with {plural(len(messages), 'message')} received" if messages else ""


def _receive(request: HttpRequest, session: Session, values: dict) -> tuple[Act, list[StoredMessage] | None]:
    count, deletes = values["count"] or 1, values["mode"] == "receive-and-delete"
    use_case = service_bus.receive_and_delete_from_session if deletes else service_bus.receive_from_session
    name = "receive and delete from session" if deletes else "receive from session"
    done = _act(request, name, session, lambda: use_case(session, count, actor=request.actor), _received)
    return done, done.result if deletes else None


def _received(messages: list[StoredMessage]) -> str:
    if not messages:
        return "The session has no more messages to receive."
    return f"Received {plural(len(messages), 'message')} of the session, in order."


def _receive_deferred(request: HttpRequest, session: Session, data: QueryDict) -> Act:
    form = ReceiveDeferredForm(data)
    if not form.is_valid():
        return Act(error=InvalidArgument("numbers", " ".join(form.errors["numbers"])))
    numbers = form.cleaned_data["numbers"]
    call = lambda: service_bus.receive_deferred(session.address, numbers, session=session, actor=request.actor)  # noqa: E731
    return _act(request, "receive deferred from session", session, call, _received)


def _act(request: HttpRequest, name: str, session: Session, call: Callable[[], Any], says: Callable[[Any], str]) -> Act:
    return act(request, name, session.address, call, target=f"session {session.session_id}", says=says)


def _set_state(session: Session, values: dict, actor: Actor) -> None:
    service_bus.set_session_state(session, values["state"].replace("\r\n", "\n").encode(), actor=actor)


_OTHERS: dict[str, tuple[str, Callable, Callable[[Any], str]]] = {
    "renew-session": (
        "renew session", lambda session, values, actor: service_bus.renew_session(session, actor=actor),
        lambda session: f"Renewed the lock of session {session.session_id}.",
    ),
    "close-session": (
        "close session", lambda session, values, actor: service_bus.close_session(session, actor=actor),
        lambda was_held: "Session closed. Unsettled messages are available." if was_held else "The lock had already ended.",
    ),
    "set-state": ("set session state", _set_state, lambda _: "Session state set."),
    "clear-state": (
        "clear session state", lambda session, values, actor: service_bus.set_session_state(session, None, actor=actor),
        lambda _: "Session state cleared.",
    ),
}  # fmt: skip
ACTIONS = {"accept", "receive-session", "receive-session-deferred", *_OTHERS}


def _session(address: EntityAddress, session_id: str, token: Any) -> Session:
    """A session with its lock token. The end of the lock is unknown here; the broker checks it."""
    return Session(address, session_id, token, locked_until=_UNKNOWN, lock_duration=timedelta(0))
