"""Random operations on storage queues and on a plain model made of the pure rules must agree after every step.

Time passes only when the machine steps the account's clock, and nothing sweeps unless the machine does: so gets are right with no
sweep running.
"""

import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core import namespaces, queue_storage, reads, sweeps
from broker_core.common.errors import MessageHeld, NotAllowed
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import getting
from broker_core.queue_storage.rules import display_state as rules
from broker_core.queue_storage.rules.display_state import DisplayState, HoldKind
from broker_core.queue_storage.rules.errors import InvalidQueryParameterValue, MessageNotFound, PopReceiptMismatch
from broker_core.store import connections
from tests.broker_state import entity_id, events, ledger_agrees, now
from tests.model_machines import run_machine

from .test_time import sweep

SECOND = timedelta(seconds=1)
WEEK = timedelta(days=7)
LEASES = (1, 5, 20, 60)
RARELY = st.sampled_from([False, False, False, True])


@dataclass(frozen=True)
class Modelled:
    """A message as the model sees it; a pure rule reads it as it does a row."""

    number: int
    message_id: str
    receipt: uuid.UUID
    text: str
    enqueued_at: datetime
    expires_at: datetime | None
    visible_at: datetime
    hold_kind: HoldKind | None = None
    delivery_count: int = 0
    receipts: tuple = field(default=(), compare=False)  # all it ever had

    @property
    def order(self):
        return self.visible_at, self.number


