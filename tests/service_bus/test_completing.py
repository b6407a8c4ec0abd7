"""receive(completing=...): the last messages are completed in the transaction that receives the next."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from broker_core import service_bus
from broker_core.common.errors import EntityDisabled, EntityNotFound, InvalidArgument, NotAllowed, NotAuthorized
from broker_core.common.lock_tokens import SettleReport
from broker_core.common.types import Actor, EntityStatus, Right
from broker_core.runtime import entity_cache
from broker_core.service_bus import entities
from broker_core.service_bus.messages.renewal import renewer
from broker_core.service_bus.rules.values import Message, Received
from broker_core.store import aio, connections
from tests.broker_state import bodies, entity_id, events, ledger_agrees
from tests.cancellation import cancelled


@pytest.fixture
def held(queue):
    """The first three of eight messages, received."""
    service_bus.send(queue, [Message(str(n).encode()) for n in range(8)])
    return tokens(service_bus.receive(queue, 3))


def tokens(messages):
    return [message.lock_token for message in messages]


@pytest.fixture(params=["thread", "task"])
def receive(request):
    """service_bus.receive, called by a thread or a task."""

    async def in_loop(*args, **kwargs):
        try:
            return await service_bus.receive.aio(*args, **kwargs)
        finally:
            await aio.close()

    return service_bus.receive if request.param == "thread" else lambda *args, **kwargs: asyncio.run(in_loop(*args, **kwargs))


def test_messages_are_completed_and_the_next_messages_received(queue, held, receive):
    """SB-080, SB-061"""
    messages = receive(queue, 2, completing=held)
    assert isinstance(messages, Received) and isinstance(messages, list)
    assert bodies(messages) == ["3", "4"]
    assert messages.completed == SettleReport(tuple((token, n) for n, token in enumerate(held, 1)), ())
    assert bodies(service_bus.peek(queue)) == list("34567")
    assert len(service_bus.complete(queue, tokens(messages)).settled) == 2
    assert ledger_agrees(queue)


def test_completing_and_receiving_is_one_transaction(queue, held, receive):
    receive(queue, 2, completing=held)
    last = events(queue)[-5:]
    assert len({event.xid for event in last}) == 1
    assert len({event.kind for event in last}) == 2


def test_a_whole_queue_is_drained_without_completing_separately(queue, receive):
    service_bus.send(queue, [Message(str(n).encode()) for n in range(50)])
    messages, seen = receive(queue, 7, completing=[]), []
    while messages:
        seen += bodies(messages)
        last, messages = len(messages), receive(queue, 7, completing=tokens(messages))
        assert len(messages.completed.settled) == last
    assert seen == [str(n) for n in range(50)]
    assert service_bus.peek(queue) == [] and ledger_agrees(queue)


def test_foreign_doubled_unknown_and_lost_tokens_are_reported_and_the_rest_is_completed(queue, make_queue, held, step, receive):
    """SB-070, SB-071: reported as by complete; nothing is raised, and the next messages come."""
    other = make_queue()
    service_bus.send(other, [Message()] * 3)
    foreign = tokens(service_bus.receive(other, 3))
    wrong = [foreign[1], UUID(int=held[1].int ^ (1 << 127)), uuid4()]
    messages = receive(queue, 1, completing=[held[0], wrong[0], held[0], wrong[1], held[2], wrong[2]])
    assert messages.completed == SettleReport(((held[0], 1), (held[2], 3)), tuple(wrong))
    assert bodies(messages) == ["3"]
    step(timedelta(minutes=2))
    messages = receive(queue, 1, completing=[held[1]])
    assert messages.completed == SettleReport((), (held[1],))
    assert bodies(messages) == ["1"]


def test_a_single_lost_token_is_reported_too(queue, held, receive):
    lost = uuid4()
    messages = receive(queue, completing=lost)
    assert (bodies(messages), messages.completed.lost) == (["3"], (lost,))
    assert receive(queue, completing=str(held[0])).completed.settled == ((held[0], 1),)


def test_without_tokens_the_call_is_a_plain_receive(queue, held, receive):
    messages = receive(queue, 1, completing=[])
    assert (bodies(messages), messages.completed) == (["3"], SettleReport((), ()))
    assert type(receive(queue, 1)) is list


def test_invalid_arguments_change_nothing(queue, held, receive):
    for problem, args in (
        (InvalidArgument, {"max_count": 0, "completing": held}),
        (InvalidArgument, {"completing": [*held, "no token"]}),
        (NotAuthorized, {"completing": held, "actor": Actor("key", "Sender", Right.SEND)}),
    ):
        with pytest.raises(problem):
            receive(queue, **args)
    assert len(service_bus.complete(queue, held).settled) == 3


def test_an_entity_that_refuses_receives_completes_nothing(queue, held, receive):
    entities.update_queue(queue, status=EntityStatus.RECEIVE_DISABLED)
    with pytest.raises(EntityDisabled):
        receive(queue, completing=held)
    entities.update_queue(queue, status=EntityStatus.ACTIVE)
    assert len(service_bus.complete(queue, held).settled) == 3


def test_an_entity_with_sessions_is_refused(make_queue, receive):
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(session_id="a")])
    session = service_bus.accept_session(queue, max_count=1)
    with pytest.raises(NotAllowed):
        receive(queue, completing=tokens(session.messages))
    assert len(service_bus.complete(queue, tokens(session.messages)).settled) == 1


def test_without_a_next_message_the_tokens_are_completed_before_the_wait(queue, receive):
    service_bus.send(queue, [Message()])
    held = tokens(service_bus.receive(queue))
    messages = receive(queue, completing=held, max_wait_seconds=0.2)
    assert (list(messages), messages.completed.settled) == ([], ((held[0], 1),))
    assert service_bus.peek(queue) == []


def test_a_recreated_queue_completes_only_its_own_messages(queue, receive):
    """Its address is known with the id of the deleted one."""
    service_bus.send(queue, [Message(b"old")])
    service_bus.receive(queue)
    known = dict(entity_cache._entities)
    entities.delete_queue(queue)
    entities.create_queue(queue)
    service_bus.send(queue, [Message(b"a"), Message(b"b")])
    held = tokens(service_bus.receive(queue))
    entity_cache._entities.update(known)
    messages = receive(queue, completing=held)
    assert (bodies(messages), messages.completed.settled) == (["b"], ((held[0], 1),))
    entities.delete_queue(queue)
    with pytest.raises(EntityNotFound):
        receive(queue, completing=tokens(messages))


def test_dead_letters_can_be_completed_with_a_receive(queue, held, receive):
    service_bus.dead_letter(queue, held)
    dead = tokens(receive(queue.dead_letter, 2))
    messages = receive(queue.dead_letter, 2, completing=dead)
    assert (bodies(messages), len(messages.completed.settled)) == (["2"], 2)
    assert ledger_agrees(queue)


def test_completed_messages_are_not_renewed(queue, receive):
    service_bus.send(queue, [Message()] * 2)
    held = tokens(service_bus.receive(queue, auto_renew=timedelta(minutes=5)))
    messages = receive(queue, completing=held, auto_renew=timedelta(minutes=5))
    assert held[0] not in renewer.tokens() and messages[0].lock_token in renewer.tokens()
    service_bus.complete(queue, tokens(messages))


def test_completing_and_receiving_is_part_of_a_callers_transaction(queue, held):
    with transaction.atomic(), connections.callers_transaction():
        messages = service_bus.receive(queue, 2, completing=held)
        assert (bodies(messages), len(messages.completed.settled)) == (["3", "4"], 3)
        transaction.set_rollback(True)
    assert len(service_bus.complete(queue, held).settled) == 3
    assert bodies(service_bus.receive(queue, 2)) == ["3", "4"]


async def test_a_cancelled_call_releases_its_messages_and_its_completions_are_all_or_nothing(queue):
    """Either both were done and the next messages released, or neither."""
    service_bus.send(queue, [Message()] * 60)
    for _ in range(20):
        held = tokens(service_bus.receive(queue, 1))
        quick = await cancelled([service_bus.receive.aio(queue, 2, completing=held)])
        for found in quick:
            assert len(found.completed.settled) == 1
            service_bus.release(queue, tokens(found))
        service_bus.complete(queue, held)
    await aio.close()
    assert all(message.delivery_count == 0 for message in service_bus.peek(queue, max_count=100))
    text = "SELECT count(*) AS n FROM vitrine_message WHERE entity_id = %s AND locked_until IS NOT NULL"
    assert connections.current().execute(text, [entity_id(queue)]).fetchone().n == 0
    assert len(service_bus.peek(queue, max_count=100)) == 40 and ledger_agrees(queue)
