"""The shop's programs, as generators that act and then yield the number of seconds until their next step.

A program that is closed releases the locks it holds; one that fails is restarted. On average about three messages per second
enter all queues and subscriptions together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from math import pi, sin
from random import Random

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import BrokerError, MessageNotFound, NoSessionAvailable
from broker_core.common.types import Actor, EntityAddress, MessageState, Right
from broker_core.service_bus.rules.values import LockedMessage, Message, Session
from explorer.demo.parts import Crashed, InjectedFailure, Program, Turns

from . import messages
from .http_queue import HttpQueue
from .shop import APP_KEY, CONSUMED, DASHBOARD_KEY, EVENTS, SHOP_KEY, SUBSCRIPTION_PATHS

MOST_WAITING = 150  # messages in a queue before the programs stop sending to it
LEAST_WAITING = {"payments": 5}  # its consumers let so many gather, so that there is always one to look at
WAVE_SECONDS = 90
LEAST_WAVE, LARGEST_WAVE = 0.2, 1.6  # sales per second, of 1.6 orders on average; the two consumers work off 1.2 orders a second
MOST_DEAD = 60  # dead letters in a queue before the oldest are purged
LEFT_DEAD = 45  # that remain after the purge
APPROVED_AFTER = timedelta(seconds=30)  # how long an invoice stays deferred (namespace clock)
REJECTIONS = (
    ("CustomerUnknown", "The customer is not in the ledger of 2026. Create the account, then resubmit."),
    ("VatNumberInvalid", "The tax office does not know this VAT number. Ask the customer for the right one."),
    ("AmountMismatch", "Net and VAT do not add up to what was paid: 0.01 EUR too little."),
)
NO_RECEIPT = "NoReceipt"  # the reason of rejected returns


DOES = {  # each program of the shop
    "operator": "purges and resubmits dead letters",
    **dict.fromkeys(("orders-1", "orders-2"), "consumes orders"),
    **dict.fromkeys(("payments-1", "payments-2"), "consumes payments"),
    "invoices-1": "consumes invoices",
    "reminders-1": "consumes reminders",
    "bookkeeper": f"consumes {EVENTS}/everything",
    "sales": f"consumes {EVENTS}/large-orders",
    "returns-desk": f"consumes {EVENTS}/returns",
    "web-shop": "sends to orders over HTTP",
    "warehouse": "sends to stock-levels",
    "calendar": "schedules messages in reminders",
    "event-bus": f"publishes to {EVENTS}",
    "packer": "sends to parcels",
    **dict.fromkeys(("courier-1", "courier-2"), "consumes the sessions of parcels"),
    "approver": "consumes deferred messages of invoices",
    "mobile-app": "consumes notifications over HTTP",
    "dashboard": "consumes stock-levels over HTTP",
}


def programs(namespace: str, dice: Random, site: str) -> dict[str, Program]:
    """The shop's programs by name."""
    return Traffic(namespace, site, dice).programs()


