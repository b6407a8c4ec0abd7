"""How calls of many threads and tasks become few: against a server that only notes what it is asked (no database).

Each test runs with threads and with tasks of an event loop, unless its name says which.
"""

import asyncio
import linecache
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.common.errors import BrokerError, BrokerUnavailable, MessageTooLarge, QuotaExceeded, ServerBusy, StorageFull
from broker_core.runtime import gathering
from broker_core.runtime.gathering import FEWEST_IN_A_GROUP, MOST_IN_A_GROUP, Gathering
from broker_core.store.connections import Database, using
from tests.eventually import eventually, eventually_aio

KEY = "orders"


class Server:
    """Answers each argument by "argument!", after a statement, which lasts while `gate` is closed. An argument in `refusals` is
    refused with its whole statement; `failure` fails any. `interrupted`: the arguments of a statement that is interrupted."""

    def __init__(self):
        self.statements: list[tuple[Any, list[Any]]] = []
        self.gate, self.refusals, self.failure, self.interrupted = threading.Event(), {}, None, None
        self.gate.set()
        self.now = self.seconds_for_each = 0.0

    @property
    def asked(self) -> list[list[Any]]:
        return [arguments for _, arguments in self.statements]

    def together(self, key, arguments):
        yield key, list(arguments)
        return [f"{argument}!" for argument in arguments]

    def drive(self, steps) -> Any:
        return self._drive(steps, self._begin)

    def _drive(self, steps, begin) -> Any:
        try:
            step = next(steps)
            while True:
                begin(step)
                self.gate.wait()
                step = self._end(steps, step)
        except StopIteration as end:
            return end.value

    async def drive_aio(self, steps) -> Any:
        try:
            step = next(steps)
            while True:
                self._begin(step)
                await asyncio.sleep(0)
                while not self.gate.is_set():
                    await asyncio.sleep(0.001)
                step = self._end(steps, step)
        except StopIteration as end:
            return end.value

    def _begin(self, step) -> None:
        self.statements.append(step)

    def _end(self, steps, step):
        key, arguments = step
        self.now += self.seconds_for_each * len(arguments)
        if arguments == self.interrupted:
            raise KeyboardInterrupt
        if self.failure:
            return steps.throw(self.failure)
        for argument in arguments:
            if argument in self.refusals:
                return steps.throw(self.refusals[argument])
        return steps.send(None)


class Callers:
    """Begins calls, each in a thread or a task of its own. The outcome of each is a Future."""

    def __init__(self, server: Server, size_of: Callable[[Any], int] = lambda _: 1):
        self.gathering: Gathering = Gathering(server.together, size_of=size_of)
        self.server = server

    def begin(self, argument: Any, key: Any = KEY) -> Future:
        """Begin a call, and wait until its statement runs or it waits for others.

        Only calls with this argument are counted: another one may leave the line meanwhile.
        """
        waiting, asked = self.count(argument), len(self.server.statements)
        future = self._begin(key, argument)
        eventually(lambda: future.done() or self.count(argument) > waiting or len(self.server.statements) > asked)
        return future

    def count(self, argument: Any) -> int:
        """How many calls with this argument are waiting."""
        return sum(call.argument == argument for line in list(self._lines().values()) for call in list(line.waiting))


class Threads(Callers):
    def __enter__(self):
        self.pool = ThreadPoolExecutor(1200)
        return self

    def __exit__(self, *exc):
        self.server.gate.set()
        self.pool.shutdown()

    def _begin(self, key, argument):
        return self.pool.submit(self.gathering.run, key, argument, self.server.drive)

    def _lines(self):
        return self.gathering._of_threads


class Tasks(Callers):
    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.server.gate.set()
        asyncio.run_coroutine_threadsafe(self._rest(), self.loop).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    @staticmethod
    async def _rest() -> None:
        """Let the tasks end that are still there."""
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    def _begin(self, key, argument):
        return asyncio.run_coroutine_threadsafe(self.gathering.run_aio(key, argument, self.server.drive_aio), self.loop)

    def _lines(self):
        return self.gathering._of_tasks


@pytest.fixture
def server():
    return Server()


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "tasks"])
def callers(request, server):
    with request.param(server) as found:
        yield found


@pytest.fixture
def threads(server):
    with Threads(server) as found:
        yield found


def queued(callers, arguments) -> list[Future]:
    """Calls that wait while another, "first", is being made."""
    callers.server.gate.clear()
    return [callers.begin("first"), *[callers.begin(argument) for argument in arguments]]


