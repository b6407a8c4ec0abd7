"""Receiving for several listeners, against a list in memory (no database)."""

import threading
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.common.errors import BrokerUnavailable, EntityDisabled
from broker_core.runtime import dispatcher
from broker_core.runtime.dispatcher import Dispatcher, Received, Waiter, turns
from broker_core.runtime.wake_ups import WatchedList
from broker_core.store.driver import WaitForSignal
from broker_core.store.signals import Signal
from tests.eventually import eventually

LIST = WatchedList(1)


class Fixed:
    """A listener that wants so many messages."""

    def __init__(self, wanted, priority=0, served=0):
        self._wanted, self.priority, self.served = wanted, priority, served

    def capacity(self):
        return self._wanted


listeners = st.lists(st.builds(Fixed, st.integers(0, 6), st.integers(0, 2), st.integers(0, 9)), max_size=8)


@given(listeners, st.integers(0, 40))
def test_turns_distribute_all_messages_up_to_the_requested_numbers(found, most):
    plan = turns(found, most)
    given_to = Counter(plan)
    assert len(plan) == min(most, sum(each.capacity() for each in found))
    assert all(count <= each.capacity() for each, count in given_to.items())


@given(listeners, st.integers(0, 40))
def test_a_higher_priority_is_satisfied_before_a_lower_one(found, most):
    """RMQ-145."""
    given_to = Counter(plan := turns(found, most))
    assert [each.priority for each in plan] == sorted((each.priority for each in plan), reverse=True)
    for lower in given_to:
        assert all(given_to[each] == each.capacity() for each in found if each.priority > lower.priority)


@given(listeners, st.integers(0, 40))
def test_equal_priorities_are_served_in_turn_beginning_with_the_one_served_longest_ago(found, most):
    given_to = Counter(plan := turns(found, most))
    for listener in found:
        for other in found:
            if listener.priority == other.priority and given_to[other] < other.capacity():
                assert given_to[listener] <= given_to[other] + 1  # one that is not satisfied is at most one behind
                if listener.served < other.served and listener.capacity():
                    assert given_to[listener] >= given_to[other] or given_to[listener] == listener.capacity()
    for level in {each.priority for each in plan}:
        assert (first := next(each for each in plan if each.priority == level)).served == min(
            each.served for each in found if each.priority == level and each.capacity()
        ), first


class Here:
    """Stands for the wake-ups of the process."""

    def __init__(self):
        self.failure, self.left_behind = None, []

    def watch(self, watched, poke):
        raise AssertionError("only `join` does this")

    unwatch = watch

    def expect(self, entity_id):
        pass

    def checked_since(self, then, entity_id):
        return True

    def run_soon(self, steps):
        self.left_behind.append(steps)


class Messages:
    """A list of messages, and who received them. A statement is one step; while it runs, no other may."""

    def __init__(self):
        self.there, self.released, self.statements, self.running, self.refusal, self.most_waiting = [], [], 0, 0, None, 0
        self.here = Here()
        self.dispatcher = Dispatcher(LIST, self.here, self.receive, self.release)

    def receive(self, listener, waiting):
        plan = turns(waiting, 500)
        assert listener in waiting and plan
        self.most_waiting = max(self.most_waiting, len(waiting))
        self.running += 1
        try:
            yield self
            assert self.running == 1
            self.statements += 1
            if self.refusal is not None:
                raise self.refusal
            taken = [self.there.pop(0) for _ in range(min(len(plan), len(self.there)))]
        finally:
            self.running -= 1
        return Received(list(zip(plan, taken, strict=False)), len(taken) == len(plan), LIST.entity_id)

    def release(self, missed):
        self.released += [message for _, message in missed]
        yield from ()

    def arrive(self, *messages):
        self.there += messages
        self.dispatcher.poke()

    def call(self, max_count=1, seconds=60.0):
        """The steps of a call that waits. They return what it received."""
        waiter = Waiter("holder", max_count)
        waiter.signal = Signal()
        self.dispatcher.add(waiter)
        is_claimed = False
        try:
            yield from self.dispatcher.wait(waiter, seconds)
            is_claimed = True
        finally:
            self.dispatcher.remove(waiter)
            if waiter.received and not is_claimed:
                self.dispatcher.release_soon(waiter, waiter.received)
        return waiter.received


