"""Concurrent sends and settlements of threads and tasks, combined on a real database: who is told what, and what is left."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import transaction

from broker_core import service_bus
from broker_core.common.errors import (
    EntityDisabled,
    InvalidArgument,
    LockLost,
    MessageTooLarge,
    NotAuthorized,
    SessionLockLost,
)
from broker_core.common.lock_tokens import SettleReport
from broker_core.common.types import Actor, EntityStatus, Right
from broker_core.service_bus import entities
from broker_core.service_bus.messages import sending, settling
from broker_core.service_bus.messages.renewal import renewer
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections
from broker_core.store.driver import Atomically, run
from tests.broker_state import bodies, entity_id, events, ledger_agrees
from tests.eventually import eventually

KEY = Actor("key", "Root", Right.ALL)


@pytest.fixture
def groups(monkeypatch):
    """The sizes of the groups that were made, in calls: of sends and of settlements."""
    made = []
    for gathering in (sending._sends, settling._settlements):
        together = gathering._together
        monkeypatch.setattr(
            gathering, "_together", lambda key, calls, make=together: (made.append(len(calls)), make(key, calls))[1]
        )
    return made


@pytest.fixture
def pool():
    with ThreadPoolExecutor(40) as found:
        yield found


class InThreads:
    def __init__(self, pool):
        self._pool = pool

    def begin(self, case, *args, **kwargs) -> Future:
        return self._pool.submit(case, *args, **kwargs)


class InTasks:
    def __init__(self, loop):
        self._loop = loop

    def begin(self, case, *args, **kwargs) -> Future:
        return asyncio.run_coroutine_threadsafe(case.aio(*args, **kwargs), self._loop)


@pytest.fixture(params=["threads", "tasks"])
def callers(request, pool):
    if request.param == "threads":
        yield InThreads(pool)
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield InTasks(loop)
    asyncio.run_coroutine_threadsafe(aio.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@contextmanager
def slow(statement, *params):
    """While the block runs, rows that this statement locks are held by another connection."""
    with psycopg.connect(**connections.current_database().parameters() | {"autocommit": False}) as other:
        other.execute(statement, params)
        yield
        other.rollback()


def slow_sends(queue):
    return slow("SELECT FROM vitrine_entity_counter WHERE entity_id = %s FOR UPDATE", entity_id(queue))


def slow_settlements(queue):
    """Of the first message of the queue."""
    text = "SELECT FROM vitrine_message WHERE entity_id = %s ORDER BY sequence_number LIMIT 1 FOR UPDATE"
    return slow(text, entity_id(queue))


def waiting(count):
    """Wait until so many calls wait for others to be made."""

    def are_waiting():
        lines = [
            line
            for gathering in (sending._sends, settling._settlements)
            for line in [*gathering._of_threads.values(), *gathering._of_tasks.values()]
        ]
        return any(lines) and sum(len(line.waiting) for line in lines) == count

    eventually(are_waiting)


def gathered(callers, slowly, first, calls):
    """The outcomes of calls that are made together while a first one is slow: each a result or an exception."""
    with slowly:
        futures = [callers.begin(*first)]
        waiting(0)
        for n, (case, *args) in enumerate(calls, 1):
            futures.append(callers.begin(case, *args))
            waiting(n)
    return [future.exception(20) or future.result() for future in futures]


def sends(queue, *batches):
    return [(service_bus.send, queue, [Message(text.encode()) for text in batch]) for batch in batches]


# Sends


def test_concurrent_sends_are_one_statement_and_keep_their_order(queue, callers, groups):
    first, *others = sends(queue, "a", "bc", "d", "", "ef")
    assert gathered(callers, slow_sends(queue), first, [each for each in others if each[2]]) == [[1], [2, 3], [4], [5, 6]]
    assert groups == [1, 3]
    assert bodies(service_bus.peek(queue)) == list("abcdef")
    assert [event.sequence_number for event in events(queue)] == [1, 2, 3, 4, 5, 6]
    assert ledger_agrees(queue)


def test_an_empty_send_does_not_wait(queue, callers):
    with slow_sends(queue):
        first = callers.begin(service_bus.send, queue, [Message(b"a")])
        waiting(0)
        assert callers.begin(service_bus.send, queue, []).result(5) == []
    assert first.result(5) == [1]


def test_a_refused_send_does_not_affect_the_others(queue, callers, groups):
    too_large = (service_bus.send, queue, [Message(b"x" * 300 * 1024)])
    first, b, c = sends(queue, "a", "b", "c")
    outcomes = gathered(callers, slow_sends(queue), first, [b, too_large, c])
    assert [outcomes[0], outcomes[1], outcomes[3]] == [[1], [2], [3]]
    assert isinstance(outcomes[2], MessageTooLarge)
    assert groups == [1, 3, 1, 1, 1]


def test_invalid_sends_never_join_a_group(queue, callers, groups):
    with slow_sends(queue):
        first = callers.begin(service_bus.send, queue, [Message(b"a")])
        waiting(0)
        for actor, message, problem in (
            (KEY, Message(message_id="x" * 129), InvalidArgument),
            (Actor("key", "Listener", Right.LISTEN), Message(b"x"), NotAuthorized),
        ):
            with pytest.raises(problem):
                callers.begin(service_bus.send, queue, [message], actor=actor).result(5)
    assert first.result(5) == [1] and groups == [1]


def test_dropped_duplicates_are_reported_to_their_senders(make_queue, callers, groups):
    """SB-131, SB-135: a batch with one of them, a batch of nothing else, and what came before and after."""
    queue = make_queue(requires_duplicate_detection=True)
    first, *others = [
        (service_bus.send, queue, [Message(message_id=text) for text in batch]) for batch in ("a", "ab", "a", "bcb", "d")
    ]
    assert gathered(callers, slow_sends(queue), first, others) == [[1], [None, 2], [None], [None, 3, None], [4]]
    assert groups == [1, 4]


def test_sends_of_different_actors_are_not_combined(queue, callers, groups):
    """Each event names its own actor; the holder, which is the client's place, makes no difference."""
    with slow_sends(queue):
        futures = [callers.begin(service_bus.send, queue, [Message()], actor=Actor("key", "Root", Right.ALL))]
        waiting(0)
        for n in range(3):
            futures.append(
                callers.begin(service_bus.send, queue, [Message()], actor=Actor("key", "Root", Right.ALL, holder=str(n)))
            )
        waiting(3)
        futures.append(callers.begin(service_bus.send, queue, [Message()], actor=Actor("key", "Other", Right.ALL)))
        eventually(lambda: len(groups) == 2)
    assert sorted(number for future in futures for number in future.result(5)) == [1, 2, 3, 4, 5]
    assert groups == [1, 1, 3]
    assert sorted(event.actor for event in events(queue)) == ["key:Other"] + ["key:Root"] * 4


