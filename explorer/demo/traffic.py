"""The shop's programs. Each is a generator that acts, then yields how many seconds it rests before its next turn.

A program that is closed gives back what it holds; one that fails is started anew, as a crashed program is. On the average some
three messages a second enter all queues and subscriptions together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import BrokerError, MessageNotFound, NoSessionAvailable
from broker_core.common.types import Actor, EntityAddress, LockedMessage, Message, MessageState, Right, Session

from . import goods
from .http_queue import HttpQueue
from .stage import APP_KEY, COPIES, EVENTS, SHOP_KEY, WORKING

Turns = Generator[float, None, None]
Program = Callable[[], Turns]
MOST_WAITING = 150  # messages in a queue; nobody sends to it while there are more
MOST_DEAD = 60  # dead letters in a queue before the oldest are purged, down to LEFT_DEAD
LEFT_DEAD = 45
APPROVED_AFTER = timedelta(seconds=30)  # what a deferred invoice waits, by the namespace's clock
REJECTIONS = (
    ("CustomerUnknown", "The customer is not in the ledger of 2026. Create the account, then resubmit."),
    ("VatNumberInvalid", "The tax office does not know this VAT number. Ask the customer for the right one."),
    ("AmountMismatch", "Net and VAT do not add up to what was paid: 0.01 EUR too little."),
)


class Traffic:
    """All programs of one namespace. site: where its HTTP front end is reached; dice: decide what a program leaves to chance."""

    def __init__(self, namespace: str, site: str, dice: Random):
        self._namespace, self._site, self._dice = namespace, site, dice
        self._crowded: set[str] = set()

    def programs(self) -> dict[str, Program]:
        """Every program by its name."""
        consumers = {
            "orders-1": ("orders", self._fulfil, 2),
            "orders-2": ("orders", self._fulfil, 2),
            "payments-1": ("payments", self._charge, 1),
            "payments-2": ("payments", self._charge, 1),
            "invoices-1": ("invoices", self._book, 3),
            "reminders-1": ("reminders", self._remind, 1),
            "bookkeeper": (COPIES["everything"], self._note, 5),
            "sales": (COPIES["large-orders"], self._note, 1),
            "returns-desk": (COPIES["returns"], self._take_back, 1),
        }
        return {
            "operator": self._operate,
            **{name: partial(self._consume, name, *what) for name, what in consumers.items()},
            "web-shop": self._sell,
            "warehouse": self._count_stock,
            "calendar": self._schedule,
            "event-bus": self._announce,
            "packer": self._pack,
            "courier-1": partial(self._deliver, "courier-1"),
            "courier-2": partial(self._deliver, "courier-2"),
            "approver": self._approve,
            "mobile-app": self._show_notifications,
            "dashboard": self._show_stock,
        }

    # Those who send

    def _sell(self) -> Turns:
        """Customers order over HTTP: now one, now a few at once."""
        client = HttpQueue(self._site, self._address("orders"), SHOP_KEY)
        try:
            while True:
                yield self._dice.expovariate(1 / 2.4)
                for _ in range(self._dice.choice((1, 1, 1, 1, 4))):
                    if "orders" not in self._crowded:
                        client.send(goods.order(self._dice))
                    yield 0.1
        finally:
            client.close()

    def _count_stock(self) -> Turns:
        while True:
            self._send("stock-levels", goods.stock_level(self._dice), sender="warehouse")
            yield self._dice.uniform(3, 5)

    def _schedule(self) -> Turns:
        """Reminders for later; one in six is cancelled again."""
        while True:
            at = namespaces.get_clock(self._namespace).now + timedelta(seconds=self._dice.randint(20, 90))
            numbers = self._send("reminders", goods.reminder(self._dice, at), sender="calendar")
            yield self._dice.uniform(5, 9)
            scheduled = [number for number in numbers if number is not None]
            if scheduled and self._dice.random() < 1 / 6:
                with suppress(MessageNotFound):
                    service_bus.cancel_scheduled(self._address("reminders"), scheduled, actor=_actor("calendar"))

    def _announce(self) -> Turns:
        """Publishes what happens in the shop; who subscribes is none of its business."""
        while True:
            self._send(EVENTS, goods.happening(self._dice), sender="event-bus")
            yield self._dice.uniform(3, 6)

    def _pack(self) -> Turns:
        """All steps of a parcel at once, with the parcel's number as their session."""
        while True:
            self._send("parcels", *goods.parcel(self._dice), sender="packer")
            yield self._dice.uniform(7, 12)

    # Those who receive

    def _consume(self, name: str, path: str, handle: Callable[[LockedMessage, dict, Actor], Turns], batch: int) -> Turns:
        """Receive, have `handle` deal with one message after the other, and again."""
        address, actor = self._address(path), _actor(name, f"consumer {name}")
        held: list[LockedMessage] = []
        try:
            while True:
                held = service_bus.receive(address, batch, actor=actor)
                if not held:
                    yield self._dice.uniform(1, 2)
                while held:
                    yield from self._deal_with(held[0], handle, actor)
                    held.pop(0)
        finally:
            if held:
                with suppress(BrokerError):
                    service_bus.release(address, [message.lock_token for message in held], actor=actor)

    def _deal_with(self, message: LockedMessage, handle: Callable[[LockedMessage, dict, Actor], Turns], actor: Actor) -> Turns:
        said = _said(message)
        try:
            yield from handle(message, said, actor)
        except (KeyError, TypeError, ValueError) as problem:  # somebody else's message, perhaps a person's
            description = f"The program cannot parse the body: {type(problem).__name__} {problem}"
            service_bus.dead_letter(message.address, [message.lock_token], "UnreadableMessage", description[:500], actor=actor)

    def _fulfil(self, message: LockedMessage, order: dict, actor: Actor) -> Turns:
        """An order without a customer fails each time, unless an operator has repaired it."""
        yield self._dice.uniform(0.8, 2.6)
        anonymous = order["customer"] is None and "repaired_by" not in message.properties
        if anonymous or self._dice.random() < 0.03:
            problem = "The order names no customer" if anonymous else "The stock service timed out after 1 s"
            service_bus.abandon(message.address, [message.lock_token], {"last_error": problem}, actor=actor)
        elif not service_bus.complete(message.address, [message.lock_token], actor=actor).lost:
            if self._dice.random() < 0.35:
                self._send("payments", goods.payment(self._dice, order), sender=actor.name)
            if order["customer"]:
                self._send("notifications", goods.notification(self._dice, order), sender=actor.name)

    def _charge(self, message: LockedMessage, payment: dict, actor: Actor) -> Turns:
        """A bank transfer takes longer than the lock lasts, at least the first time; a credit check renews its lock."""
        place, tokens = message.address, [message.lock_token]
        if payment["method"] == "bank transfer" and message.delivery_count < self._dice.choice((1, 1, 2)):
            yield 7
        elif payment["method"] == "pay later":
            for _ in range(3):
                yield 3
                service_bus.renew(place, tokens, actor=actor)
        else:
            yield self._dice.uniform(1, 3)
        if not service_bus.complete(place, tokens, actor=actor).lost:
            self._send("invoices", goods.invoice(self._dice, payment), sender=actor.name)

    def _book(self, message: LockedMessage, invoice: dict, actor: Actor) -> Turns:
        """Bad invoices go to the dead-letter queue with a reason; large or odd ones wait for somebody to approve them."""
        yield self._dice.uniform(0.5, 2)
        place, tokens, luck = message.address, [message.lock_token], self._dice.random()
        if luck < 0.12:
            service_bus.dead_letter(place, tokens, *self._dice.choice(REJECTIONS), actor=actor)
        elif luck < 0.3:
            service_bus.defer(place, tokens, {"waits_for": "approval", "net": invoice["net"]}, actor=actor)
        else:
            service_bus.complete(place, tokens, actor=actor)

    def _approve(self) -> Turns:
        """Somebody goes through the deferred invoices, found by peeking, and receives them by number."""
        address, actor = self._address("invoices"), _actor("approver", "Ines, accounting")
        while True:
            yield self._dice.uniform(8, 15)
            now = namespaces.get_clock(self._namespace).now
            for message in service_bus.peek(address, max_count=100, actor=actor):
                if message.state is MessageState.DEFERRED and now - message.enqueued_at > APPROVED_AFTER:
                    with suppress(MessageNotFound):  # somebody holds it
                        (mine,) = service_bus.receive_deferred(address, [message.sequence_number], actor=actor)
                        yield 1
                        service_bus.complete(address, [mine.lock_token], actor=actor)

    def _remind(self, message: LockedMessage, reminder: dict, actor: Actor) -> Turns:
        yield self._dice.uniform(1, 4)
        service_bus.complete(message.address, [message.lock_token], actor=actor)

    def _note(self, message: LockedMessage, event: dict, actor: Actor) -> Turns:
        yield self._dice.uniform(0.2, 0.8)
        service_bus.complete(message.address, [message.lock_token], actor=actor)

    def _take_back(self, message: LockedMessage, event: dict, actor: Actor) -> Turns:
        yield self._dice.uniform(1, 3)
        if event["receipt"]:
            service_bus.complete(message.address, [message.lock_token], actor=actor)
        else:
            service_bus.dead_letter(message.address, [message.lock_token], "NoReceipt", "Ask the customer for it.", actor=actor)

    def _deliver(self, name: str) -> Turns:
        """Takes the next parcel that nobody holds through its steps."""
        address, actor = self._address("parcels"), _actor(name, name.replace("-", " "))
        session = None
        try:
            while True:
                try:
                    session = service_bus.accept_session(address, actor=actor)
                except NoSessionAvailable:
                    yield self._dice.uniform(2, 4)
                    continue
                yield from self._walk(session, actor)
                service_bus.close_session(session, actor=actor)
                session = None
        finally:
            if session is not None:
                with suppress(BrokerError):
                    service_bus.close_session(session, actor=actor)

    def _walk(self, session: Session, actor: Actor) -> Turns:
        """One step after the other; the session's state says how far the parcel came, and is cleared when it has arrived."""
        while steps := service_bus.receive_from_session(session, actor=actor):
            yield self._dice.uniform(1.5, 4)
            service_bus.renew_session(session, actor=actor)
            step = _said(steps[0]).get("step")
            state = None if step == "delivered" else json.dumps({"last": step}).encode()
            service_bus.set_session_state(session, state, actor=actor)
            service_bus.complete(session.address, [steps[0].lock_token], actor=actor)

    def _show_notifications(self) -> Turns:
        """Over HTTP, and away now and then, for longer than a notification lives."""
        client = HttpQueue(self._site, self._address("notifications"), APP_KEY, "mobile app")
        try:
            while True:
                yield self._dice.uniform(28, 40)
                for _ in range(90):
                    delivery = client.receive()
                    yield self._dice.uniform(0.2, 0.6) if delivery else 2
                    if delivery and self._dice.random() < 0.05:
                        client.unlock(delivery)
                    elif delivery:
                        client.complete(delivery)
        finally:
            client.close()

    def _show_stock(self) -> Turns:
        """Over HTTP: receives and deletes. It sleeps now and then; what it missed has expired when it wakes."""
        client = HttpQueue(self._site, self._address("stock-levels"), APP_KEY)
        try:
            while True:
                yield self._dice.uniform(20, 30)
                for _ in range(20):
                    while client.receive_and_delete() is not None:
                        yield 0.2
                    yield 4
        finally:
            client.close()

    # Who looks after it

    def _operate(self) -> Turns:
        """Keeps all queues small: says where nobody should send, purges the oldest dead letters, has repaired ones sent again."""
        while True:
            rows = [row for row in reads.overview(self._namespace) if row.address.path in WORKING]
            crowded = [row.address for row in rows if row.counts.total - row.counts.dead_letter > MOST_WAITING]
            self._crowded = {(address.topic or address).path for address in crowded}
            for row in rows:
                self._thin_out(row.address.dead_letter, row.counts.dead_letter)
            yield self._dice.uniform(10, 20)
            if self._dice.random() < 0.2:
                self._resubmit_oldest(self._address(self._dice.choice(("orders", "orders", "invoices"))).dead_letter)

    def _thin_out(self, dead_letters: EntityAddress, count: int) -> None:
        if count > MOST_DEAD:
            service_bus.purge(dead_letters, max_count=count - LEFT_DEAD, actor=_actor("operator"))

    def _resubmit_oldest(self, dead_letters: EntityAddress) -> None:
        oldest = service_bus.peek(dead_letters, max_count=self._dice.randint(1, 2), actor=_actor("operator"))
        numbers = [message.sequence_number for message in oldest]
        service_bus.resubmit(dead_letters, numbers, properties={"repaired_by": "operator"}, actor=_actor("operator"))

    def _send(self, path: str, *messages: Message, sender: str) -> Sequence[int | None]:
        """The numbers given; none where it is crowded."""
        if path in self._crowded:
            return []
        return service_bus.send(self._address(path), messages, actor=_actor(sender))

    def _address(self, path: str) -> EntityAddress:
        return EntityAddress(self._namespace, path)


def _actor(name: str, holder: str = "") -> Actor:
    return Actor("process", name, Right.ALL, holder)


def _said(message: LockedMessage) -> dict:
    """The body as JSON; nothing where it is none."""
    try:
        said = json.loads(bytes(message.body))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
