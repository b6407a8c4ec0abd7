"""Random operations against the broker and against a plain model made of the specification must agree after every step
(invariants 1, 3, 4, 6).

Time passes only when the machine steps the namespace's clock. Nothing sweeps unless the machine does it, so this also shows
that receiving is right with no sweep running (docs/design.md D5).
"""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.errors import MessageHeld, MessageNotFound, NotAllowed
from broker_core.common.types import EntityAddress, Family, MessageState, SubQueue
from broker_core.runtime.pacing import HEAD_LAG, advance_head
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message, QueueSettings
from broker_core.store.driver import run
from tests.broker_state import bounds_hold, entity_id, events, ledger_agrees, now
from tests.model_machines import run_machine

from . import specification as sb
from .model_common import Fates
from .specification import Facts, MakeAvailable, MoveToDeadLetter, Remove, Settlement

SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Modelled:
    """A message as the model sees it."""

    facts: Facts
    number: int
    time_to_live: timedelta | None
    token: uuid.UUID | None = None
    reason: str | None = None


class BrokerAgainstModel(Fates, RuleBasedStateMachine):
    @initialize(
        dead_lettering=st.booleans(),
        most=st.integers(1, 3),
        default=st.sampled_from([None, timedelta(seconds=40)]),
    )
    def begin(self, dead_lettering, most, default):
        self.namespace = f"m-{uuid.uuid4().hex[:10]}"
        namespaces.create_namespace(self.namespace, Family.SERVICE_BUS)
        namespaces.pause_clock(self.namespace)
        self.queue = EntityAddress(self.namespace, "q")
        self.settings = QueueSettings(
            lock_duration=timedelta(seconds=20),
            max_delivery_count=most,
            default_message_time_to_live=default,
            dead_lettering_on_message_expiration=dead_lettering,
        )
        entities.create_queue(self.queue, self.settings)
        self.messages: list[Modelled] = []
        self.next_number = 1
        self.spent_tokens: list[uuid.UUID] = []

    # What the machine does

    @rule(
        lives=st.lists(st.sampled_from([None, 5, 15, 30, 90]), min_size=1, max_size=4), delay=st.sampled_from([None, 0, 10, 25])
    )
    def send(self, lives, delay):
        at = self.now
        due = None if delay is None else at + delay * SECOND
        lives = [None if life is None else life * SECOND for life in lives]
        numbers = service_bus.send(self.queue, [Message(b"x", time_to_live=life, scheduled_enqueue_at=due) for life in lives])
        assert numbers == list(range(self.next_number, self.next_number + len(lives)))
        self.next_number += len(lives)
        scheduled = due is not None and due > at
        for number, life in zip(numbers, lives, strict=True):
            own = sb.own_time_to_live(life, self.settings)
            facts = Facts(
                SubQueue.MAIN,
                MessageState.SCHEDULED if scheduled else MessageState.ACTIVE,
                0,
                at,
                expires_at=None if scheduled or own is None else at + own,
                scheduled_enqueue_at=due,
            )
            self.messages.append(Modelled(facts, number, own))

    @rule(count=st.integers(1, 3), dead=st.booleans())
    def receive(self, count, dead):
        messages = service_bus.receive(self._address(dead), count)
        for message, modelled in zip(messages, self._expected(messages, count, dead), strict=True):
            assert message.delivery_count == sb.failures(modelled.facts, self.now)
            assert message.locked_until == self.now + self.settings.lock_duration
            facts = replace(modelled.facts, delivery_count=message.delivery_count, locked_until=message.locked_until)
            self._replace(modelled, replace(modelled, facts=facts, token=message.lock_token))

    @rule(count=st.integers(1, 3), dead=st.booleans())
    def receive_and_delete(self, count, dead):
        messages = service_bus.receive_and_delete(self._address(dead), count)
        for modelled in self._expected(messages, count, dead):
            self.messages.remove(modelled)

    def _expected(self, found, count, dead):
        """The modelled messages that were found. From the queue exactly the lowest numbers; from the dead-letter queue as many
        as there are, since which ones arrive there before others does not matter."""
        self._follow(taken={(self._address(dead).subqueue, m.sequence_number) for m in found})
        available = self._available(dead)
        numbers = [m.sequence_number for m in found]
        assert len(numbers) == min(count, len(available))
        if not dead:
            assert numbers == [m.number for m in available[:count]]
        by_number = {m.number: m for m in available}
        return [by_number[number] for number in numbers]

    @precondition(lambda self: any(m.token for m in self.messages))
    @rule(data=st.data(), how=st.sampled_from(Settlement))
    def settle(self, data, how):
        modelled = data.draw(st.sampled_from([m for m in self.messages if m.token]))
        address = self._address(modelled.facts.subqueue is SubQueue.DEAD_LETTER)
        if how is Settlement.DEAD_LETTER and address.subqueue is SubQueue.DEAD_LETTER:
            return
        report = getattr(service_bus, how.value)(address, [modelled.token])
        outcome = sb.settle(modelled.facts, how, now=self.now, settings=self.settings)
        if outcome == sb.Refuse():
            assert report.lost == (modelled.token,)
            return
        assert report.settled == ((modelled.token, modelled.number),)
        if how is not Settlement.RENEW:
            self.spent_tokens.append(modelled.token)
        self._apply(modelled, outcome)

    @precondition(lambda self: self.spent_tokens)
    @rule(data=st.data(), how=st.sampled_from([Settlement.COMPLETE, Settlement.ABANDON, Settlement.RENEW]), dead=st.booleans())
    def settle_with_a_token_of_yesterday(self, data, how, dead):
        token = data.draw(st.sampled_from(self.spent_tokens))
        assert getattr(service_bus, how.value)(self._address(dead), [token]).lost == (token,)

    @precondition(lambda self: any(sb.is_locked(m.facts, self.now) for m in self.messages))
    @rule(data=st.data())
    def an_operator_releases_locks(self, data):
        """SB-077: each is lost, and counts as a failed delivery."""
        locked = [m for m in self.messages if sb.is_locked(m.facts, self.now)]
        chosen = data.draw(st.lists(st.sampled_from(locked), min_size=1, max_size=2, unique=True))
        numbers = [m.number for m in chosen]
        assert service_bus.release_locks(self.queue, [*numbers, self.next_number + 9]) == sorted(numbers)
        for modelled in sorted(chosen, key=lambda m: m.number):
            self.spent_tokens.append(modelled.token)
            count = modelled.facts.delivery_count + 1
            self._apply(modelled, sb.after_failed_delivery(modelled.facts, count, self.now, self.settings))

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), size=st.integers(0, 300))
    def an_operator_edits(self, data, size):
        """SB-079: what nobody holds and has not expired. The model has no bodies, which the ledger counts."""
        modelled = data.draw(st.sampled_from(self.messages))
        facts = modelled.facts
        may = facts.subqueue is SubQueue.MAIN and not sb.is_locked(facts, self.now)
        may = may and not sb.has_expired(facts, self.now, self.settings)
        try:
            service_bus.edit(self.queue, modelled.number, body=b"y" * size)
        except (MessageHeld, NotAllowed):
            assert not may
        else:
            assert may

    @rule(data=st.data())
    def receive_deferred(self, data):
        deferred = [m for m in self.messages if m.facts.state is MessageState.DEFERRED and m.facts.subqueue is SubQueue.MAIN]
        if not deferred:
            return
        wanted = data.draw(st.lists(st.sampled_from(deferred), min_size=1, max_size=2, unique=True))
        fates = {m: self._fate_of_deferred(m) for m in wanted}
        try:
            messages = service_bus.receive_deferred(self.queue, [m.number for m in wanted])
        except MessageNotFound:
            messages = []
        for modelled, fate in fates.items():
            if isinstance(fate, MoveToDeadLetter | Remove):
                self._apply(modelled, fate)
        if all(isinstance(fate, MakeAvailable) for fate in fates.values()):
            assert sorted(m.sequence_number for m in messages) == sorted(m.number for m in wanted)
            for message in messages:
                (modelled,) = [m for m in wanted if m.number == message.sequence_number]
                facts = replace(modelled.facts, delivery_count=fates[modelled].delivery_count, locked_until=message.locked_until)
                self._replace(modelled, replace(modelled, facts=facts, token=message.lock_token))
        else:
            assert messages == []

    @rule(data=st.data())
    def resubmit(self, data):
        dead = [m for m in self.messages if m.facts.subqueue is SubQueue.DEAD_LETTER]
        if not dead:
            return
        wanted = sorted(data.draw(st.lists(st.sampled_from(dead), min_size=1, max_size=3, unique=True)), key=lambda m: m.number)
        free = [m for m in wanted if not sb.is_locked(m.facts, self.now)]
        answer = service_bus.resubmit(self.queue.dead_letter, [m.number for m in wanted])
        assert answer == {m.number: self.next_number + i for i, m in enumerate(free)}
        for modelled in free:
            self.messages.remove(modelled)
            ends = None if modelled.time_to_live is None else self.now + modelled.time_to_live
            facts = Facts(SubQueue.MAIN, MessageState.ACTIVE, 0, self.now, expires_at=ends)
            self.messages.append(Modelled(facts, answer[modelled.number], modelled.time_to_live))
        self.next_number += len(free)

    @rule(seconds=st.sampled_from([1, 5, 10, 20, 45]))
    def let_time_pass(self, seconds):
        namespaces.step_clock(self.namespace, seconds * SECOND)

    @rule(dead=st.booleans())
    def advance_bounds(self, dead):
        run(advance_head(entity_id(self.queue), self._address(dead).subqueue))

    @rule()
    def sweep(self):
        sweeps.activate_scheduled()
        sweeps.end_locks()
        sweeps.expire_messages(pause=lambda _: None)
        sweeps.advance_heads()
        sweeps.roll_up_counts()

    # What must hold

    @invariant()
    def both_show_the_same(self):
        self._follow()
        for dead in (False, True):
            there = self._there(dead)
            mine = {m.number: m for m in self.messages if (m.facts.subqueue is SubQueue.DEAD_LETTER) == dead}
            assert set(there) == set(mine)
            for number, message in there.items():
                facts, is_due = mine[number].facts, False
                if facts.state is MessageState.SCHEDULED:
                    is_due = facts.scheduled_enqueue_at <= self.now
                assert message.state == (MessageState.ACTIVE if is_due else facts.state)
                assert message.enqueued_at == (facts.scheduled_enqueue_at if is_due else facts.enqueued_at)
                assert message.delivery_count == sb.failures(facts, self.now)
                assert message.dead_letter_reason == mine[number].reason
        assert ledger_agrees(self.queue) and bounds_hold(self.queue)

    def teardown(self):
        if not hasattr(self, "queue"):
            return
        self.sweep()
        self.both_show_the_same()
        assert not [m for m in self.messages if self._is_due(m)]  # a sweep leaves nothing undone
        self._every_message_is_accounted_for()

    def _every_message_is_accounted_for(self):
        """Invariant 2: from events alone, sent = present + gone, each gone one once."""
        recorded = events(self.queue)
        born = [e.sequence_number for e in recorded if e.kind in (1, 2)]
        gone = [e.sequence_number for e in recorded if e.kind in (3, 6, 11, 13, 14, 15, 16, 18)]
        present = [m.sequence_number for a in (False, True) for m in service_bus.peek(self._address(a), max_count=1000)]
        assert sorted(born) == sorted(gone + present) == list(range(1, self.next_number))

    # The model's own machinery

    @property
    def now(self) -> datetime:
        return now(self.queue)

    def _address(self, dead):
        return self.queue.dead_letter if dead else self.queue

    def _available(self, dead):
        mine = [m for m in self.messages if (m.facts.subqueue is SubQueue.DEAD_LETTER) == dead]
        return sorted((m for m in mine if sb.is_available(m.facts, self.now, self.settings)), key=lambda m: m.number)

    def _is_due(self, m):
        """Whether something has happened to it that nobody may have applied yet."""
        facts, at = m.facts, self.now
        if facts.state is MessageState.SCHEDULED:
            return facts.scheduled_enqueue_at <= at
        if sb.is_locked(facts, at):
            return False
        if facts.state is MessageState.ACTIVE and sb.has_expired(facts, at, self.settings):
            return True
        return facts.subqueue is SubQueue.MAIN and sb.failures(facts, at) >= self.settings.max_delivery_count

    def _there(self, dead):
        return {m.sequence_number: m for m in service_bus.peek(self._address(dead), max_count=1000)}

    def _follow(self, taken=frozenset()):
        """What is due happens when the broker gets to it: let it happen in the model to those that have left their place."""
        places = {SubQueue.MAIN: self._there(False), SubQueue.DEAD_LETTER: self._there(True)}

        def still_there(m):
            found = places[m.facts.subqueue].get(m.number)
            same = found is not None and (found.state == m.facts.state or m.facts.state is MessageState.SCHEDULED)
            return same or (m.facts.subqueue, m.number) in taken

        due = [m for m in self.messages if self._is_due(m) and not still_there(m)]
        scheduled = [m for m in due if m.facts.state is MessageState.SCHEDULED]
        for modelled in sorted(scheduled, key=lambda m: (m.facts.scheduled_enqueue_at, m.number)):
            at = modelled.facts.scheduled_enqueue_at
            ends = None if modelled.time_to_live is None else at + modelled.time_to_live
            facts = replace(modelled.facts, state=MessageState.ACTIVE, enqueued_at=at, expires_at=ends)
            self._replace(modelled, replace(modelled, facts=facts, number=self.next_number))
            self.next_number += 1
        if scheduled:  # what was due may have expired since
            self._follow(taken)
            return
        for modelled in due:
            count = sb.failures(modelled.facts, self.now)
            self._apply(modelled, sb.after_failed_delivery(modelled.facts, count, self.now, self.settings))


@pytest.mark.slow
@pytest.mark.usefixtures("broker_database")
@pytest.mark.parametrize("head_lag", [HEAD_LAG, 1])
def test_the_broker_agrees_with_the_rules(head_lag, monkeypatch):
    """Also with receives that pass locked messages as soon as there are two (docs/design.md D17)."""
    monkeypatch.setattr("broker_core.runtime.pacing.HEAD_LAG", head_lag)
    monkeypatch.setattr("broker_core.service_bus.messages.receiving.HEAD_LAG", head_lag)
    run_machine(BrokerAgainstModel, 25)
