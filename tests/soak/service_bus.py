"""Clients of Service Bus: they send, receive and settle in all the ways there are, cross each other, and note what they were
told."""

from __future__ import annotations

import time
from dataclasses import replace

from broker_core import service_bus, sweeps
from broker_core.common.errors import BrokerError, NoSessionAvailable
from broker_core.common.types import EntityAddress, MessageState
from broker_core.common.types import EventKind as Kind
from broker_core.service_bus.rules.values import LockedMessage

from .clients import BACKLOG_BREAK, MUST_LIVE_WITH, Client
from .scene import LOCK, SCHEDULED_SECONDS, Scene, a_message, body_of, taken_by
from .truth import Locks

_BY_HOLDER = (Kind.COMPLETED, Kind.ABANDONED, Kind.RELEASED, Kind.DEFERRED, Kind.RENEWED)
LOCKS = Locks(
    by_holder=lambda event: event.kind in _BY_HOLDER or (event.kind == Kind.DEAD_LETTERED and event.locked_until is not None),
    holds=(Kind.RECEIVED, Kind.RENEWED),
    in_sessions=True,
)


def _note(client: Client, act: str, address, report) -> None:
    if act != "renew":
        client.journal.write("settled", locks=[str(token) for token, _ in report.settled])
    if act == "complete":
        client.journal.write("gone", path=address.path, numbers=[n for _, n in report.settled], how=["COMPLETED"])
    client.journal.write("did", what="late settlements refused", count=len(report.lost))


def _got(client: Client, messages) -> None:
    for m in messages:
        if bytes(m.body) != body_of(m.message_id):
            client.journal.write("crash", trace=f"the body of {m.message_id} came back as {bytes(m.body)!r}")
    if messages:
        client.journal.write("got", locks=[str(m.lock_token) for m in messages])


def send(client: Client) -> None:
    """Send a batch and note its ids once they are accepted. Where duplicates are detected, ask again until they are."""
    path = client.dice.choice(client.scene.sent_to)
    batch = [a_message(path, f"{client.name}-{client.count + i}", client.dice) for i in range(client.dice.choice((1, 1, 5, 20)))]
    client.count += len(batch)
    if path == "talks":
        batch = [_in_session(client, message) for message in batch]
    ids = [str(message.message_id) for message in batch]
    client.journal.write("sends", copies={each: sorted(taken_by(each)) if path == "topic" else [path] for each in ids})
    while True:
        try:
            service_bus.send(client.scene.address(path), batch, actor=client.actor())
            break
        except MUST_LIVE_WITH:
            if path != "once" or client.ending.is_set():
                raise
            time.sleep(0.02)
    client.journal.write("accepted", ids=ids)
    time.sleep(client.dice.uniform(0, 4 * BACKLOG_BREAK))


def _in_session(client: Client, message):
    return replace(message, session_id=f"{client.name}-{client.dice.randrange(3)}")


def receive(client: Client) -> None:
    """Receive in one of the ways there are."""
    if "sessions" in client.scene.kinds and client.dice.random() < 0.25:
        return _in_a_session(client)
    address = client.scene.address(client.dice.choice(client.scene.received_from))
    chance = client.dice.random()
    if chance < 0.1:
        return _dead_letters(client, address.dead_letter)
    if chance < 0.2:
        gone = service_bus.receive_and_delete(address, client.dice.randint(1, 3), actor=client.actor())
        numbers = [m.sequence_number for m in gone]
        client.journal.write("gone", path=address.path, numbers=numbers, how=["RECEIVED_AND_DELETED"])
        return None
    if chance < 0.3 and client.deferred:
        address, number = client.deferred.popleft()
        held = service_bus.receive_deferred(address, [number], actor=client.actor())
    else:
        wait = client.dice.choice((0, 0, 0.05))
        held = service_bus.receive(address, client.dice.randint(1, 8), max_wait_seconds=wait, actor=client.actor())
    _got(client, held)
    return _work_on(client, held)


def _work_on(client: Client, held: list[LockedMessage]) -> None:
    """Keep locks for a while, some past their end, and settle, some crosswise with meddlers."""
    if not held:
        return
    client.recent.extend((m.address, m.lock_token) for m in held)
    if client.dice.random() < 0.7:
        time.sleep(client.dice.uniform(0, 0.02))
    elif client.dice.random() < 0.15:
        time.sleep(client.dice.uniform(0.9, 1.2) * LOCK.total_seconds())
    while held:
        some = [held.pop() for _ in range(min(len(held), client.dice.randint(1, 4)))]
        _settle(client, some, client.dice.choices(_ACTS, _WEIGHTS)[0])


_ACTS = ("complete", "abandon", "defer", "dead_letter", "release", "renew", "forget")
_WEIGHTS = (60, 10, 5, 5, 4, 12, 4)


