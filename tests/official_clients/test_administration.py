"""ServiceBusAdministrationClient of azure-servicebus, synchronous and asyncio: all entities, with all their properties."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioServiceBusAdministrationClient
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    EntityStatus,
    FalseRuleFilter,
    MessagingSku,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from broker_core import service_bus
from broker_core.service_bus import Message, entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas
from tests.eventually import eventually
from tests.wire.listening import listening

from .blocking import loop_in_a_thread, made
from .conftest import Bus

QUICKLY: dict[str, Any] = {"retry_total": 0}  # a refusal is not tried again
FOREVER = timedelta(days=10_675_199)  # and more: the client loses the last digits
AN_HOUR, A_SECOND = timedelta(hours=1), timedelta(seconds=1)


class PlainHttp(RequestsTransport):
    """By plain HTTP: the client always makes URLs with https."""

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https:", "http:", 1)
        return super().send(request, **options)


class AioPlainHttp(AioHttpTransport):
    """The same for the asyncio client."""

    async def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https:", "http:", 1)
        return await super().send(request, **options)


@pytest.fixture(params=["sync", "aio"])
def connect(request) -> Iterator[Callable[..., Any]]:
    """connect(connection_string) -> a client of either kind, closed after the test. With connection_verify, the certificate that
    it has to trust, it uses TLS."""
    with ExitStack() as opened:
        loop = opened.enter_context(loop_in_a_thread()) if request.param == "aio" else None

        def connect(connection_string: str, **options: Any) -> Any:
            def make() -> Any:
                of, transport = (
                    (AioServiceBusAdministrationClient, AioPlainHttp) if loop else (ServiceBusAdministrationClient, PlainHttp)
                )
                plain = {} if "connection_verify" in options else {"transport": transport()}
                return of.from_connection_string(connection_string, **QUICKLY, **plain, **options)

            return opened.enter_context(closing(made(loop, make) if loop else make()))

        yield connect


@pytest.fixture
def client(connect, bus):
    return connect(bus.connection_string)


def refused(status: int, call: Callable[[], Any], of: type[HttpResponseError] = HttpResponseError) -> str:
    """What a refusal with this status says."""
    with pytest.raises(of) as refusal:
        call()
    assert refusal.value.status_code == status, refusal.value
    return str(refusal.value)


def given(properties: Any, names: Any) -> dict[str, Any]:
    """The properties of these names, without the prefix of forwards."""
    values = {name: getattr(properties, name) for name in names}
    return {name: value.partition("://")[2].partition("/")[2] if "forward" in name else value for name, value in values.items()}


# Queues, topics and subscriptions: every property survives create, get, update, get.

QUEUE = {
    "auto_delete_on_idle": timedelta(minutes=5),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=3, seconds=1.5),
    "duplicate_detection_history_time_window": timedelta(seconds=20),
    "enable_batched_operations": False,
    "enable_express": True,
    "enable_partitioning": True,
    "forward_dead_lettered_messages_to": "dead/target",
    "forward_to": "target",
    "lock_duration": timedelta(seconds=5),
    "max_delivery_count": 3,
    "max_message_size_in_kilobytes": 2048,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "status": EntityStatus.DISABLED,
    "user_metadata": " h\u00e9 <&>\n\U0001f600 ",
}
TOPIC = {
    "auto_delete_on_idle": timedelta(minutes=5),
    "default_message_time_to_live": timedelta(days=3, seconds=1.5),
    "duplicate_detection_history_time_window": timedelta(days=7),
    "enable_batched_operations": False,
    "enable_express": True,
    "enable_partitioning": True,
    "max_message_size_in_kilobytes": 2048,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "status": EntityStatus.SEND_DISABLED,
    "support_ordering": True,
    "user_metadata": " h\u00e9 <&>\n\U0001f600 ",
}
SUBSCRIPTION = {
    "auto_delete_on_idle": timedelta(days=1),
    "dead_lettering_on_filter_evaluation_exceptions": False,
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(seconds=1),
    "enable_batched_operations": False,
    "forward_dead_lettered_messages_to": "dead/target",
    "forward_to": "target",
    "lock_duration": timedelta(minutes=5),
    "max_delivery_count": 2000,
    "requires_session": True,
    "status": EntityStatus.RECEIVE_DISABLED,
    "user_metadata": " h\u00e9 <&>\n\U0001f600 ",
}
CHANGED = {
    "auto_delete_on_idle": timedelta(days=9),
    "dead_lettering_on_filter_evaluation_exceptions": True,
    "dead_lettering_on_message_expiration": False,
    "default_message_time_to_live": timedelta(milliseconds=1500),
    "duplicate_detection_history_time_window": timedelta(minutes=3),
    "enable_batched_operations": True,
    "forward_dead_lettered_messages_to": "target",
    "forward_to": "dead/target",
    "lock_duration": timedelta(seconds=61),
    "max_delivery_count": 1,
    "max_message_size_in_kilobytes": 102_400,
    "max_size_in_megabytes": 5120,
    "status": EntityStatus.ACTIVE,
    "support_ordering": False,
    "user_metadata": "changed",
}
FIXED = {
    "enable_express": False, "enable_partitioning": False, "requires_duplicate_detection": False, "requires_session": False,
}  # fmt: skip


class Kind:
    """The calls for one kind of entity. own: its properties, with values that are no defaults."""

    def __init__(self, client: Any, kind: str):
        self.client, self.kind = client, kind
        self.own: dict[str, Any] = {"queue": QUEUE, "topic": TOPIC, "subscription": SUBSCRIPTION}[kind]
        self.changed = {name: value for name, value in CHANGED.items() if name in self.own}
        self.fixed = {name: value for name, value in FIXED.items() if name in self.own}
        self.parents = ("parent",) if kind == "subscription" else ()
        if self.parents:
            client.create_topic(*self.parents)

    def call(self, verb: str, *args: Any, **options: Any) -> Any:
        return getattr(self.client, f"{verb}_{self.kind}")(*self.parents, *args, **options)

    def runtime(self, name: str) -> Any:
        return getattr(self.client, f"get_{self.kind}_runtime_properties")(*self.parents, name)

    def list(self) -> list[Any]:
        plural = f"{self.kind}s"
        return list(getattr(self.client, f"list_{plural}")(*self.parents))


@pytest.fixture(params=["queue", "topic", "subscription"])
def kind(request, client):
    for name in ("target", "dead/target"):
        client.create_queue(name)
    return Kind(client, request.param)


def test_every_property_survives_create_get_update_get(kind):
    """By an object of properties that was changed."""
    created = kind.call("create", "orders", **kind.own)
    assert given(created, kind.own) == kind.own
    read = kind.call("get", "orders")
    assert given(read, kind.own) == kind.own and read.availability_status == EntityAvailabilityStatus.AVAILABLE
    assert [given(each, kind.own) for each in kind.list() if each.name == "orders"] == [kind.own]
    kind.call("update", read)
    assert given(kind.call("get", "orders"), kind.own) == kind.own, "an update that changes nothing"
    for name, value in kind.changed.items():
        setattr(read, name, value)
    read.availability_status = EntityAvailabilityStatus.LIMITED
    kind.call("update", read)
    after = kind.call("get", "orders")
    assert given(after, kind.own) == {**kind.own, **kind.changed}
    assert after.availability_status == EntityAvailabilityStatus.LIMITED


def test_each_property_is_changed_alone_by_keyword(kind):
    expected = dict(kind.own)
    kind.call("create", "orders", **kind.own)
    for name, value in kind.changed.items():
        kind.call("update", kind.call("get", "orders"), **{name: value})
        expected[name] = value
        assert given(kind.call("get", "orders"), kind.own) == expected, name


def test_a_mapping_changes_properties_too(kind):
    """A mapping that is made from nothing: read-only elements are not sent."""
    kind.call("create", "orders", **kind.own)
    mapping = {**dict(kind.call("get", "orders")), **kind.changed}
    kind.call("update", mapping)
    assert given(kind.call("get", "orders"), kind.own) == {**kind.own, **kind.changed}
    kind.call("update", mapping, user_metadata="by keyword")
    assert kind.call("get", "orders").user_metadata == "by keyword"


def test_what_is_fixed_at_creation_cannot_be_changed(kind):
    kind.call("create", "orders", **kind.own)
    read = kind.call("get", "orders")
    for name, value in kind.fixed.items():
        text = refused(400, lambda: kind.call("update", read, **{name: value}))
        element = "".join(word.capitalize() for word in name.split("_"))
        assert "SubCode=40000" in text and element in text and "cannot be changed after creation" in text
    assert given(kind.call("get", "orders"), kind.own) == kind.own


def test_a_property_that_the_client_cannot_set_survives_its_updates(client, bus):
    """It reads FilteringMessagesBeforePublishing, and does not write it when it creates a topic."""
    assert client.create_topic("prices", filtering_messages_before_publishing=True).filtering_messages_before_publishing is False
    entities.update_topic(bus.address("prices"), kept_properties={"FilteringMessagesBeforePublishing": True})
    client.update_topic(client.get_topic("prices"), user_metadata="x")
    topic = client.get_topic("prices")
    assert (topic.filtering_messages_before_publishing, topic.user_metadata) == (True, "x")


def test_what_is_not_given_has_the_defaults_of_the_service(client):
    client.create_queue("orders")
    queue = client.get_queue("orders")
    assert queue.default_message_time_to_live >= FOREVER and queue.auto_delete_on_idle >= FOREVER
    assert (queue.lock_duration, queue.max_delivery_count, queue.status) == (timedelta(minutes=1), 10, EntityStatus.ACTIVE)
    assert (queue.max_size_in_megabytes, queue.max_message_size_in_kilobytes) == (1024, 1024)
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (queue.enable_batched_operations, queue.requires_session, queue.enable_partitioning) == (True, False, False)
    assert (queue.forward_to, queue.user_metadata, queue.authorization_rules) == (None, None, None)
    client.create_topic("prices")
    topic = client.get_topic("prices")
    assert (topic.support_ordering, topic.filtering_messages_before_publishing, topic.size_in_bytes) == (True, False, 0)
    client.create_subscription("prices", "all")
    subscription = client.get_subscription("prices", "all")
    assert subscription.dead_lettering_on_filter_evaluation_exceptions is True
    assert subscription.default_message_time_to_live >= FOREVER


def test_durations_without_end_come_back_as_such(client, bus):
    """The client loses digits of the longest duration when it reads it, and sends back what it read."""
    client.create_queue("orders", auto_delete_on_idle=timedelta(minutes=5), default_message_time_to_live=AN_HOUR)
    for forever in (timedelta.max, "P10675199DT2H48M5.4775807S", "P10675199DT2H48M5.477539S"):
        longest = {"auto_delete_on_idle": forever, "default_message_time_to_live": forever}
        client.update_queue(client.get_queue("orders"), **longest)
        client.update_queue(client.get_queue("orders"))
        settings = entities.get_queue(bus.address("orders")).settings
        assert (settings.auto_delete_on_idle, settings.default_message_time_to_live) == (None, None)
        client.update_queue(client.get_queue("orders"), auto_delete_on_idle="PT5M", default_message_time_to_live="PT1H")
        assert entities.get_queue(bus.address("orders")).settings.default_message_time_to_live == AN_HOUR


def test_delete_and_create_again(kind):
    for _ in range(2):
        kind.call("create", "orders")
        assert "already exists" in refused(409, lambda: kind.call("create", "orders"), ResourceExistsError)
        kind.call("delete", "orders")
        for verb in ("get", "delete"):
            refused(404, lambda: kind.call(verb, "orders"), ResourceNotFoundError)
        refused(404, lambda: kind.runtime("orders"), ResourceNotFoundError)


# Lists

PATHS = ["a/b/c", "A-Z", "tilde~d", "dot.ted", "under_scored", "capitals/In/ANY.case", *(f"queue-{n:03}" for n in range(105))]


def test_queues_and_topics_are_listed_by_name_over_several_pages(client):
    for path in PATHS:
        client.create_queue(path)
        client.create_topic(f"t/{path}")
    in_order = sorted(PATHS, key=str.lower)
    assert [queue.name for queue in client.list_queues()] == in_order
    assert [queue.name for queue in client.list_queues_runtime_properties()] == in_order
    assert [topic.name for topic in client.list_topics()] == [f"t/{path}" for path in in_order]
    assert [topic.name for topic in client.list_topics_runtime_properties()] == [f"t/{path}" for path in in_order]
    assert [len(list(page)) for page in client.list_queues().by_page()] == [100, len(PATHS) - 100]
    pages = client.list_queues(start_index=2, max_page_size=50).by_page()
    assert [len(list(page)) for page in pages] == [50, 50, len(PATHS) - 102]
    for path in PATHS[:6]:
        assert client.get_queue(path).name == path
        client.delete_queue(path.upper())
    assert len(list(client.list_queues())) == len(PATHS) - 6


def test_subscriptions_and_rules_are_listed_by_name_over_several_pages(client):
    client.create_topic("a/topic")
    names = ["Capital", "dot.ted", "tilde~d", *(f"s-{n:03}" for n in range(100))]
    for name in names:
        client.create_subscription("a/topic", name)
    assert [one.name for one in client.list_subscriptions("a/topic")] == sorted(names, key=str.lower)
    listed = [one.name for one in client.list_subscriptions_runtime_properties("a/topic")]
    assert listed == sorted(names, key=str.lower)
    rules = ["100%", "%2F", "a b", "!first", "<&>", "Z", *(f"rule-{n:03}" for n in range(100))]
    for name in rules:
        client.create_rule("a/topic", "Capital", name, filter=SqlRuleFilter("price < 5"))
    listed = [rule.name for rule in client.list_rules("a/topic", "Capital")]
    assert listed[0] == "$Default" and sorted(listed[1:]) == sorted(rules)
    for name in ["$Default", *rules[:6]]:
        assert client.get_rule("a/topic", "Capital", name).name == name
        client.delete_rule("a/topic", "Capital", name)
    assert len(list(client.list_rules("a/topic", "Capital"))) == 100


def test_lists_without_entities_are_empty(client):
    client.create_topic("prices")
    client.create_subscription("prices", "all")
    client.delete_rule("prices", "all", "$Default")
    assert list(client.list_queues()) == list(client.list_rules("prices", "all")) == []
    client.delete_subscription("prices", "all")
    assert list(client.list_subscriptions("prices")) == []
    refused(404, lambda: list(client.list_subscriptions("none")), ResourceNotFoundError)
    refused(404, lambda: list(client.list_rules("prices", "none")), ResourceNotFoundError)


# Runtime properties


def counts_of(runtime: Any) -> tuple[int, ...]:
    return (
        runtime.active_message_count, runtime.dead_letter_message_count, runtime.scheduled_message_count,
        runtime.transfer_message_count, runtime.transfer_dead_letter_message_count, runtime.total_message_count,
    )  # fmt: skip


def test_the_runtime_properties_of_a_queue_are_true(client, bus):
    before = datetime.now(UTC)
    client.create_queue("orders")
    orders, fresh = bus.address("orders"), client.get_queue_runtime_properties("orders")
    assert (fresh.accessed_at_utc.year, fresh.size_in_bytes, counts_of(fresh)) == (1, 0, (0, 0, 0, 0, 0, 0))
    assert (
        before - A_SECOND < fresh.created_at_utc <= fresh.updated_at_utc < min(datetime.now(UTC), fresh.created_at_utc + A_SECOND)
    )
    later = datetime.now(UTC) + AN_HOUR
    service_bus.send(orders, [Message(b"x" * 1000)] * 5 + [Message(b"later", scheduled_enqueue_at=later)])
    locked = service_bus.receive(orders, 4)
    service_bus.dead_letter(orders, [locked[0].lock_token])
    service_bus.defer(orders, [locked[1].lock_token])
    service_bus.complete(orders, [locked[2].lock_token])
    used = client.get_queue_runtime_properties("orders")
    assert counts_of(used) == (3, 1, 1, 0, 0, 5), "locked and deferred messages are active ones"
    assert used.size_in_bytes > 4000
    assert before - A_SECOND < used.accessed_at_utc <= datetime.now(UTC)
    client.update_queue(client.get_queue("orders"), max_delivery_count=3)
    changed = client.get_queue_runtime_properties("orders")
    assert changed.updated_at_utc > changed.created_at_utc == fresh.created_at_utc
    [listed] = client.list_queues_runtime_properties()
    assert (listed.name, counts_of(listed)) == ("orders", counts_of(changed))


def test_the_runtime_properties_of_a_topic_and_its_subscriptions_are_true(client, bus):
    client.create_topic("prices")
    for name in ("all", "none", "cheap"):
        client.create_subscription("prices", name)
    client.delete_rule("prices", "none", "$Default")
    topic, later = bus.address("prices"), datetime.now(UTC) + AN_HOUR
    service_bus.send(topic, [Message(b"x" * 1000)] * 2 + [Message(b"later", scheduled_enqueue_at=later)])
    (locked,) = service_bus.receive(topic.subscription("all"), 1)
    service_bus.dead_letter(topic.subscription("all"), locked.lock_token)
    prices = client.get_topic_runtime_properties("prices")
    assert (prices.subscription_count, prices.scheduled_message_count) == (3, 1)
    assert prices.size_in_bytes > 4000 and prices.accessed_at_utc.year > 1
    [listed] = client.list_topics_runtime_properties()
    assert (listed.name, listed.subscription_count, listed.size_in_bytes) == ("prices", 3, prices.size_in_bytes)
    everything, nothing = (client.get_subscription_runtime_properties("prices", name) for name in ("all", "none"))
    assert (everything.active_message_count, everything.dead_letter_message_count, everything.total_message_count) == (1, 1, 2)
    assert everything.accessed_at_utc.year > 1 and nothing.total_message_count == 0
    client.delete_subscription("prices", "none")
    assert client.get_topic_runtime_properties("prices").subscription_count == 2
    assert client.get_topic("prices").size_in_bytes == prices.size_in_bytes


# Rules

TYPED: dict[str, Any] = {
    "text": "h\u00e9 <&> ", "int": 5, "negative": -2_147_483_648, "long": 2**40, "double": 0.1, "huge": 1.5e300,
    "boolean": True, "no": False, "instant": datetime(2026, 11, 30, 6, 7, 8, tzinfo=UTC),
    "duration": timedelta(days=1, hours=2, minutes=3, seconds=4),
}  # fmt: skip
PARAMETERS = {f"@{name}": value for name, value in TYPED.items()}
CORRELATION = {
    "correlation_id": "c", "message_id": "m", "to": "t", "reply_to": "r", "label": "l <&>", "session_id": "s",
    "reply_to_session_id": "rs", "content_type": "text/plain",
}  # fmt: skip


@pytest.fixture
def subscribed(client):
    """The topic prices with the subscription all; its rule is deleted."""
    client.create_topic("prices")
    client.create_subscription("prices", "all")
    client.delete_rule("prices", "all", "$Default")
    return client


def types_of(values: Any) -> dict[str, tuple[type, Any]]:
    return {name: (type(value), value) for name, value in values.items()}


def test_filters_and_actions_come_back_with_typed_parameters(subscribed):
    action = SqlRuleAction("SET price = @int; REMOVE old", parameters=PARAMETERS)
    created = subscribed.create_rule("prices", "all", "sql", filter=SqlRuleFilter("price < @int", PARAMETERS), action=action)
    [listed] = subscribed.list_rules("prices", "all")
    for rule in (created, subscribed.get_rule("prices", "all", "sql"), listed):
        assert type(rule.filter) is SqlRuleFilter and rule.filter.sql_expression == "price < @int"
        assert rule.action.sql_expression == "SET price = @int; REMOVE old"
        assert types_of(rule.filter.parameters) == types_of(rule.action.parameters) == types_of(PARAMETERS)
        assert datetime.now(UTC) - rule.created_at_utc < timedelta(minutes=1)


def test_a_correlation_filter_comes_back_with_typed_properties(subscribed):
    subscribed.create_rule("prices", "all", "whole", filter=CorrelationRuleFilter(**CORRELATION, properties=TYPED))
    subscribed.create_rule("prices", "all", "small", filter=CorrelationRuleFilter(label="fruit"))
    rule = subscribed.get_rule("prices", "all", "whole")
    assert {name: getattr(rule.filter, name) for name in CORRELATION} == CORRELATION and rule.action is None
    assert types_of(rule.filter.properties) == types_of(TYPED)
    small = subscribed.get_rule("prices", "all", "small").filter
    assert (small.label, small.to, dict(small.properties)) == ("fruit", None, {})


def test_true_and_false_filters(subscribed):
    for name, rule_filter in (("true", TrueRuleFilter()), ("false", FalseRuleFilter())):
        subscribed.create_rule("prices", "all", name, filter=rule_filter)
        assert type(subscribed.get_rule("prices", "all", name).filter) is type(rule_filter)
    subscribed.create_rule("prices", "all", "default")
    assert type(subscribed.get_rule("prices", "all", "default").filter) is TrueRuleFilter
    subscribed.create_subscription("prices", "new")
    [default] = subscribed.list_rules("prices", "new")
    assert (default.name, type(default.filter), default.action) == ("$Default", TrueRuleFilter, None)


def test_rules_apply_to_messages_at_once(subscribed, bus):
    """Also as a rule was changed, by an object, by keyword, and by a mapping."""
    topic = bus.address("prices")
    subscribed.create_rule("prices", "all", "cheap", filter=SqlRuleFilter("price < @most", {"@most": 5}))
    received: list[dict[str, Any]] = []

    def send(price: int) -> None:
        service_bus.send(topic, [Message(b"x", properties={"price": price})])
        taken = service_bus.receive_and_delete(topic.subscription("all"), 10)
        received[:] = [{name: value for name, value in each.properties.items() if name != "RuleName"} for each in taken]

    send(7)
    assert received == []
    rule = subscribed.get_rule("prices", "all", "cheap")
    rule.filter, rule.action = SqlRuleFilter("price < @most", {"@most": 9}), SqlRuleAction("SET seen = @n", {"@n": 2**40})
    subscribed.update_rule("prices", "all", rule)
    send(7)
    assert received == [{"price": 7, "seen": 2**40}]
    subscribed.update_rule("prices", "all", subscribed.get_rule("prices", "all", "cheap"), filter=FalseRuleFilter())
    send(7)
    assert received == []
    by_mapping = {**dict(subscribed.get_rule("prices", "all", "cheap")), "filter": TrueRuleFilter(), "action": None}
    subscribed.update_rule("prices", "all", by_mapping)
    send(7)
    assert received == [{"price": 7}]


def test_rules_that_are_refused(subscribed):
    cheap = SqlRuleFilter("price < 5")
    subscribed.create_rule("prices", "all", "cheap", filter=cheap)
    refused(409, lambda: subscribed.create_rule("prices", "all", "CHEAP"), ResourceExistsError)
    text = refused(400, lambda: subscribed.create_rule("prices", "all", "bad", filter=SqlRuleFilter("price < AND")))
    assert "SubCode=40000" in text and "column" in text
    text = refused(400, lambda: subscribed.create_rule("prices", "all", "bad", action=SqlRuleAction("JUMP price")))
    assert "SubCode=40000" in text
    refused(400, lambda: subscribed.create_rule("prices", "all", "x" * 51))
    refused(404, lambda: subscribed.create_rule("prices", "none", "cheap"), ResourceNotFoundError)
    refused(404, lambda: subscribed.get_rule("prices", "all", "none"), ResourceNotFoundError)
    refused(404, lambda: subscribed.delete_rule("prices", "all", "none"), ResourceNotFoundError)
    rule = subscribed.get_rule("prices", "all", "cheap")
    subscribed.delete_rule("prices", "all", "cheap")
    refused(404, lambda: subscribed.update_rule("prices", "all", rule), ResourceNotFoundError)


# Authorization rules


def authorization(name: str, *rights: Any, key: str = "") -> AuthorizationRule:
    """key: from which its two keys are made; empty: the broker makes them."""
    primary, secondary = (f"{key}-primary", f"{key}-secondary") if key else (None, None)
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None", key_name=name,
        rights=list(rights), primary_key=primary, secondary_key=secondary,
    )  # fmt: skip


def send_with(bus: Bus, path: str, policy: str, key: str) -> int:
    """The status of a send by the REST API with a key of a policy."""
    url, expires = f"http://{bus.host}/{path}", int((datetime.now(UTC) + AN_HOUR).timestamp())
    headers = {"authorization": sas.sign(url, policy, key, expires)}
    return httpx.post(f"{url}/messages", content=b"x", headers=headers, timeout=30).status_code


@pytest.mark.parametrize("kind", ["queue", "topic"], indirect=True)
def test_authorization_rules_are_policies_with_the_keys_that_are_given(kind, bus):
    secret = uuid.uuid4().hex
    rules = [
        authorization("sender", AccessRights.SEND, key=secret),
        authorization("owner", AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN),
    ]
    kind.call("create", "orders", authorization_rules=rules)
    owner, sender = sorted(kind.call("get", "orders").authorization_rules, key=lambda rule: rule.key_name)
    assert (sender.key_name, sender.rights) == ("sender", [AccessRights.SEND])
    assert (sender.type, sender.claim_type, sender.claim_value) == ("SharedAccessAuthorizationRule", "SharedAccessKey", "None")
    assert (sender.primary_key, sender.secondary_key) == (f"{secret}-primary", f"{secret}-secondary")
    assert set(owner.rights) == {AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN}
    assert len(owner.primary_key) == len(owner.secondary_key) == 44 and owner.created_at_utc <= owner.modified_at_utc
    for key in (f"{secret}-primary", f"{secret}-secondary"):
        assert send_with(bus, "orders", "sender", key) == 201
    kind.call("update", kind.call("get", "orders"), max_size_in_megabytes=2048)
    same = {rule.key_name: rule.primary_key for rule in kind.call("get", "orders").authorization_rules}
    assert same == {"owner": owner.primary_key, "sender": f"{secret}-primary"}, "an update that repeats them"
    kind.call("update", kind.call("get", "orders"), authorization_rules=[owner])
    assert [rule.key_name for rule in kind.call("get", "orders").authorization_rules] == ["owner"]
    assert send_with(bus, "orders", "owner", owner.primary_key) == 201


@pytest.mark.parametrize("kind", ["queue"], indirect=True)
def test_a_rule_that_is_removed_or_has_another_key_opens_nothing(kind, bus):
    first, second = uuid.uuid4().hex, uuid.uuid4().hex
    kind.call("create", "orders", authorization_rules=[authorization("sender", AccessRights.SEND, key=first)])
    assert send_with(bus, "orders", "sender", f"{second}-primary") == 401
    new = [authorization("sender", AccessRights.SEND, key=second)]
    kind.call("update", kind.call("get", "orders"), authorization_rules=new)
    assert send_with(bus, "orders", "sender", f"{second}-primary") == 201
    eventually(lambda: send_with(bus, "orders", "sender", f"{first}-primary") == 401, 10)
    kind.call("update", kind.call("get", "orders"), authorization_rules=[])
    assert kind.call("get", "orders").authorization_rules is None
    eventually(lambda: send_with(bus, "orders", "sender", f"{second}-primary") == 401, 10)


# Forwarding


def test_a_destination_is_a_path_or_a_uri(client, bus):
    """The client makes a URI of a path, and sends a token for the destination."""
    client.create_queue("tar/get")
    by_path, by_uri = "tar/get", f"sb://{bus.host}/tar/get"
    for number, target in enumerate((by_path, by_uri, f"https://{bus.host}/tar/get")):
        created = client.create_queue(f"from-{number}", forward_to=target, forward_dead_lettered_messages_to=target)
        assert (created.forward_to, created.forward_dead_lettered_messages_to) == (by_uri, by_uri)
        settings = entities.get_queue(bus.address(f"from-{number}")).settings
        assert (settings.forward_to, settings.forward_dead_lettered_messages_to) == ("tar/get", "tar/get")
    service_bus.send(bus.address("from-0"), [Message(b"x")])
    eventually(lambda: client.get_queue_runtime_properties("tar/get").active_message_count == 1, 10)
    client.update_queue(client.get_queue("from-0"), forward_to=None, forward_dead_lettered_messages_to=None)
    assert client.get_queue("from-0").forward_to is None
    assert entities.get_queue(bus.address("from-0")).settings.forward_to is None


def test_a_destination_must_exist(client):
    client.create_queue("orders")
    for call in (
        lambda: client.create_queue("other", forward_to="none"),
        lambda: client.update_queue(client.get_queue("orders"), forward_dead_lettered_messages_to="none"),
    ):
        assert "none" in refused(400, call)
    refused(404, lambda: client.get_queue("other"), ResourceNotFoundError)


def test_an_entity_may_forward_to_itself_and_a_subscription_to_its_topic(client):
    """SB-173, SB-175, SB-176: the number of hops ends it."""
    client.create_queue("loop", requires_session=True)
    client.update_queue(client.get_queue("loop"), forward_to="loop")
    client.create_topic("prices")
    client.create_subscription("prices", "back", forward_to="prices", auto_delete_on_idle=timedelta(minutes=6))
    assert client.get_queue("loop").forward_to.endswith("/loop")
    subscription = client.get_subscription("prices", "back")
    assert subscription.forward_to.endswith("/prices") and subscription.auto_delete_on_idle == timedelta(minutes=6)


# Refusals


def test_kinds_share_one_name_space(client):
    client.create_queue("orders")
    client.create_topic("prices")
    refused(409, lambda: client.create_topic("ORDERS"), ResourceExistsError)
    refused(409, lambda: client.create_queue("prices"), ResourceExistsError)
    with pytest.raises(AttributeError):  # the request is the same as for a queue, and the client expects a topic in the answer
        client.get_topic("orders")
    queue = client.get_queue("orders")
    queue.name = "prices"
    refused(400, lambda: client.update_queue(queue))
    refused(404, lambda: client.create_subscription("none", "all"), ResourceNotFoundError)
    assert "a topic is required" in refused(400, lambda: client.create_subscription("orders", "all"))


@pytest.mark.parametrize(
    ("name", "given_as", "says"),
    [
        ("lock_duration", "PT4S", "LockDuration"),
        ("max_delivery_count", 0, "MaxDeliveryCount"),
        ("max_delivery_count", 2**31, "MaxDeliveryCount"),
        ("max_size_in_megabytes", 1025, "MaxSizeInMegabytes"),
        ("auto_delete_on_idle", timedelta(minutes=4), "AutoDeleteOnIdle"),
        ("duplicate_detection_history_time_window", timedelta(days=8), "DuplicateDetectionHistoryTimeWindow"),
        ("default_message_time_to_live", timedelta(0), "DefaultMessageTimeToLive"),
        ("user_metadata", "x" * 1025, "UserMetadata"),
        ("status", "Asleep", "Status"),
        ("authorization_rules", [authorization("x")], "Rights: "),
    ],
)
def test_values_out_of_range_are_refused_by_name(client, name, given_as, says):
    text = refused(400, lambda: client.create_queue("orders", **{name: given_as}))
    assert "SubCode=40000" in text and says in text
    client.create_queue("orders")
    assert says in refused(400, lambda: client.update_queue(client.get_queue("orders"), **{name: given_as}))
    refused(404, lambda: client.create_subscription("none", "all"), ResourceNotFoundError)  # the connection is usable


@pytest.mark.parametrize("name", ["", "a//b", "/a", "a/", "a b", "h\u00e9", "a?b", "a#b", "a\\b", "x" * 261, "..", "a/../b"])
def test_names_that_no_queue_can_have(client, name):
    with pytest.raises((HttpResponseError, ValueError)) as refusal:
        client.create_queue(name)
    assert getattr(refusal.value, "status_code", 400) in (400, 404), refusal.value
    assert list(client.list_queues()) == []


def test_a_namespace_has_so_many_policies_and_no_more(client):
    twelve = [authorization(f"p{number}", AccessRights.LISTEN) for number in range(12)]
    client.create_queue("orders", authorization_rules=twelve)
    assert len(client.get_queue("orders").authorization_rules) == 12
    text = refused(403, lambda: client.create_queue("more", authorization_rules=[*twelve, authorization("p12", "Listen")]))
    assert "SubCode=403" in text
    refused(404, lambda: client.get_queue("more"), ResourceNotFoundError)


# Who may


def test_a_wrong_key_or_name_of_a_policy(connect, bus):
    for other in (Bus(bus.name, "A" * 43 + "=", bus.port), Bus(bus.name, bus.key, bus.port, "Nobody")):
        text = refused(401, lambda: connect(other.connection_string).get_queue("orders"), ClientAuthenticationError)
        assert "SubCode=40103" in text


def test_a_policy_without_manage_is_refused(connect, bus):
    key = shared_access.create_policy(bus.name, "worker", send=True, listen=True).primary_key
    entities.create_queue(bus.address("orders"))
    worker = connect(Bus(bus.name, key, bus.port, "worker").connection_string)
    for call in (
        lambda: worker.get_queue("orders"),
        lambda: worker.create_queue("more"),
        lambda: worker.delete_queue("orders"),
        lambda: list(worker.list_queues()),
        worker.get_namespace_properties,
    ):
        assert "MANAGE" in refused(401, call, ClientAuthenticationError).upper()
    assert [entity.address.path for entity in entities.list_entities(bus.name)] == ["orders"]


def test_a_policy_of_an_entity_manages_that_entity_only(connect, client, bus):
    key = uuid.uuid4().hex
    owner = authorization("owner", AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN, key=key)
    client.create_topic("prices", authorization_rules=[owner])
    client.create_queue("other")
    own = connect(Bus(bus.name, f"{key}-primary", bus.port, "owner").connection_string)
    own.update_topic(own.get_topic("prices"), user_metadata="mine")
    own.create_subscription("prices", "all")
    assert [rule.name for rule in own.list_rules("prices", "all")] == ["$Default"]
    for call in (lambda: own.get_queue("other"), lambda: own.create_queue("new"), lambda: list(own.list_queues())):
        refused(401, call, ClientAuthenticationError)
    own.delete_topic("prices")

    def status() -> int:
        with pytest.raises(HttpResponseError) as refusal:
            own.get_topic("prices")
        return refusal.value.status_code

    eventually(lambda: status() == 401, 10)  # its policy is gone with it


def test_a_shared_access_signature_in_the_connection_string(connect, bus):
    expires = int((datetime.now(UTC) + AN_HOUR).timestamp())
    token = sas.sign(f"https://{bus.host}", bus.policy, bus.key, expires)
    signed = connect(f"Endpoint=sb://{bus.host};SharedAccessSignature={token}")
    assert signed.create_queue("orders").name == "orders"
    assert [queue.name for queue in signed.list_queues()] == ["orders"]
    late = sas.sign(f"https://{bus.host}", bus.policy, bus.key, 1_000_000_000)
    expired = connect(f"Endpoint=sb://{bus.host};SharedAccessSignature={late}")
    assert "SubCode=40106" in refused(401, lambda: expired.get_queue("orders"), ClientAuthenticationError)


# The namespace, TLS


def test_the_properties_of_the_namespace(client, bus):
    found = client.get_namespace_properties()
    assert (found.name, found.messaging_sku, found.messaging_units) == (bus.name, MessagingSku.PREMIUM, 1)
    assert found.created_at_utc <= found.modified_at_utc <= datetime.now(UTC) and found.namespace_type == "Messaging"


def test_a_port_with_tls(connect, bus, with_tls):
    with listening(["SERVICE_BUS_TLS_PORT"]) as served:
        secure = Bus(bus.name, bus.key, served.port("SERVICE_BUS_TLS_PORT"))
        client = connect(secure.connection_string, connection_verify=with_tls.authority)
        client.create_queue("target")
        client.create_topic("a/topic", **TOPIC)
        client.create_subscription("a/topic", "all", forward_to="target")
        client.create_rule("a/topic", "all", "cheap", filter=SqlRuleFilter("price < @most", {"@most": 5}))
        assert [rule.name for rule in client.list_rules("a/topic", "all")] == ["$Default", "cheap"]
        assert given(client.get_topic("a/topic"), TOPIC) == TOPIC
        assert client.get_subscription("a/topic", "all").forward_to == f"sb://{secure.host}/target"
        for number in range(101):
            client.create_queue(f"queue-{number}")
        assert len(list(client.list_queues())) == 102
        client.delete_topic("a/topic")
        refused(404, lambda: client.get_topic("a/topic"), ResourceNotFoundError)