def outcomes(futures) -> list[Any]:
    """What each call returned or raised."""
    done, left = wait(futures, timeout=20)
    assert not left, "some calls have no outcome"
    return [future.exception() or future.result() for future in futures]


def released(callers, futures) -> list[Any]:
    callers.server.gate.set()
    return outcomes(futures)


def test_a_single_call_runs_immediately(callers, server):
    assert outcomes([callers.begin("a")]) == ["a!"]
    assert server.statements == [(KEY, ["a"])]
    assert not callers._lines()  # nothing is kept for an entity that nobody uses


def test_calls_during_a_running_call_are_combined_in_order(callers, server):
    futures = queued(callers, "bcd")
    assert server.asked == [["first"]]
    assert released(callers, futures) == ["first!", "b!", "c!", "d!"]
    assert server.asked == [["first"], ["b", "c", "d"]]
    assert not callers._lines()


def test_calls_with_different_keys_do_not_wait_for_each_other(callers, server):
    server.gate.clear()
    futures = [callers.begin("a"), callers.begin("b", key="others")]
    with using(Database(alias="elsewhere")):
        if isinstance(callers, Threads):
            elsewhere = lambda: in_database(callers, "c")  # noqa: E731
            futures.append(callers.pool.submit(elsewhere))
        else:
            futures.append(callers._begin(KEY, "c"))
    eventually(lambda: len(server.statements) == 3)
    assert released(callers, futures) == ["a!", "b!", "c!"]


def in_database(callers, argument):
    with using(Database(alias="elsewhere")):
        return callers.gathering.run(KEY, argument, callers.server.drive)


@pytest.mark.parametrize("callers", [Threads, Tasks], indirect=True)
def test_a_group_has_a_maximum_size_and_a_larger_call_runs_alone(callers, server):
    callers.gathering._size_of = lambda argument: argument if isinstance(argument, int) else 1
    assert len(released(callers, queued(callers, [1, 300, 199, 1, 600, 1]))) == 7
    assert server.asked == [["first"], [1, 300, 199], [1], [600], [1]]


@pytest.mark.parametrize(
    ("seconds", "groups"), [(0.001, [500, 500]), (0.01, [500, 100, 100, 100, 100, 100]), (5, [500] + [10] * 50)]
)
def test_the_size_of_groups_is_limited_by_the_time_of_a_second(server, monkeypatch, seconds, groups):
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: server.now))
    server.seconds_for_each = seconds

    async def send_all():
        combined = Gathering(server.together, size_of=lambda _: 1)
        await asyncio.gather(*[combined.run_aio(KEY, n, server.drive_aio) for n in range(1001)])

    asyncio.run(send_all())
    assert [len(arguments) for arguments in server.asked] == [1, *groups]
    assert max(groups) == MOST_IN_A_GROUP and min(groups) >= FEWEST_IN_A_GROUP


def test_groups_grow_again_after_a_slow_statement(server, monkeypatch):
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: server.now))
    server.seconds_for_each = 5

    async def send_all():
        combined = Gathering(server.together, size_of=lambda _: 1)
        calls = [asyncio.ensure_future(combined.run_aio(KEY, n, server.drive_aio)) for n in range(1021)]
        while len(server.statements) < 4:
            await asyncio.sleep(0)
        server.seconds_for_each = 0.001
        await asyncio.gather(*calls)

    asyncio.run(send_all())
    assert [len(arguments) for arguments in server.asked] == [1, 500, 10, 10, 500]


def test_a_refusal_reaches_only_its_caller_and_the_others_keep_their_order(callers, server):
    server.refusals = {"c": MessageTooLarge("message", 100, 99)}
    outcomes = released(callers, queued(callers, "bcd"))
    assert outcomes == ["first!", "b!", server.refusals["c"], "d!"]
    assert server.asked == [["first"], ["b", "c", "d"], ["b"], ["c"], ["d"]]


def test_each_caller_gets_its_own_refusal(callers, server):
    server.refusals = {argument: QuotaExceeded(argument, 2**20) for argument in "bd"}
    outcomes = released(callers, queued(callers, "bcd"))
    assert outcomes == ["first!", server.refusals["b"], "c!", server.refusals["d"]]


def test_an_outcome_may_be_an_exception_for_a_single_caller(callers, server):
    def together(key, arguments):
        yield key, arguments
        return [BrokerError(argument) if argument in "ac" else argument for argument in arguments]

    callers.gathering._together = together
    found = released(callers, queued(callers, "abc"))
    assert [str(outcome) for outcome in found] == ["first", "a", "b", "c"]
    assert [isinstance(outcome, BrokerError) for outcome in found] == [False, True, False, True]
    [lone] = outcomes([callers.begin("a")])
    assert isinstance(lone, BrokerError)
    assert len(server.statements) == 3