def test_a_disabled_entity_refuses_each_send(queue, callers):
    first, *others = sends(queue, "a", "b", "c")
    with slow_sends(queue):
        futures = [callers.begin(*first)]
        waiting(0)
        futures += [callers.begin(*each) for each in others]
        waiting(2)
        entities.update_queue(queue, status=EntityStatus.SEND_DISABLED)
    assert [type(future.exception(20)) for future in futures[1:]] == [EntityDisabled] * 2


def test_sends_in_the_callers_transaction_are_never_combined(queue, pool, groups):
    """Sends within a caller's transaction are part of it, and of no other's statement."""
    with transaction.atomic(), connections.callers_transaction():
        assert service_bus.send(queue, [Message(b"mine")]) == [1]
        others = [pool.submit(*each) for each in sends(queue, "b", "c")]
        waiting(1)
        assert service_bus.send(queue, [Message(b"mine too")]) == [2]
        transaction.set_rollback(True)
    assert sorted(number for future in others for number in future.result(10)) == [1, 2]
    assert groups == [1, 1, 1, 1]
    assert sorted(bodies(service_bus.peek(queue))) == ["b", "c"]


def test_a_send_within_a_broker_transaction_is_never_combined(queue, pool, groups):
    def steps():
        numbers = yield from service_bus.send.steps(queue, [Message(b"a")])
        futures.extend(pool.submit(*each) for each in sends(queue, "b", "c"))
        waiting(1)
        return numbers + (yield from service_bus.send.steps(queue, [Message(b"d")]))

    futures: list[Future] = []

    def atomically():
        return (yield Atomically(steps()))

    assert run(atomically()) == [1, 2]
    assert sorted(number for future in futures for number in future.result(10)) == [3, 4]
    assert groups == [1, 1, 1, 1]


def test_many_threads_and_tasks_that_send_and_settle_lose_no_messages(queue, pool, groups):
    """Each sender's messages keep its order; numbers have no gaps; each message is completed once."""

    def send_some(who):
        return [service_bus.send(queue, [Message(f"{who}-{n}".encode())])[0] for n in range(10)]

    async def send_some_aio(who):
        return [(await service_bus.send.aio(queue, [Message(f"{who}-{n}".encode())]))[0] for n in range(10)]

    async def send_all():
        try:
            return await asyncio.gather(*[send_some_aio(who) for who in range(16, 32)])
        finally:
            await aio.close()

    in_threads = [pool.submit(send_some, who) for who in range(16)]
    numbers = asyncio.run(send_all()) + [future.result(30) for future in in_threads]
    assert all(each == sorted(each) for each in numbers)
    assert sorted(sum(numbers, [])) == list(range(1, 321))
    assert len(groups) < 320
    held = service_bus.receive(queue, 320)
    reports = pool.map(lambda message: service_bus.complete(queue, message.lock_token), held)
    assert sorted(number for report in reports for _, number in report.settled) == list(range(1, 321))
    assert service_bus.peek(queue) == [] and ledger_agrees(queue)


