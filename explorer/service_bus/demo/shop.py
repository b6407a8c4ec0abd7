"""The web shop's namespace, entities, keys, example messages and generated history."""

from __future__ import annotations

from datetime import timedelta

from broker_core import namespaces, service_bus
from broker_core.common.errors import EntityExists
from broker_core.common.typed import Typed
from broker_core.common.types import Actor, EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message, QueueSettings, SubscriptionSettings, TopicSettings

from . import history

NAMESPACE = "demo"
PLAYGROUND = "playground"
SHOP_KEY, APP_KEY, DASHBOARD_KEY = "web-shop", "mobile-app", "dashboard"  # shared access policies, named as their programs
GUIDE = Actor.local("guide")
ADDRESS_UNKNOWN = "AddressUnknown"  # the reason of an example


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


QUEUES = {
    "orders": QueueSettings(
        lock_duration=_seconds(30),
        max_delivery_count=3,
        user_metadata="Orders of the web shop, sent over HTTP. Two consumers; an order that fails three times is dead-lettered.",
    ),
    "payments": QueueSettings(
        lock_duration=_seconds(5),
        max_delivery_count=5,
        user_metadata="Lock duration 5 s. Bank transfers take longer, so their locks expire; long checks renew their locks.",
    ),
    "invoices": QueueSettings(
        lock_duration=_seconds(20),
        user_metadata="Some invoices are deferred until approved; invalid ones are dead-lettered with a reason.",
    ),
    "notifications": QueueSettings(
        default_message_time_to_live=_seconds(20),
        dead_lettering_on_message_expiration=True,
        user_metadata="TTL 20 seconds. The app that receives them over HTTP is offline at times; notifications it misses expire.",
    ),
    "reminders": QueueSettings(user_metadata="Scheduled for later; some are cancelled before their time."),
    "stock-levels": QueueSettings(
        default_message_time_to_live=_seconds(10),
        user_metadata="Received and deleted over HTTP. Messages older than 10 seconds are dropped.",
    ),
    "parcels": QueueSettings(
        lock_duration=_seconds(20),
        requires_session=True,
        user_metadata="One session per parcel: a courier processes its steps in order. The session state stores the progress.",
    ),
    PLAYGROUND: QueueSettings(
        max_delivery_count=3,
        user_metadata="For your own experiments: no program receives here. The first messages are examples.",
    ),
}
EVENTS = "shop-events"
TOPIC = TopicSettings(user_metadata="Events of the shop. Each subscription receives copies of the messages that match its rules.")
SUBSCRIPTIONS = {
    "everything": (SubscriptionSettings(user_metadata="The default rule: matches every message."), None),
    "large-orders": (
        SubscriptionSettings(user_metadata="A SQL filter, and an action that marks the copies."),
        Rule("Large", compile_filter("sys.Label = 'order.placed' AND total >= 150"), compile_action("SET priority = 'high'")),
    ),
    "returns": (
        SubscriptionSettings(
            user_metadata="A correlation filter: the subject must be equal. Returns without a receipt are dead-lettered."
        ),
        Rule("Returned", CorrelationFilter(subject="parcel.returned")),
    ),
}
SUBSCRIPTION_PATHS = {name: EntityAddress("", EVENTS).subscription(name).path for name in SUBSCRIPTIONS}
CONSUMED = QUEUES.keys() - {PLAYGROUND} | set(SUBSCRIPTION_PATHS.values())  # paths that the programs receive from


def seed(namespace: str = NAMESPACE, *, history_messages: int = history.MESSAGES) -> None:
    """Create the missing entities and keys, then generate history and put examples into the playground."""
    namespaces.ensure_namespace(namespace, Family.SERVICE_BUS, "A web shop (demo)")
    for path, settings in QUEUES.items():
        entities.ensure_queue(EntityAddress(namespace, path), settings)
    events = EntityAddress(namespace, EVENTS)
    entities.ensure_topic(events, TOPIC)
    for name, (of_subscription, rule) in SUBSCRIPTIONS.items():
        entities.ensure_subscription(events.subscription(name), of_subscription, rule=rule)
    _ensure_key(EntityAddress(namespace, "orders"), SHOP_KEY, send=True)
    _ensure_key(EntityAddress(namespace, "notifications"), APP_KEY, listen=True)
    _ensure_key(EntityAddress(namespace, "stock-levels"), DASHBOARD_KEY, listen=True)
    if history_messages:
        history.generate(namespace, messages=history_messages)
    _send_examples(EntityAddress(namespace, PLAYGROUND))


def _ensure_key(address: EntityAddress, name: str, *, send: bool = False, listen: bool = False) -> None:
    try:
        shared_access.create_policy(address, name, send=send, listen=listen)
    except EntityExists:
        return


def _send_examples(playground: EntityAddress) -> None:
    """Send a message for each state: one is deferred, two are dead-lettered, the others are active or scheduled."""
    service_bus.send(playground, [_deferred(), _rejected(), _failing()], actor=GUIDE)
    deferred, rejected, failing = service_bus.receive(playground, 3, actor=GUIDE)
    service_bus.defer(playground, [deferred.lock_token], {"waits_for": "part 7 of 12"}, actor=GUIDE)
    reason = (ADDRESS_UNKNOWN, "No street of this name in 10115 Berlin. Correct the address, then resubmit.")
    service_bus.dead_letter(playground, [rejected.lock_token], *reason, actor=GUIDE)
    while failing:
        service_bus.abandon(playground, [failing.lock_token], {"last_error": "Printer 3 is out of paper"}, actor=GUIDE)
        failing = next(iter(service_bus.receive(playground, 1, actor=GUIDE)), None)
    tomorrow = namespaces.get_clock(playground.namespace).now + timedelta(days=1)
    service_bus.send(playground, [*_active(), _scheduled(tomorrow)], actor=GUIDE)


def _deferred() -> Message:
    return Message(
        b'{"part": 8, "of": 12}', message_id="example-deferred", subject="upload.part", content_type="application/json"
    )


def _rejected() -> Message:
    body = b'{"parcel": 5512, "street": "Invalidenstrase 43", "postcode": "10115"}'
    return Message(body, message_id="example-rejected", subject="parcel.address", content_type="application/json")


def _failing() -> Message:
    return Message(b"label 4711", message_id="example-failing", subject="label.print", content_type="text/plain")


def _active() -> list[Message]:
    typed = {
        "text": "naïve café", "whole": 42, "fraction": 2.5, "yes": True, "nothing": None, "bytes": b"\x00\xff",
        "duration": timedelta(minutes=90), "small": Typed("ubyte", 7),
    }  # fmt: skip
    return [
        Message(b"Hello! Receive me, then complete, abandon, defer or dead-letter me.", message_id="example-hello",
                subject="welcome", content_type="text/plain"),
        Message(b'{"title": "Properties have types", "see": ["properties", "timeline"]}', message_id="example-properties",
                subject="welcome", correlation_id="tour", content_type="application/json", properties=typed),
        Message(bytes(range(256)), message_id="example-binary", subject="welcome", content_type="application/octet-stream"),
        Message(b"<offer><percent>15</percent></offer>", message_id="example-brief", subject="welcome",
                content_type="application/xml", time_to_live=timedelta(hours=3)),
    ]  # fmt: skip


def _scheduled(at) -> Message:
    return Message(
        b"Good morning!", message_id="example-scheduled", subject="welcome", content_type="text/plain", scheduled_enqueue_at=at
    )