@pytest.mark.parametrize(
    "failure", [BrokerUnavailable("down"), ServerBusy("busy"), StorageFull("full"), RuntimeError("a defect")]
)
def test_a_server_failure_reaches_the_whole_group_without_a_retry(callers, server, failure):
    futures = queued(callers, "bc")
    server.failure = failure
    assert released(callers, futures) == [failure] * 3
    assert server.asked == [["first"], ["b", "c"]]
    server.failure = None
    assert outcomes([callers.begin("d")]) == ["d!"]


def test_a_refused_first_call_does_not_affect_the_others(callers, server):
    server.refusals = {"first": MessageTooLarge("message", 100, 99)}
    assert released(callers, queued(callers, "bc")) == [server.refusals["first"], "b!", "c!"]


# Order


def test_calls_of_a_thread_or_task_keep_their_order(server):
    """Also if some are refused and their groups split."""
    server.refusals = {(who, n): MessageTooLarge("message", 100, 99) for who in range(8) for n in range(0, 60, 7)}
    combined = Gathering(server.together, size_of=lambda _: 1)
    errors = []

    def work(who):
        for n in range(60):
            try:
                combined.run(KEY, (who, n), server.drive)
            except MessageTooLarge:
                errors.append((who, n))

    started = [threading.Thread(target=work, args=(who,)) for who in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(30)
    assert sorted(errors) == sorted(server.refusals)
    assert_in_order(server)


def test_calls_that_a_link_makes_without_awaiting_keep_their_order(server):
    server.refusals = {(0, n): MessageTooLarge("message", 100, 99) for n in (0, 30)}

    async def send_all():
        combined = Gathering(server.together, size_of=lambda _: 1)
        made = []
        for n in range(60):
            made += [asyncio.ensure_future(combined.run_aio(KEY, (who, n), server.drive_aio)) for who in range(8)]
            if n % 3 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*made, return_exceptions=True)

    asyncio.run(send_all())
    assert_in_order(server)
    assert len(server.statements) < 240


def assert_in_order(server):
    """What was accepted, by each caller: the last statement of each call made it."""
    last = {argument: at for at, arguments in enumerate(server.asked) for argument in arguments}
    for who in {who for who, _ in last}:
        places = [last[who, n] for n in range(60)]
        assert places == sorted(places)


# Interruption


@pytest.fixture
def no_checks(monkeypatch):
    """Nobody finds by looking that a leader is gone: whoever is interrupted must wake the next."""
    monkeypatch.setattr(gathering, "_CHECK_SECONDS", 3600)


def test_threads_a_leader_that_is_interrupted_leaves_its_group_unknown_and_the_next_thread_leads(threads, server, no_checks):
    futures = queued(threads, "bcd")
    threads.gathering._of_threads[first_key(threads)]._most = 2  # "b" and "c" are one group
    server.interrupted = ["b", "c"]
    first, b, c, d = released(threads, futures)
    assert (first, d) == ("first!", "d!")
    assert sorted([type(b), type(c)], key=str) == sorted([KeyboardInterrupt, BrokerUnavailable], key=str)
    assert "unknown" in str(b) + str(c)
    assert outcomes([threads.begin("e")]) == ["e!"]


def first_key(threads):
    return next(iter(threads.gathering._of_threads))


def test_threads_an_interrupted_first_caller_does_not_affect_the_others(threads, server, no_checks):
    futures = queued(threads, "bc")
    server.interrupted = ["first"]
    first, *others = released(threads, futures)
    assert isinstance(first, KeyboardInterrupt) and others == ["b!", "c!"]


@pytest.mark.parametrize("who", [0, 1, 2], ids=["next", "second", "last"])
def test_threads_an_interrupted_waiting_call_does_not_run_or_affect_the_others(threads, server, monkeypatch, no_checks, who):
    sleep = gathering._ThreadCall.sleep

    def interrupted(call):
        sleep(call)
        if call.argument == "bcd"[who] and not call.is_done:
            raise KeyboardInterrupt

    monkeypatch.setattr(gathering._ThreadCall, "sleep", interrupted)
    futures = queued(threads, "bcd")
    line = threads.gathering._of_threads[first_key(threads)]
    [call] = [call for call in line.waiting if call.argument == "bcd"[who]]
    call.wake()
    if who:  # the next in line is woken by the others' end instead, at the worst moment
        assert isinstance(outcomes([futures[1 + who]])[0], KeyboardInterrupt)
    found = released(threads, futures)
    assert isinstance(found[1 + who], KeyboardInterrupt)
    assert [outcome for outcome in found if isinstance(outcome, str)] == ["first!", *[f"{a}!" for a in "bcd" if a != "bcd"[who]]]
    assert "bcd"[who] not in sum(server.asked, [])