# Settlements


@pytest.fixture
def held(queue):
    service_bus.send(queue, [Message(str(n).encode()) for n in range(8)])
    return [message.lock_token for message in service_bus.receive(queue, 8)]


def unknown(token: UUID) -> UUID:
    """A token of the same message that was never given."""
    return UUID(int=token.int ^ (1 << 127))


def complete(queue, *tokens):
    return service_bus.complete, queue, list(tokens)


def test_concurrent_settlements_are_one_statement_with_separate_results(queue, held, callers, groups):
    calls = [complete(queue, held[1]), complete(queue, held[2], held[3]), (service_bus.complete, queue, held[4])]
    outcomes = gathered(callers, slow_settlements(queue), complete(queue, held[0]), calls)
    assert outcomes == [
        SettleReport(((held[0], 1),), ()),
        SettleReport(((held[1], 2),), ()),
        SettleReport(((held[2], 3), (held[3], 4)), ()),
        SettleReport(((held[4], 5),), ()),
    ]
    assert groups[-2:] == [1, 3]
    assert bodies(service_bus.peek(queue)) == ["5", "6", "7"] and ledger_agrees(queue)


def test_foreign_duplicate_and_unknown_tokens_are_reported_to_their_callers(queue, make_queue, held, callers):
    """SB-071: among good tokens, in a group; nothing is changed for them."""
    other = make_queue()
    service_bus.send(other, [Message()] * 8)
    foreign = [message.lock_token for message in service_bus.receive(other, 8)]
    never = unknown(held[5])
    calls = [
        complete(queue, held[1], foreign[1], held[2]),
        complete(queue, held[2], held[3], held[3], never),  # held[2] was given by the caller before, too
        complete(queue, never, foreign[4], uuid4()),
        (service_bus.complete, queue, held[1]),
        (service_bus.complete, queue, foreign[6]),
        complete(queue, held[4]),
    ]
    first, one, two, three, four, five, six = gathered(callers, slow_settlements(queue), complete(queue, held[0]), calls)
    assert first == SettleReport(((held[0], 1),), ())
    assert one == SettleReport(((held[1], 2), (held[2], 3)), (foreign[1],))
    assert two == SettleReport(((held[3], 4),), (held[2], never))
    assert three.settled == () and three.lost == tuple(calls[2][2])
    assert [type(four), four.tokens, type(five), five.tokens] == [LockLost, (held[1],), LockLost, (foreign[6],)]
    assert six == SettleReport(((held[4], 5),), ())
    assert bodies(service_bus.peek(queue)) == ["5", "6", "7"]
    assert len(service_bus.complete(other, foreign).settled) == 8  # nothing was changed there
    assert ledger_agrees(queue)


def test_an_empty_settlement_does_not_wait_and_an_invalid_token_is_refused_immediately(queue, held, callers, groups):
    with slow_settlements(queue):
        first = callers.begin(*complete(queue, held[0]))
        waiting(0)
        assert callers.begin(*complete(queue)).result(5) == SettleReport((), ())
        with pytest.raises(InvalidArgument, match="must be a UUID"):
            callers.begin(*complete(queue, held[1], "no token")).result(5)
    assert first.result(5).settled == ((held[0], 1),)
    assert groups[-1:] == [1]


@pytest.mark.parametrize(
    ("case", "options"),
    [
        (service_bus.abandon, ()),
        (service_bus.abandon, ({"tried": 1},)),
        (service_bus.release, ()),
        (service_bus.defer, ({"later": True},)),
        (service_bus.dead_letter, ("Rejected", "by the test")),
        (service_bus.renew, ()),
    ],
)
def test_only_settlements_of_the_same_kind_are_combined(queue, held, callers, groups, case, options):
    calls = [(case, queue, [token], *options) for token in held[1:4]] + [complete(queue, held[4])]
    outcomes = gathered_beside(callers, queue, (case, queue, [held[0]], *options), calls)
    assert [report.settled for report in outcomes] == [((token, n),) for n, token in enumerate(held[:5], 1)]
    assert all(report.lost == () for report in outcomes)
    assert sorted(groups[-3:]) == [1, 1, 3]
    left = {message.sequence_number: message for message in service_bus.peek(queue)}
    if case is service_bus.dead_letter:
        dead = service_bus.peek(queue.dead_letter)
        assert {(message.dead_letter_reason, message.dead_letter_description) for message in dead} == {options}
    elif options:
        assert {n for n, message in left.items() if message.properties} == {1, 2, 3, 4}
    if case is service_bus.renew:
        assert {report.locked_until for report in outcomes[1:4]} == {outcomes[1].locked_until} != {None}
        assert outcomes[1].lock_duration == timedelta(minutes=1)
    assert ledger_agrees(queue)