def _settle(client: Client, messages: list[LockedMessage], act: str) -> None:
    address, tokens = messages[0].address, [m.lock_token for m in messages]
    if act == "forget":
        return
    if act == "dead_letter" and address.subqueue:
        act = "complete"
    report = getattr(service_bus, act)(address, tokens, actor=client.actor())
    _note(client, act, address, report)
    if act == "defer":
        client.deferred.extend((address, number) for _, number in report.settled)
    if act == "renew":
        _settle(client, messages, "complete")


def _dead_letters(client: Client, address) -> None:
    if client.dice.random() < 0.3:
        messages = service_bus.peek(address, max_count=5, actor=client.actor())
        if messages:
            service_bus.resubmit(address, [m.sequence_number for m in messages], actor=client.actor())
        return
    held = service_bus.receive(address, 4, actor=client.actor())
    _got(client, held)
    _work_on(client, held)


def _in_a_session(client: Client) -> None:
    """Hold the next session, work through some of it in order, and let it go, or let its lock end."""
    client.count += 1
    actor = client.actor(f"-{client.count}")
    session = service_bus.accept_session(client.scene.address("talks"), max_count=client.dice.choice((0, 1, 3)), actor=actor)
    held = list(session.messages)
    for _ in range(client.dice.randint(1, 6)):
        _got(client, held)
        for message in held:
            act = client.dice.choices(("complete", "abandon", "defer", "forget"), (80, 8, 2, 4))[0]
            if act != "forget":
                _note(client, act, session.address, getattr(service_bus, act)(session.address, [message.lock_token], actor=actor))
            if act in ("abandon", "forget"):
                break  # what comes next in the session is this one again, once its lock has ended
        if client.dice.random() < 0.2:
            session = service_bus.renew_session(session, actor=actor)
        if client.dice.random() < 0.03:
            time.sleep(LOCK.total_seconds())
        held = service_bus.receive_from_session(session, client.dice.randint(1, 4), actor=actor)
    _got(client, held)
    if client.dice.random() < 0.9:
        service_bus.close_session(session, actor=actor)


def meddle(client: Client) -> None:
    """Renew locks that others hold and are about to settle, and settle a few of them."""
    chosen = [client.recent[i] for i in range(-1, -min(len(client.recent), 6) - 1, -1)]
    if not chosen:
        time.sleep(0.002)
        return
    address = chosen[0][0]
    tokens = [token for where, token in chosen if where == address]
    act = client.dice.choices(("renew", "complete", "abandon", "release"), (90, 3, 3, 2))[0]
    _note(
        client,
        act,
        address,
        getattr(service_bus, act)(address, tokens[: client.dice.randint(1, len(tokens))], actor=client.actor()),
    )


ACTS = {"sender": send, "receiver": receive, "meddler": meddle}

# The rest


def come_to_rest(scene: Scene) -> None:
    """What was scheduled is due: it is enqueued, published and forwarded."""
    time.sleep(SCHEDULED_SECONDS)
    sweeps.activate_scheduled()
    service_bus.sweeps.forward_messages()


def drain(scene: Scene) -> None:
    """Receive and remove what there is now."""
    sweeps.activate_scheduled()
    service_bus.sweeps.forward_messages()
    for path in scene.received_from:
        _drain_list(scene.address(path))
    for path in scene.all_paths:
        _drain_list(scene.address(path).dead_letter)
    if "sessions" in scene.kinds:
        _drain_sessions(scene.address("talks"))


def _drain_list(address: EntityAddress) -> None:
    if address.path == "topic":
        return
    while service_bus.receive_and_delete(address, 500):
        pass
    _complete_deferred(address)


def _complete_deferred(address: EntityAddress) -> None:
    for message in service_bus.peek(address, max_count=500):
        if message.state == MessageState.DEFERRED:
            try:
                held = service_bus.receive_deferred(address, [message.sequence_number])
            except BrokerError:
                continue  # still locked, or expired
            service_bus.complete(address, [m.lock_token for m in held])


def _drain_sessions(address: EntityAddress) -> None:
    while True:
        try:
            session = service_bus.accept_session(address)
        except NoSessionAvailable:
            break
        while service_bus.receive_and_delete_from_session(session, 500):
            pass
        service_bus.close_session(session)
    deferred = [m for m in service_bus.peek(address, max_count=500) if m.state == MessageState.DEFERRED]
    for session_id in {m.session_id for m in deferred}:
        try:
            session = service_bus.accept_session(address, session_id)
            numbers = [m.sequence_number for m in deferred if m.session_id == session_id]
            held = service_bus.receive_deferred(address, numbers, session=session)
            service_bus.complete(address, [m.lock_token for m in held])
            service_bus.close_session(session)
        except BrokerError:
            continue