def test_threads_an_interruption_at_any_instant_never_blocks_the_others(server, monkeypatch):
    """One of four threads is interrupted before its n-th line of the module, for every n: each of the others is told its outcome,
    what is told as made was made, and the next call is made at once.

    Lines of `with` and `try` are spared: a real interruption comes after a call, never between a block and its `__exit__`.
    """
    at, ended = 0, False
    while not ended:
        at += 1
        ended = not interrupted_at(at, monkeypatch)
    assert at > 60  # a call has more lines than this


def interrupted_at(at: int, monkeypatch) -> bool:
    """Run four threads' calls and interrupt the second one at its line `at`. Returns whether it has so many.

    Nobody looks whether a leader is gone before one is: the second would be overtaken at times, and have fewer lines.
    """
    server = Server()
    interrupted = threading.Event()
    left = [at]

    def sleep(call):
        while not call._asleep.acquire(timeout=0.02) and not interrupted.is_set():
            pass

    monkeypatch.setattr(gathering._ThreadCall, "sleep", sleep)

    def count_lines(frame, event, _):
        if frame.f_code.co_filename != gathering.__file__:
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and left[0] > 0 and not text.startswith(("with ", "try:")):
            left[0] -= 1
            if not left[0]:
                interrupted.set()
                raise KeyboardInterrupt
        return count_lines

    def with_trace(argument):
        sys.settrace(count_lines)
        try:
            return threads.gathering.run(KEY, argument, server.drive)
        finally:
            sys.settrace(None)

    with Threads(server) as threads:
        server.gate.clear()
        futures = [threads.begin("a")]
        second = threads.pool.submit(with_trace, "b")
        eventually(lambda: threads.count("b") or second.done())
        futures += [threads.begin("c"), threads.begin("d")]
        a, c, d = released(threads, futures)
        [b] = outcomes([second])
        assert a == "a!" and {type(c), type(d)} <= {str, BrokerUnavailable}, (at, c, d)
        assert interrupted.is_set() == isinstance(b, KeyboardInterrupt), (at, b)
        asked = sum(server.asked, [])
        assert all(argument in asked for argument, found in (("c", c), ("d", d)) if found == f"{argument}!")
        assert len(asked) == len(set(asked)), (at, asked)
        assert outcomes([threads.begin("e")]) == ["e!"], at
    return interrupted.is_set()


def test_threads_an_interrupted_main_thread_never_blocks_the_others(threads, server, monkeypatch):
    """Signals come at random, as SIGINT does; three other threads go on calling."""
    monkeypatch.setattr(gathering, "_CHECK_SECONDS", 0.05)
    ends, made, unknown = threading.Event(), [0] * 3, [0]

    def work(who):
        while not ends.is_set():
            try:
                assert threads.gathering.run(KEY, (who, made[who]), slowly) == f"{who, made[who]}!"
                made[who] += 1
            except BrokerUnavailable:
                unknown[0] += 1

    def slowly(steps):
        time.sleep(0.0005)
        return server.drive(steps)

    def interrupt(*_):
        raise KeyboardInterrupt

    working = [threads.pool.submit(work, who) for who in range(3)]
    dice, interrupted, before = random.Random(3), 0, signal.signal(signal.SIGALRM, interrupt)
    try:
        for n in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0001, 0.003))
                assert threads.gathering.run(KEY, ("main", n), slowly) == f"{'main', n}!"
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        ends.set()
    assert [future.result(5) for future in working] == [None] * 3
    assert 50 < interrupted < 400
    assert min(made) > 100 and unknown[0] <= 3 * interrupted


def test_threads_a_signal_handler_may_call_during_its_threads_own_call(threads, server):
    """It is made by itself: nobody else could make it before the thread goes on."""

    def drive(steps):
        if not server.statements:
            server.statements.append((KEY, ["outer"]))
            assert threads.gathering.run(KEY, "inner", server.drive) == "inner!"
        return server.drive(steps)

    future = threads.pool.submit(threads.gathering.run, KEY, "a", drive)
    assert outcomes([future]) == ["a!"]