def gathered_beside(callers, queue, first, calls):
    """As `gathered`; the last call has another key, so it waits for the row itself."""
    with slow_settlements(queue):
        futures = [callers.begin(*first)]
        waiting(0)
        for n, each in enumerate(calls[:-1], 1):
            futures.append(callers.begin(*each))
            waiting(n)
        futures.append(callers.begin(*calls[-1]))
    return [future.exception(20) or future.result() for future in futures]


def test_settlements_with_different_properties_are_not_combined(queue, held, callers, groups):
    calls = [(service_bus.abandon, queue, [token], {"n": n}) for n, token in enumerate(held[:3])]
    with slow_settlements(queue):
        futures = [callers.begin(*each) for each in calls]
        eventually(lambda: len(groups) == 3)
    assert [len(future.result(5).settled) for future in futures] == [1, 1, 1]
    assert {message.properties.get("n") for message in service_bus.peek(queue)} == {0, 1, 2, None}


def test_a_renewal_requested_twice_is_reported_to_both_callers(queue, held, callers):
    calls = [
        (service_bus.renew, queue, held[1]),
        (service_bus.renew, queue, held[1]),
        (service_bus.renew, queue, [unknown(held[2])]),
    ]
    _, one, two, lost = gathered(callers, slow_settlements(queue), (service_bus.renew, queue, held[0]), calls)
    assert one == two and one.settled == ((held[1], 2),)
    assert lost == SettleReport((), (unknown(held[2]),))  # and no new end of a lock


def test_a_lost_session_is_reported_to_the_callers_with_its_tokens(make_queue, step, callers):
    """SB-117: a token raises SessionLockLost; a list has it in its report."""
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(session_id="kept")] + [Message(session_id="lost")] * 2 + [Message(session_id="kept")])
    kept, lost = (service_bus.accept_session(queue, name, max_count=2) for name in ("kept", "lost"))
    step(timedelta(seconds=40))
    service_bus.renew_session(kept)
    step(timedelta(seconds=40))
    (a, d), (b, c) = ([message.lock_token for message in session.messages] for session in (kept, lost))
    calls = [(service_bus.complete, queue, b), complete(queue, c, d), complete(queue, unknown(d))]
    first, one, two, three = gathered(callers, slow_settlements(queue), complete(queue, a), calls)
    assert [len(first.settled), type(one), one.session_id] == [1, SessionLockLost, "lost"]
    assert two == SettleReport(((d, 4),), (c,), lost_sessions=((c, str(queue), "lost"),))
    assert (three.lost, three.lost_sessions) == ((unknown(d),), ())


def test_properties_too_large_for_one_message_do_not_affect_the_other(queue, callers):
    """MessageTooLarge changes nothing for its caller, and the other is settled (SB-083)."""
    full = {f"p{n}": "x" * 3000 for n in range(20)}
    service_bus.send(queue, [Message(b"a"), Message(b"b", properties=full), Message(b"c")])
    a, b, c = [message.lock_token for message in service_bus.receive(queue, 3)]
    calls = [(service_bus.defer, queue, [token], {"more": "y" * 8000}) for token in (a, b, c)]
    outcomes = gathered(callers, slow_settlements(queue), calls[0], calls[1:])
    assert [outcomes[0].settled, outcomes[2].settled] == [((a, 1),), ((c, 3),)]
    assert isinstance(outcomes[1], MessageTooLarge)
    assert len(service_bus.complete(queue, [b]).settled) == 1


def test_a_disabled_entity_refuses_each_settlement(queue, held, callers):
    with slow_settlements(queue):
        futures = [callers.begin(*complete(queue, held[0]))]
        waiting(0)
        futures += [callers.begin(*complete(queue, token)) for token in held[1:3]]
        waiting(2)
        entities.update_queue(queue, status=EntityStatus.RECEIVE_DISABLED)
    first, *others = [future.exception(20) for future in futures]
    assert first is None or isinstance(first, EntityDisabled)
    assert [type(each) for each in others] == [EntityDisabled] * 2


def test_locks_that_were_settled_by_another_callers_statement_are_not_renewed(queue, callers):
    """SB-064: the renewal of each ends with its settlement."""
    service_bus.send(queue, [Message()] * 4)
    tokens = [message.lock_token for message in service_bus.receive(queue, 4, auto_renew=timedelta(minutes=5))]
    assert set(tokens) <= set(renewer.tokens())
    gathered(callers, slow_settlements(queue), complete(queue, tokens[0]), [complete(queue, token) for token in tokens[1:]])
    assert not set(tokens) & set(renewer.tokens())