class Traffic:
    """All programs of one namespace. site: base URL of its HTTP front end. dice: source of chance."""

    def __init__(self, namespace: str, site: str, dice: Random):
        self._namespace, self._site, self._dice = namespace, site, dice
        self._full: set[str] = set()

    def programs(self) -> dict[str, Program]:
        consumers = {
            "orders-1": ("orders", self._fulfil, 2),
            "orders-2": ("orders", self._fulfil, 2),
            "payments-1": ("payments", self._charge, 1),
            "payments-2": ("payments", self._charge, 1),
            "invoices-1": ("invoices", self._book, 3),
            "reminders-1": ("reminders", self._remind, 1),
            "bookkeeper": (SUBSCRIPTION_PATHS["everything"], self._note, 5),
            "sales": (SUBSCRIPTION_PATHS["large-orders"], self._note, 1),
            "returns-desk": (SUBSCRIPTION_PATHS["returns"], self._accept_return, 1),
        }
        return {
            "operator": self._operate,
            **{name: partial(self._consume, name, *arguments) for name, arguments in consumers.items()},
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

    # Senders

    def _sell(self) -> Turns:
        """Sends orders over HTTP, one or four at a time, in waves: the queue fills up and is worked off every WAVE_SECONDS."""
        client = HttpQueue(self._site, self._address("orders"), SHOP_KEY)
        elapsed = 0.0
        try:
            while True:
                pause = self._dice.expovariate(_wave(elapsed))
                elapsed += pause + 0.1
                yield pause
                for _ in range(self._dice.choice((1, 1, 1, 1, 4))):
                    if "orders" not in self._full:
                        client.send(messages.order(self._dice))
                    yield 0.1
        finally:
            client.close()

    def _count_stock(self) -> Turns:
        while True:
            self._send("stock-levels", messages.stock_level(self._dice), sender="warehouse")
            yield self._dice.uniform(3, 5)

    def _schedule(self) -> Turns:
        """Schedules reminders and cancels one in six."""
        while True:
            at = namespaces.get_clock(self._namespace).now + timedelta(seconds=self._dice.randint(20, 90))
            numbers = self._send("reminders", messages.reminder(self._dice, at), sender="calendar")
            yield self._dice.uniform(5, 9)
            scheduled = [number for number in numbers if number is not None]
            if scheduled and self._dice.random() < 1 / 6:
                with suppress(MessageNotFound):
                    service_bus.cancel_scheduled(self._address("reminders"), scheduled, actor=_actor("calendar"))

    def _announce(self) -> Turns:
        """Publishes the shop's events to the topic."""
        while True:
            self._send(EVENTS, messages.event(self._dice), sender="event-bus")
            yield self._dice.uniform(3, 6)

    def _pack(self) -> Turns:
        """Sends all steps of a parcel at once, in the parcel's session."""
        while True:
            self._send("parcels", *messages.parcel(self._dice), sender="packer")
            yield self._dice.uniform(7, 12)

    # Receivers

    def _consume(self, name: str, path: str, handle: Callable[[LockedMessage, dict, Actor], Turns], batch: int) -> Turns:
        """Receive batches forever and have `handle` process their messages one after the other."""
        address, actor = self._address(path), _actor(name)
        locked: list[LockedMessage] = []
        try:
            while True:
                enough = path not in LEAST_WAITING or reads.counts(address).active >= LEAST_WAITING[path]
                locked = service_bus.receive(address, batch, actor=actor) if enough else []
                if not locked:
                    yield self._dice.uniform(1, 2)
                while locked:
                    yield from self._process(locked[0], handle, actor)
                    locked.pop(0)
        except Crashed:
            locked = []
            raise
        finally:
            if locked:
                with suppress(BrokerError):
                    service_bus.release(address, [message.lock_token for message in locked], actor=actor)

    def _process(self, message: LockedMessage, handle: Callable[[LockedMessage, dict, Actor], Turns], actor: Actor) -> Turns:
        content = _content(message)
        try:
            yield from handle(message, content, actor)
        except (KeyError, TypeError, ValueError) as problem:  # a message that a user sent, for example
            description = f"The program cannot parse the body: {type(problem).__name__} {problem}"
            service_bus.dead_letter(message.address, [message.lock_token], "UnreadableMessage", description[:500], actor=actor)
        except InjectedFailure:
            failed = {"last_error": "The consumer fails on demand"}
            service_bus.abandon(message.address, [message.lock_token], failed, actor=actor)

    def _fulfil(self, message: LockedMessage, order: dict, actor: Actor) -> Turns:
        """An order without a customer fails each time, until an operator has repaired it."""
        yield self._dice.uniform(0.8, 2.6)
        anonymous = order["customer"] is None and "repaired_by" not in message.properties
        if anonymous or self._dice.random() < 0.03:
            problem = "The order names no customer" if anonymous else "The stock service timed out after 1 s"
            service_bus.abandon(message.address, [message.lock_token], {"last_error": problem}, actor=actor)
        elif not service_bus.complete(message.address, [message.lock_token], actor=actor).lost:
            if self._dice.random() < 0.35:
                self._send("payments", messages.payment(self._dice, order), sender=actor.name)
            if order["customer"]:
                self._send("notifications", messages.notification(self._dice, order), sender=actor.name)

    def _charge(self, message: LockedMessage, payment: dict, actor: Actor) -> Turns:
        """A bank transfer outlasts the lock on its first deliveries; a credit check renews its lock."""
        address, tokens = message.address, [message.lock_token]
        if payment["method"] == "bank transfer" and message.delivery_count < self._dice.choice((1, 1, 2)):
            yield 7
        elif payment["method"] == "pay later":
            for _ in range(3):
                yield 3
                service_bus.renew(address, tokens, actor=actor)
        else:
            yield self._dice.uniform(1, 3)
        if not service_bus.complete(address, tokens, actor=actor).lost:
            self._send("invoices", messages.invoice(self._dice, payment), sender=actor.name)

    def _book(self, message: LockedMessage, invoice: dict, actor: Actor) -> Turns:
        """Dead-letters invalid invoices with a reason, and defers some until they are approved."""
        yield self._dice.uniform(0.5, 2)
        address, tokens, luck = message.address, [message.lock_token], self._dice.random()
        if luck < 0.12:
            service_bus.dead_letter(address, tokens, *self._dice.choice(REJECTIONS), actor=actor)
        elif luck < 0.3:
            service_bus.defer(address, tokens, {"waits_for": "approval", "net": invoice["net"]}, actor=actor)
        else:
            service_bus.complete(address, tokens, actor=actor)

    def _approve(self) -> Turns:
        """Finds deferred invoices by peeking, receives them by sequence number and completes them."""
        address, actor = self._address("invoices"), _actor("approver")
        while True:
            yield self._dice.uniform(8, 15)
            now = namespaces.get_clock(self._namespace).now
            for message in service_bus.peek(address, max_count=100, actor=actor):
                if message.state is MessageState.DEFERRED and now - message.enqueued_at > APPROVED_AFTER:
                    with suppress(MessageNotFound):  # another receiver holds the lock
                        (invoice,) = service_bus.receive_deferred(address, [message.sequence_number], actor=actor)
                        yield 1
                        service_bus.complete(address, [invoice.lock_token], actor=actor)

    def _remind(self, message: LockedMessage, reminder: dict, actor: Actor) -> Turns:
        yield self._dice.uniform(1, 4)
        service_bus.complete(message.address, [message.lock_token], actor=actor)

    def _note(self, message: LockedMessage, event: dict, actor: Actor) -> Turns:
        yield self._dice.uniform(0.2, 0.8)
        service_bus.complete(message.address, [message.lock_token], actor=actor)

    def _accept_return(self, message: LockedMessage, event: dict, actor: Actor) -> Turns:
        yield self._dice.uniform(1, 3)
        if event["receipt"]:
            service_bus.complete(message.address, [message.lock_token], actor=actor)
        else:
            service_bus.dead_letter(message.address, [message.lock_token], NO_RECEIPT, "Ask the customer for it.", actor=actor)

    def _deliver(self, name: str) -> Turns:
        """Accepts the next free session and processes its parcel's steps."""
        address, actor = self._address("parcels"), _actor(name)
        session = None
        try:
            while True:
                try:
                    session = service_bus.accept_session(address, actor=actor)
                except NoSessionAvailable:
                    yield self._dice.uniform(2, 4)
                    continue
                yield from self._process_steps(session, actor)
                service_bus.close_session(session, actor=actor)
                session = None
        except Crashed:
            session = None
            raise
        finally:
            if session is not None:
                with suppress(BrokerError):
                    service_bus.close_session(session, actor=actor)

    def _process_steps(self, session: Session, actor: Actor) -> Turns:
        """Process one step after the other. The session state stores the progress and is cleared on delivery."""
        while steps := service_bus.receive_from_session(session, actor=actor):
            yield self._dice.uniform(1.5, 4)
            service_bus.renew_session(session, actor=actor)
            step = _content(steps[0]).get("step")
            state = None if step == "delivered" else json.dumps({"last": step}).encode()
            service_bus.set_session_state(session, state, actor=actor)
            service_bus.complete(session.address, [steps[0].lock_token], actor=actor)

    def _show_notifications(self) -> Turns:
        """Receives over HTTP, with pauses that exceed the notifications' time-to-live."""
        client = HttpQueue(self._site, self._address("notifications"), APP_KEY)
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
        """Receives and deletes over HTTP, with pauses in which messages expire."""
        client = HttpQueue(self._site, self._address("stock-levels"), DASHBOARD_KEY)
        try:
            while True:
                yield self._dice.uniform(20, 30)
                for _ in range(20):
                    while client.receive_and_delete() is not None:
                        yield 0.2
                    yield 4
        finally:
            client.close()

    # Maintenance

    def _operate(self) -> Turns:
        """Keeps all queues small: stops senders of full queues, purges the oldest dead letters, resubmits some as repaired."""
        while True:
            rows = [row for row in reads.overview(self._namespace) if row.address.path in CONSUMED]
            full = [row.address for row in rows if row.counts.total - row.counts.dead_letter > MOST_WAITING]
            self._full = {(address.topic or address).path for address in full}
            for row in rows:
                self._purge_oldest(row.address.dead_letter, row.counts.dead_letter)
            yield self._dice.uniform(10, 20)
            if self._dice.random() < 0.2:
                self._resubmit_oldest(self._address(self._dice.choice(("orders", "orders", "invoices"))).dead_letter)

    def _purge_oldest(self, dead_letters: EntityAddress, count: int) -> None:
        if count > MOST_DEAD:
            service_bus.purge(dead_letters, max_count=count - LEFT_DEAD, actor=_actor("operator"))

    def _resubmit_oldest(self, dead_letters: EntityAddress) -> None:
        oldest = service_bus.peek(dead_letters, max_count=self._dice.randint(1, 2), actor=_actor("operator"))
        numbers = [message.sequence_number for message in oldest]
        service_bus.resubmit(dead_letters, numbers, properties={"repaired_by": "operator"}, actor=_actor("operator"))

    def _send(self, path: str, *outgoing: Message, sender: str) -> Sequence[int | None]:
        """The sequence numbers; empty if the queue is full and nothing was sent."""
        if path in self._full:
            return []
        return service_bus.send(self._address(path), outgoing, actor=_actor(sender))

    def _address(self, path: str) -> EntityAddress:
        return EntityAddress(self._namespace, path)


def _wave(seconds: float) -> float:
    """Orders per second: few, then up to LARGEST_WAVE."""
    return LEAST_WAVE + (LARGEST_WAVE - LEAST_WAVE) * max(0.0, sin(2 * pi * seconds / WAVE_SECONDS)) ** 2


def _actor(name: str) -> Actor:
    return Actor("process", name, Right.ALL)


def _content(message: LockedMessage) -> dict:
    """The body as a JSON object; empty if it is not one."""
    try:
        content = json.loads(bytes(message.body))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