class QueuesAgainstModel(RuleBasedStateMachine):
    @initialize(most=st.sampled_from([None, 1, 2]), strict=st.booleans(), grace=st.sampled_from([0, 10]))
    def begin(self, most, strict, grace):
        account = f"m{uuid.uuid4().hex[:12]}"
        queue_storage.create_account(account)
        namespaces.pause_clock(account)
        self.queue, self.poison = EntityAddress(account, "work"), EntityAddress(account, "work-poison")
        self.most, self.strict, self.grace = most, strict, grace * SECOND
        queue_storage.create_queue(self.queue, max_dequeue_count=most, strict_visibility=strict, expiry_grace=self.grace)
        queue_storage.create_queue(self.poison, max_dequeue_count=most)
        self.there: dict[EntityAddress, list[Modelled]] = {self.queue: [], self.poison: []}
        self.next = {self.queue: 1, self.poison: 1}
        self.gone: list[tuple[EntityAddress, str, uuid.UUID]] = []

    # What the machine does

    @rule(
        texts=st.lists(st.text("aé<&", max_size=3), min_size=1, max_size=3),
        delay=st.sampled_from([0, 0, 0, 5, 20]),
        life=st.sampled_from([None, 21, 30, 90, "default"]),
        poison=RARELY,
    )
    def put(self, texts, delay, life, poison):
        address = self.poison if poison else self.queue
        options = {} if life == "default" else {"time_to_live": None if life is None else life * SECOND}
        for text, message in zip(
            texts, queue_storage.put_all(address, texts, visibility_timeout=delay * SECOND, **options), strict=True
        ):
            ends = {"default": self.now + WEEK, None: None}[life] if life in ("default", None) else self.now + life * SECOND
            kind = HoldKind.PUT if delay else None
            made = Modelled(
                self.next[address], message.message_id, message.pop_receipt, text, self.now, ends, self.now + delay * SECOND, kind
            )
            assert message.sequence_number == made.number
            assert (message.expires_at, message.visible_at) == (ends, made.visible_at)
            self.next[address] += 1
            self.there[address].append(replace(made, receipts=(made.receipt,)))

    @rule(count=st.integers(1, 4), lease=st.sampled_from(LEASES), poison=RARELY)
    def get(self, count, lease, poison):
        self._get(self.poison if poison else self.queue, count, lease)

    @precondition(lambda self: self.there[self.queue])
    @rule(times=st.integers(1, 3), lease=st.sampled_from(LEASES))
    def fail(self, times, lease):
        """Get what there is, and let the leases end."""
        for _ in range(times):
            self._get(self.queue, 4, lease)
            self._follow()
            namespaces.step_clock(self.queue.namespace, lease * SECOND)

    def _get(self, address, count, lease):
        expected = self._visible(address)[:count]
        messages = queue_storage.get(address, count, visibility_timeout=lease * SECOND)
        assert [m.sequence_number for m in messages] == [m.number for m in expected]
        for message, modelled in zip(messages, expected, strict=True):
            after = self._held(modelled, message.pop_receipt, HoldKind.GET, lease, delivery_count=modelled.delivery_count + 1)
            assert (message.dequeue_count, message.visible_at, message.text) == (
                after.delivery_count,
                after.visible_at,
                after.text,
            )
            assert message.message_id == modelled.message_id and message.pop_receipt not in modelled.receipts
            self._replace(address, modelled, after)
        if len(messages) < count:
            assert not [m for m in self._rows(address) if self._is_spent(address, m)]  # met, and moved

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data(), timeout=st.sampled_from([0, *LEASES]), text=st.sampled_from([None, "", "new"]))
    def update(self, data, timeout, text):
        address, modelled, receipt = self._draw(data)
        call = lambda: queue_storage.update(address, modelled.message_id, receipt, visibility_timeout=timeout * SECOND, text=text)  # noqa: E731
        if self._is_refused(address, modelled, receipt, call):
            return
        beyond = modelled.expires_at is not None and self.now + timeout * SECOND > modelled.expires_at
        if address == self.queue and self.strict and beyond:
            with pytest.raises(InvalidQueryParameterValue):
                call()
            return
        new, visible_at = call()
        kind = HoldKind.UPDATE if modelled.delivery_count else HoldKind.UPDATE_BEFORE_GET
        after = self._held(modelled, new, kind if timeout else None, timeout)
        assert visible_at == after.visible_at and new not in modelled.receipts
        self._replace(address, modelled, after if text is None else replace(after, text=text))

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data())
    def delete(self, data):
        address, modelled, receipt = self._draw(data)
        call = lambda: queue_storage.delete(address, modelled.message_id, receipt)  # noqa: E731
        if not self._is_refused(address, modelled, receipt, call):
            call()
            self._forget(address, modelled)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def touch_what_is_gone(self, data):
        address, message_id, receipt = data.draw(st.sampled_from(self.gone))
        with pytest.raises(MessageNotFound):
            queue_storage.delete(address, message_id, receipt)
        with pytest.raises(MessageNotFound):
            queue_storage.update(address, message_id, receipt, visibility_timeout=SECOND)

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data(), what=st.sampled_from(["release", "release", "edit", "remove", "requeue", "requeue", "clear"]))
    def operate(self, data, what):
        getattr(self, f"_{what}")(data)

    def _clear(self, data):
        address = data.draw(st.sampled_from([self.queue, self.poison]))
        assert queue_storage.clear(address) == len(self.there[address])
        for modelled in list(self.there[address]):
            self._forget(address, modelled)

    def _release(self, data):
        numbers = self._draw_numbers(data, self.queue)
        held = [m for m in self._numbered(self.queue, numbers) if m.visible_at > self.now and not rules.has_expired(m, self.now)]
        assert queue_storage.release(self.queue, numbers) == sorted(m.number for m in held)
        tokens = {row.sequence_number: row.lock_token for row in self._rows(self.queue)}
        for modelled in held:
            assert tokens[modelled.number] not in modelled.receipts
            self._replace(self.queue, modelled, self._held(modelled, tokens[modelled.number], None, 0))

    def _edit(self, data):
        """QS-927: what is not leased and has not expired. It gets a new receipt."""
        if not self.there[self.queue]:
            return
        modelled = data.draw(st.sampled_from(self.there[self.queue]))
        waits = rules.display_state(modelled, self.now) in (DisplayState.VISIBLE, DisplayState.DELAYED, DisplayState.RESCHEDULED)
        try:
            queue_storage.edit(self.queue, modelled.number, text="edited")
        except (MessageHeld, NotAllowed):
            assert not waits
            return
        [receipt] = [row.lock_token for row in self._rows(self.queue) if row.sequence_number == modelled.number]
        assert waits and receipt not in modelled.receipts
        after = replace(modelled, receipt=receipt, receipts=(*modelled.receipts, receipt), text="edited")
        self._replace(self.queue, modelled, after)

    def _remove(self, data):
        numbers = self._draw_numbers(data, self.queue)
        gone = self._numbered(self.queue, numbers)
        assert queue_storage.remove(self.queue, numbers) == sorted(m.number for m in gone)
        for modelled in gone:
            self._forget(self.queue, modelled)

    def _requeue(self, data):
        numbers = self._draw_numbers(data, self.poison)
        free = [
            m
            for m in self._numbered(self.poison, numbers)
            if rules.display_state(m, self.now) in (DisplayState.VISIBLE, DisplayState.DELAYED, DisplayState.RESCHEDULED)
        ]
        assert sorted(queue_storage.requeue_poison(self.poison, numbers)) == sorted(m.number for m in free)
        self._move(self.poison, self.queue, free)

    @rule(seconds=st.sampled_from([1, 5, 10, 20, 45]))
    def let_time_pass(self, seconds):
        namespaces.step_clock(self.queue.namespace, seconds * SECOND)

    @precondition(lambda self: any(m.visible_at > self.now for there in self.there.values() for m in there))
    @rule(just_before=st.booleans())
    def go_to_the_next_instant(self, just_before):
        """Where something becomes visible, or a microsecond before."""
        at = min(m.visible_at for there in self.there.values() for m in there if m.visible_at > self.now)
        namespaces.step_clock(self.queue.namespace, at - self.now - timedelta(microseconds=just_before))

    @rule()
    def sweep(self):
        self._sweep()

    # What must hold

    @invariant()
    def both_show_the_same(self):
        self._follow()
        for address, there in self.there.items():
            rows = {row.sequence_number: row for row in self._rows(address)}
            assert sorted(rows) == sorted(m.number for m in there)
            for m in there:
                row = rows[m.number]
                shown = (
                    row.visible_at,
                    row.expires_at,
                    row.delivery_count,
                    row.hold_kind,
                    row.lock_token,
                    bytes(row.body).decode(),
                )
                assert shown == (m.visible_at, m.expires_at, m.delivery_count, m.hold_kind, m.receipt, m.text)
            visible = self._visible(address)
            assert [m.sequence_number for m in queue_storage.peek(address, 32)] == [m.number for m in visible][:32]
            assert queue_storage.approximate_count(address) == sum(not rules.has_expired(m, self.now) for m in there)
            self._counts_agree(address)
            assert ledger_agrees(address)

    @invariant()
    def what_is_explained_is_what_is_so(self):
        visible = {m.number for m in self._visible(self.queue)}
        for m in self.there[self.queue][:3]:
            explanation = queue_storage.explain(self.queue, m.number)
            assert explanation.deliverable == (m.number in visible)
            assert explanation.message.display_state is rules.display_state(m, self.now)

    def teardown(self):
        if not hasattr(self, "queue"):
            return
        self._sweep()
        self.both_show_the_same()
        for address, there in self.there.items():
            assert not [m for m in there if self._is_due(address, m)]  # a sweep leaves nothing undone
            recorded = events(address)
            born = [e.sequence_number for e in recorded if e.kind == 1]
            gone = [e.sequence_number for e in recorded if e.kind in (6, 11, 14, 22)]
            assert sorted(born) == sorted(gone + [m.number for m in there]) == list(range(1, self.next[address]))

    # The model's own machinery

    @property
    def now(self) -> datetime:
        return now(self.queue)

    def _sweep(self):
        for address in (self.queue, self.poison):
            sweep(address)
        sweeps.roll_up_counts()

    def _visible(self, address):
        return sorted(
            (
                m
                for m in self.there[address]
                if rules.display_state(m, self.now) is DisplayState.VISIBLE and not self._is_spent(address, m)
            ),
            key=lambda m: m.order,
        )

    def _is_spent(self, address, m):
        """To be moved: visible, got as often as allowed, in the queue that has a poison queue."""
        visible = rules.display_state(m, self.now) is DisplayState.VISIBLE
        return address == self.queue and visible and rules.is_spent(m.delivery_count, self.most)

    def _is_due(self, address, m):
        grace = self.grace if address == self.queue else 60 * SECOND
        return self._is_spent(address, m) or m.expires_at is not None and m.expires_at + grace <= self.now

    def _follow(self):
        """What is due happens when the broker gets to it: let it happen in the model to those that have left."""
        for address in (self.queue, self.poison):
            present = {row.sequence_number for row in self._rows(address)}
            left = [m for m in self.there[address] if m.number not in present]
            assert all(self._is_due(address, m) for m in left)
            spent = [m for m in left if self._is_spent(address, m)]
            for modelled in left:
                if modelled not in spent:
                    self._forget(address, modelled)
            self._move(address, self.poison, spent)

    def _move(self, source, target, moved):
        """New messages with new ids, in the order in which they would have been got."""
        rows = {row.sequence_number: row for row in self._rows(target)} if moved else {}
        for modelled in sorted(moved, key=lambda m: m.order):
            row = rows[self.next[target]]
            assert row.resubmitted_from["sequence_number"] == modelled.number
            assert row.message_id != modelled.message_id and row.enqueued_at == self.now
            self._forget(source, modelled)
            made = Modelled(
                row.sequence_number, row.message_id, row.lock_token, modelled.text, self.now, self.now + WEEK, self.now
            )
            self.there[target].append(replace(made, receipts=(row.lock_token,)))
            self.next[target] += 1

    def _counts_agree(self, address):
        there, counts = self.there[address], reads.counts(address)
        held = {kind: sum(m.hold_kind is kind and m.visible_at > self.now for m in there) for kind in HoldKind}
        shown = {
            HoldKind.GET: counts.locked,
            HoldKind.PUT: counts.delayed,
            HoldKind.UPDATE_BEFORE_GET: counts.rescheduled,
            HoldKind.UPDATE: counts.extended,
        }
        assert (counts.active, shown) == (len(there), held)

    def _rows(self, address):
        query = "SELECT * FROM vitrine_message WHERE entity_id = %s"
        return connections.current().execute(query, [entity_id(address)]).fetchall()

    def _draw(self, data):
        """A message, and one of the receipts it ever had, its current one more often."""
        address = data.draw(st.sampled_from([a for a in self.there if self.there[a]]))
        modelled = data.draw(st.sampled_from(self.there[address]))
        receipt = data.draw(st.sampled_from([*modelled.receipts, modelled.receipt, modelled.receipt]))
        return address, modelled, receipt

    def _is_refused(self, address, modelled, receipt, call):
        expired = rules.has_expired(modelled, self.now)
        if not expired and receipt == modelled.receipt:
            return False
        with pytest.raises(MessageNotFound if expired else PopReceiptMismatch):
            call()
        return True

    def _draw_numbers(self, data, address):
        numbers = [m.number for m in self.there[address]]
        return data.draw(st.lists(st.sampled_from([*numbers, 9999]), max_size=3, unique=True))

    def _numbered(self, address, numbers):
        return [m for m in self.there[address] if m.number in numbers]

    def _held(self, modelled, receipt, kind, seconds, **changes):
        receipts = (*modelled.receipts, receipt)
        return replace(
            modelled, receipt=receipt, receipts=receipts, hold_kind=kind, visible_at=self.now + seconds * SECOND, **changes
        )

    def _replace(self, address, old, new):
        self.there[address][self.there[address].index(old)] = new

    def _forget(self, address, modelled):
        self.there[address].remove(modelled)
        self.gone.append((address, modelled.message_id, modelled.receipt))


@pytest.mark.slow
@pytest.mark.usefixtures("broker_database")
def test_storage_queues_agree_with_the_rules(monkeypatch):
    monkeypatch.setattr(getting, "CHEAP_REFRESH", float("inf"))  # a slow machine leaves no refresh out
    run_machine(QueuesAgainstModel, 40, 40)
