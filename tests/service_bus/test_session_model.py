"""Random operations on a queue with sessions, against the broker and against a plain model made of the specification, must agree
after every step. Time passes only when the machine steps the clock, and nothing sweeps unless the machine does it."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.errors import MessageNotFound, NoSessionAvailable, SessionCannotBeLocked, SessionLockLost
from broker_core.common.types import EntityAddress, Family, MessageState, SubQueue
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message, QueueSettings, Session
from broker_core.store import connections
from tests.broker_state import entity_id, events, ledger_agrees, now
from tests.model_machines import run_machine

from . import specification as sb
from .model_common import Fates
from .specification import Facts, MakeAvailable, MoveToDeadLetter, Settlement

SECOND = timedelta(seconds=1)
NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class Modelled:
    """A message as the model sees it."""

    facts: Facts
    number: int
    session_id: str
    token: uuid.UUID | None = None
    reason: str | None = None


class SessionsAgainstModel(Fates, RuleBasedStateMachine):
    @initialize(
        whole=st.booleans(),
        dead_lettering=st.booleans(),
        most=st.integers(1, 3),
        default=st.sampled_from([None, timedelta(seconds=40)]),
    )
    def begin(self, whole, dead_lettering, most, default):
        self.namespace = f"s-{uuid.uuid4().hex[:10]}"
        namespaces.create_namespace(self.namespace, Family.SERVICE_BUS)
        namespaces.pause_clock(self.namespace)
        self.queue = EntityAddress(self.namespace, "q")
        self.settings = QueueSettings(
            requires_session=True,
            expires_whole_sessions=whole,
            lock_duration=timedelta(seconds=20),
            max_delivery_count=most,
            default_message_time_to_live=default,
            dead_lettering_on_message_expiration=dead_lettering,
        )
        entities.create_queue(self.queue, self.settings)
        self.messages: list[Modelled] = []
        self.held: dict[str, Session] = {}  # the last holder of each; its lock may have ended
        self.lost: list[Session] = []
        self.states: dict[str, bytes] = {}
        self.sent = 0

    # What the machine does

    @rule(session_ids=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), life=st.sampled_from([None, None, 5, 30, 90]))
    def send(self, session_ids, life):
        life = life and life * SECOND
        numbers = service_bus.send(self.queue, [Message(b"x", session_id=name, time_to_live=life) for name in session_ids])
        assert numbers == list(range(self.sent + 1, self.sent + 1 + len(session_ids)))
        self.sent += len(session_ids)
        own = sb.own_time_to_live(life, self.settings)
        facts = Facts(SubQueue.MAIN, MessageState.ACTIVE, 0, self.now, expires_at=None if own is None else self.now + own)
        self.messages += [Modelled(facts, number, name) for number, name in zip(numbers, session_ids, strict=True)]

    @rule(count=st.integers(0, 3))
    def accept_next(self, count):
        try:
            session = service_bus.accept_session(self.queue, max_count=count)
        except NoSessionAvailable:
            self._follow()
            assert not [name for name in NAMES if self._is_free(name) and self._deliverable(name)]
            return
        self._follow(taken={m.sequence_number for m in session.messages})
        assert self._is_free(session.session_id)
        assert self._deliverable(session.session_id)
        self._accepted(session, count)

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 3))
    def accept_this(self, name, count):
        if not self._is_free(name):
            with pytest.raises(SessionCannotBeLocked):
                service_bus.accept_session(self.queue, name, max_count=count)
            return
        session = service_bus.accept_session(self.queue, name, max_count=count)
        self._follow(taken={m.sequence_number for m in session.messages})
        self._accepted(session, count)

    def _accepted(self, session, count):
        name = session.session_id
        assert session.locked_until == self.now + self.settings.lock_duration
        assert session.state == self.states.get(name)
        if name in self.held:
            self.lost.append(self.held[name])
        self.held[name] = session
        self._received(session, session.messages, count)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(1, 3), for_good=st.booleans())
    def receive(self, data, count, for_good):
        session = self._one_held(data)
        call = service_bus.receive_and_delete_from_session if for_good else service_bus.receive_from_session
        if self._is_free(session.session_id):
            with pytest.raises(SessionLockLost):
                call(session, count)
            return
        messages = call(session, count)
        self._follow(taken={m.sequence_number for m in messages})
        if for_good:
            expected = self._deliverable(session.session_id)[:count]
            assert [m.sequence_number for m in messages] == [m.number for m in expected]
            for modelled in expected:
                self.messages.remove(modelled)
        else:
            self._received(session, messages, count)

    def _received(self, session, found, count):
        """The messages found are exactly the next that may be delivered, in order."""
        expected = self._deliverable(session.session_id)[:count]
        assert [m.sequence_number for m in found] == [m.number for m in expected]
        for message, modelled in zip(found, expected, strict=True):
            self._locked(session, message, modelled, sb.failures(modelled.facts, self.now))

    def _locked(self, session, message, modelled, delivery_count):
        assert message.delivery_count == delivery_count
        assert message.locked_until == session.locked_until
        facts = replace(modelled.facts, delivery_count=delivery_count, locked_until=session.locked_until)
        self._replace(modelled, replace(modelled, facts=facts, token=message.lock_token))

    @precondition(lambda self: any(m.token for m in self.messages))
    @rule(data=st.data(), how=st.sampled_from([how for how in Settlement if how is not Settlement.RENEW]))
    def settle(self, data, how):
        modelled = data.draw(st.sampled_from([m for m in self.messages if m.token]))
        report = getattr(service_bus, how.value)(self.queue, [modelled.token])
        outcome = sb.settle(modelled.facts, how, now=self.now, settings=self.settings)
        if outcome == sb.Refuse():
            assert report.lost == (modelled.token,)
        else:
            assert report.settled == ((modelled.token, modelled.number),)
            self._apply(modelled, outcome)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def receive_deferred(self, data):
        session = self._one_held(data)
        deferred = [m for m in self._main() if m.facts.state is MessageState.DEFERRED]
        if not deferred:
            return
        modelled = data.draw(st.sampled_from(deferred))
        if self._is_free(session.session_id):
            with pytest.raises(SessionLockLost):
                service_bus.receive_deferred(self.queue, [modelled.number], session=session)
            return
        fate = self._fate_of_deferred(modelled) if modelled.session_id == session.session_id else None
        if isinstance(fate, MakeAvailable):
            (message,) = service_bus.receive_deferred(self.queue, [modelled.number], session=session)
            self._locked(session, message, modelled, fate.delivery_count)
            return
        with pytest.raises(MessageNotFound):
            service_bus.receive_deferred(self.queue, [modelled.number], session=session)
        if fate is not None:
            self._apply(modelled, fate)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data):
        session = self._one_held(data)
        if self._is_free(session.session_id):
            with pytest.raises(SessionLockLost):
                service_bus.renew_session(session)
            return
        renewed = service_bus.renew_session(session)
        assert renewed.locked_until == self.now + self.settings.lock_duration
        self.held[session.session_id] = renewed
        for m in self._locked_of(session.session_id):
            self._replace(m, replace(m, facts=replace(m.facts, locked_until=renewed.locked_until)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def close(self, data):
        session = self._one_held(data)
        was_held = not self._is_free(session.session_id)
        assert service_bus.close_session(session) is was_held
        if was_held:
            for m in self._locked_of(session.session_id):
                self._apply(m, MakeAvailable(m.facts.delivery_count))
            self.lost.append(self.held.pop(session.session_id))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), state=st.sampled_from([b"1", b"2", None]))
    def set_state(self, data, state):
        session = self._one_held(data)
        if self._is_free(session.session_id):
            with pytest.raises(SessionLockLost):
                service_bus.set_session_state(session, state)
            return
        service_bus.set_session_state(session, state)
        self.states.pop(session.session_id, None)
        if state is not None:
            self.states[session.session_id] = state

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def use_a_session_of_yesterday(self, data):
        session = data.draw(st.sampled_from(self.lost))
        assert service_bus.close_session(session) is False
        for use in (service_bus.receive_from_session, service_bus.renew_session, service_bus.get_session_state):
            with pytest.raises(SessionLockLost):
                use(session)

    @rule(seconds=st.sampled_from([1, 5, 10, 20, 45]))
    def let_time_pass(self, seconds):
        namespaces.step_clock(self.namespace, seconds * SECOND)

    @rule()
    def sweep(self):
        sweeps.end_locks()
        sweeps.expire_messages(pause=lambda _: None)
        service_bus.sweeps.forget_sessions()
        sweeps.advance_heads()
        sweeps.roll_up_counts()

    # What must hold

    @invariant()
    def both_show_the_same(self):
        self._follow()
        for address, mine in ((self.queue, self._main()), (self.queue.dead_letter, self._dead())):
            there = {
                m.sequence_number: (m.state, m.session_id, m.dead_letter_reason)
                for m in service_bus.peek(address, max_count=1000)
            }
            assert there == {m.number: (m.facts.state, m.session_id, m.reason) for m in mine}
        active = {m.session_id for m in self._main() if m.facts.state is MessageState.ACTIVE}
        assert [s.session_id for s in service_bus.list_sessions(self.queue)] == sorted(active | set(self.states))
        assert ledger_agrees(self.queue)

    def teardown(self):
        if not hasattr(self, "queue"):
            return
        self.sweep()
        self.both_show_the_same()
        assert not [m for m in self._main() if self._fates_due(m)]  # a sweep leaves nothing undone
        self._no_row_is_left_over()
        self._every_message_is_accounted_for()

    def _no_row_is_left_over(self):
        rows = (
            connections.current()
            .execute("SELECT * FROM vitrine_session WHERE entity_id = %s", (entity_id(self.queue),))
            .fetchall()
        )
        for row in rows:
            numbers = [m.number for m in self._active(row.session_id)]
            assert numbers or row.state is not None or not self._is_free(row.session_id)
            assert row.first_number is None or not numbers or row.first_number <= numbers[0]
            assert not numbers or row.first_number is not None
        assert {m.session_id for m in self._main() if m.facts.state is MessageState.ACTIVE} <= {row.session_id for row in rows}

    def _every_message_is_accounted_for(self):
        recorded = events(self.queue)
        gone = [e.sequence_number for e in recorded if e.kind in (6, 11, 18)]
        present = [m.sequence_number for a in (self.queue, self.queue.dead_letter) for m in service_bus.peek(a, max_count=1000)]
        assert sorted(gone + present) == list(range(1, self.sent + 1))

    # The model's own machinery

    @property
    def now(self) -> datetime:
        return now(self.queue)

    def _main(self):
        return sorted((m for m in self.messages if m.facts.subqueue is SubQueue.MAIN), key=lambda m: m.number)

    def _dead(self):
        return [m for m in self.messages if m.facts.subqueue is SubQueue.DEAD_LETTER]

    def _active(self, name):
        return [m for m in self._main() if m.session_id == name and m.facts.state is MessageState.ACTIVE]

    def _locked_of(self, name):
        return [m for m in self._main() if m.session_id == name and sb.is_locked(m.facts, self.now)]

    def _is_free(self, name):
        return name not in self.held or not sb.session_is_held(self.held[name].locked_until, self.now)

    def _one_held(self, data):
        return self.held[data.draw(st.sampled_from(sorted(self.held)))]

    def _deliverable(self, name):
        return self._those(name, sb.deliverable)

    def _those(self, name, rule):
        """The messages of a session that a pure rule picks."""
        mine = self._active(name)
        picked = rule([m.facts for m in mine], self.now, self.settings)
        return [m for m in mine if any(facts is m.facts for facts in picked)]

    def _fates_due(self, m):
        """What may have happened to a message by itself, and may not have been applied yet."""
        fates, at = [], self.now
        if sb.is_locked(m.facts, at):
            return fates
        if m in self._those(m.session_id, sb.taken_by_expiry):
            fates.append(sb.expire(self.settings))
        elif m.facts.state is MessageState.ACTIVE and sb.has_expired(m.facts, at, self.settings):
            return fates
        if sb.failures(m.facts, at) >= self.settings.max_delivery_count:
            fates.append(
                sb.after_failed_delivery(
                    replace(m.facts, expires_at=None, enqueued_at=at), sb.failures(m.facts, at), at, self.settings
                )
            )
        return fates

    def _follow(self, taken=frozenset()):
        """What is due happens when the broker gets to it: let it happen in the model to those that have left their place."""
        there = {m.sequence_number for m in service_bus.peek(self.queue, max_count=1000)} | taken
        reasons = {m.sequence_number: m.dead_letter_reason for m in service_bus.peek(self.queue.dead_letter, max_count=1000)}
        left = [(m, self._fates_due(m)) for m in self._main() if m.number not in there]
        for modelled, fates in left:
            (fate,) = [
                f
                for f in fates
                if (
                    f.reason == reasons.get(modelled.number)
                    if isinstance(f, MoveToDeadLetter)
                    else modelled.number not in reasons
                )
            ]
            self._apply(modelled, fate)


@pytest.mark.slow
@pytest.mark.usefixtures("broker_database")
def test_the_broker_agrees_with_the_rules_of_sessions():
    run_machine(SessionsAgainstModel, 20)