def test_threads_a_forked_child_does_not_wait_for_the_threads_of_its_parent(threads, server):
    futures = queued(threads, "b")
    child = os.fork()
    if not child:  # only this thread is in it
        own = Server()
        threads.gathering._together = own.together
        os._exit(0 if threads.gathering.run(KEY, "c", own.drive) == "c!" else 1)
    ended = eventually(lambda: os.waitpid(child, os.WNOHANG)[0])
    assert ended == child
    assert released(threads, futures) == ["first!", "b!"]


# Cancellation


@pytest.mark.parametrize("cancelled", range(4))
@pytest.mark.parametrize("turns", range(12))
def test_tasks_a_cancellation_at_any_instant_does_not_affect_the_others(server, cancelled, turns):
    """turns: of the loop, between the calls and the cancellation."""

    async def call_and_cancel():
        combined = Gathering(server.together, size_of=lambda _: 1)
        tasks = [asyncio.create_task(combined.run_aio(KEY, n, server.drive_aio)) for n in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[cancelled].cancel()
        done, left = await asyncio.wait(tasks, timeout=5)
        assert not left
        for n, task in enumerate(tasks):
            if n != cancelled:
                assert task.result() == f"{n}!"
            elif not task.cancelled():
                assert task.result() == f"{n}!"  # it was quicker
        assert await combined.run_aio(KEY, "next", server.drive_aio) == "next!"
        assert not combined._of_tasks
        return tasks[cancelled].cancelled()

    asyncio.run(call_and_cancel())
    made = sum(server.asked, [])
    assert len(made) == len(set(made))


async def until_so_many_wait(combined, count):
    """Tasks, while another one's statement runs."""
    await eventually_aio(lambda: [len(line.waiting) for line in combined._of_tasks.values()] == [count])


def test_tasks_a_call_cancelled_while_it_waits_does_not_run(server):
    async def call_and_cancel():
        server.gate.clear()
        combined = Gathering(server.together, size_of=lambda _: 1)
        first, second, third = [asyncio.create_task(combined.run_aio(KEY, n, server.drive_aio)) for n in range(3)]
        await until_so_many_wait(combined, 2)
        second.cancel()
        server.gate.set()
        assert [await first, await third] == ["0!", "2!"]

    asyncio.run(call_and_cancel())
    assert server.asked == [[0], [2]]


def test_tasks_the_end_of_a_loop_ends_waiting_calls_silently(server, caplog):
    async def leave():
        server.gate.clear()
        combined = Gathering(server.together, size_of=lambda _: 1)
        left = [asyncio.create_task(combined.run_aio(KEY, n, server.drive_aio)) for n in range(3)]
        await until_so_many_wait(combined, 2)
        left[0].cancel()
        await until_so_many_wait(combined, 0)  # the group of the others has begun
        left.append(asyncio.create_task(combined.run_aio(KEY, 3, server.drive_aio)))
        await until_so_many_wait(combined, 1)
        return left

    left = asyncio.run(leave())
    assert all(task.cancelled() for task in left)
    assert server.asked == [[0], [1, 2]]
    assert caplog.records == []


def test_tasks_and_threads_of_a_process_run_concurrently(server):
    with Threads(server) as threads, Tasks(server) as tasks:
        tasks.gathering = threads.gathering
        server.gate.clear()
        futures = [threads.begin("a"), tasks.begin("b")]
        assert server.asked == [["a"], ["b"]]
        assert released(threads, futures) == ["a!", "b!"]


def test_threads_repeated_calls_take_few_statements(server):
    combined = Gathering(server.together, size_of=lambda _: 1)

    def drive(steps):
        time.sleep(0.002)
        return server.drive(steps)

    def work(who):
        return [combined.run(KEY, (who, n), drive) for n in range(20)]

    with ThreadPoolExecutor(16) as pool:
        assert [len(results) for results in pool.map(work, range(16))] == [20] * 16
    assert sum(map(len, server.asked)) == 320
    assert len(server.asked) < 160


def test_tasks_repeated_calls_take_few_statements(server):
    combined = Gathering(server.together, size_of=lambda _: 1)

    async def work(who):
        for n in range(20):
            await combined.run_aio(KEY, (who, n), server.drive_aio)

    async def work_all():
        await asyncio.gather(*map(work, range(16)))

    asyncio.run(work_all())
    assert sum(map(len, server.asked)) == 320
    assert len(server.asked) < 160