def run(steps):
    """A driver whose statements take a moment."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, WaitForSignal):
                step.signal.wait(step.seconds)
            else:
                time.sleep(0.0005)
            step = steps.send(None)
    except StopIteration as end:
        return end.value


def threads(count, work):
    workers = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for each in workers:
        each.start()
    return workers


def waiting(count, work, messages):
    """Threads whose calls wait, and have looked."""
    found, own = threads(count, work), messages.dispatcher
    eventually(lambda: len(own._listeners) == count and not own._is_running and not own._is_due)
    return found


def test_threads_receive_everything_once_and_never_more_than_they_want():
    messages, got = Messages(), {n: [] for n in range(12)}

    def receive(n):
        while True:
            numbers = run(messages.call(n % 4 + 1))
            assert 1 <= len(numbers) <= n % 4 + 1
            got[n] += numbers
            if -1 in numbers:
                return messages.arrive(-1)  # for the next one

    working = threads(12, receive)
    for number in range(500):
        messages.arrive(number)
        time.sleep(0.0005)
    messages.arrive(-1)
    for each in working:
        each.join(30)
        assert not each.is_alive()
    received = [number for numbers in got.values() for number in numbers if number != -1]
    assert sorted(received) == list(range(500)) and messages.released == []
    assert messages.most_waiting > 1


def test_idle_calls_run_no_statements():
    messages = Messages()
    idle = waiting(10, lambda n: run(messages.call(1, seconds=1.0)), messages)
    before = messages.statements
    for each in idle:
        each.join(10)
    assert before <= 20 and messages.statements == before


def test_one_message_wakes_one_call():
    messages, got = Messages(), []
    calls = waiting(10, lambda n: got.append(run(messages.call(1, seconds=1.0))), messages)
    before = messages.statements
    messages.arrive("a")
    for each in calls:
        each.join(10)
    assert sorted(got) == [[]] * 9 + [["a"]] and messages.statements == before + 1


def test_each_call_gets_its_own_refusal():
    messages, refused = Messages(), []

    def receive(n):
        try:
            run(messages.call())
        except EntityDisabled as refusal:
            refused.append(refusal)

    calls = waiting(5, receive, messages)
    before, messages.refusal = messages.statements, EntityDisabled("demo/orders", "Disabled", "receives")
    messages.dispatcher.poke()
    for each in calls:
        each.join(10)
    assert len(refused) == 5 and messages.statements == before + 5


def test_waiting_calls_survive_an_unavailable_database():
    messages, got = Messages(), []
    calls = waiting(4, lambda n: got.append(run(messages.call())), messages)
    messages.refusal, before = BrokerUnavailable("away"), messages.statements
    messages.dispatcher.poke()
    time.sleep(0.2)
    assert messages.statements == before + 1  # the others are not asked to try, too
    messages.refusal = None
    messages.arrive(1, 2, 3, 4)
    for each in calls:
        each.join(10)
    assert sorted(got) == [[1], [2], [3], [4]]


def test_a_call_that_times_out_while_the_database_is_unavailable_raises():
    messages = Messages()
    messages.here.failure = BrokerUnavailable("The database does not respond.")
    with pytest.raises(BrokerUnavailable, match="does not respond"):
        run(messages.call(seconds=0.05))


def test_a_call_that_begins_while_the_database_is_unavailable_raises_immediately():
    messages = Messages()
    messages.refusal = BrokerUnavailable("away")
    with pytest.raises(BrokerUnavailable):
        run(messages.call(seconds=60))


def test_a_call_that_does_not_run_its_round_is_skipped(monkeypatch):
    monkeypatch.setattr(dispatcher, "SECONDS_UNANSWERED", 0.0)
    messages = Messages()
    stuck, other = messages.call(), messages.call()
    steps = [next(stuck), next(stuck), next(other)]  # both have looked, and wait
    assert isinstance(steps[1], WaitForSignal)
    while not isinstance(step := next(other), WaitForSignal):
        pass
    messages.arrive("a", "b")
    messages.dispatcher.poke()  # a second later, by the check of all entities
    assert steps[1].signal.is_set() and step.signal.is_set()
    with pytest.raises(StopIteration) as end:
        while True:
            next(other)
    assert end.value.value == ["b"]
    with pytest.raises(StopIteration) as end:
        next(stuck)
    assert end.value.value == ["a"]  # it was given to the call that came first, whoever received it


@settings(max_examples=150)
@given(st.data())
def test_a_call_that_disappears_at_any_instant_loses_no_messages(data):
    """Calls are advanced, ended and given messages in any order; at the end each message is received, released or still there."""
    messages, calls, got, sent = Messages(), [], [], 0
    for _ in range(data.draw(st.integers(1, 60))):
        what = data.draw(st.sampled_from(["begin", "advance", "advance", "advance", "end", "arrive"]))
        if what == "begin":
            calls.append(messages.call(data.draw(st.integers(1, 3))))
        elif what == "arrive":
            messages.arrive(sent)
            sent += 1
        elif calls:
            call = data.draw(st.sampled_from(calls))
            if what == "end":
                call.close()
                calls.remove(call)
            else:
                try:
                    next(call)
                except StopIteration as end:
                    got += end.value
                    calls.remove(call)
    last = messages.call(max_count=100)  # whoever comes next gets what is left
    rest = [*calls, last]
    for _ in range(400):
        for call in list(rest):
            try:
                if call.gi_frame is not None:
                    next(call)
            except StopIteration as end:
                got += end.value
                rest.remove(call)
    for call in rest:
        call.close()
    for steps in messages.here.left_behind:
        run(steps())
    assert sorted(got + messages.released + messages.there) == list(range(sent))
    assert not messages.there and not messages.dispatcher._listeners and not messages.running
