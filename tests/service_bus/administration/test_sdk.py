"""The official administration client for Python, unmodified, synchronous and asyncio, at a port with TLS."""

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter

from broker_core.service_bus.entities import shared_access
from tests.wire.listening import listening


@pytest.fixture
def options(namespace, with_tls):
    """The arguments with which clients are made."""
    key = shared_access.get_policy(namespace, shared_access.ROOT_POLICY).primary_key
    with listening(["SERVICE_BUS_TLS_PORT"]) as served:
        endpoint = f"sb://127.0.0.1:{served.port('SERVICE_BUS_TLS_PORT')}"
        text = f"Endpoint={endpoint};SharedAccessKeyName={shared_access.ROOT_POLICY};SharedAccessKey={key}"
        yield {"conn_str": text, "connection_verify": with_tls.authority, "retry_total": 0}


def test_a_queue_and_a_rule(options):
    with ServiceBusAdministrationClient.from_connection_string(**options) as client:
        created = client.create_queue("a/orders", max_delivery_count=3, user_metadata="h\u00e9 <&>")
        assert (created.max_delivery_count, created.user_metadata) == (3, "h\u00e9 <&>")
        with pytest.raises(ResourceExistsError):
            client.create_queue("A/Orders")
        client.update_queue(created, max_delivery_count=5)
        read = client.get_queue("a/orders")
        assert (read.max_delivery_count, read.user_metadata) == (5, "h\u00e9 <&>")
        assert [queue.name for queue in client.list_queues()] == ["a/orders"]
        client.delete_queue("a/orders")
        with pytest.raises(ResourceNotFoundError):
            client.get_queue("a/orders")
        client.create_topic("prices")
        client.create_subscription("prices", "all")
        client.create_rule("prices", "all", "100%", filter=SqlRuleFilter("price < @most", {"@most": 5}))
        rule = client.get_rule("prices", "all", "100%")
        assert (rule.filter.sql_expression, dict(rule.filter.parameters), rule.action) == ("price < @most", {"@most": 5}, None)
        client.update_rule("prices", "all", rule, action=SqlRuleAction("SET cheap = true"))
        assert client.get_rule("prices", "all", "100%").action.sql_expression == "SET cheap = true"
        assert [one.name for one in client.list_rules("prices", "all")] == ["$Default", "100%"]
        client.delete_rule("prices", "all", "100%")
        with pytest.raises(ResourceNotFoundError):
            client.get_rule("prices", "all", "100%")


async def test_a_queue_and_a_rule_with_asyncio(options):
    async with AioServiceBusAdministrationClient.from_connection_string(**options) as client:
        created = await client.create_queue("a/orders", max_delivery_count=3)
        await client.update_queue(created, max_delivery_count=5)
        assert (await client.get_queue("a/orders")).max_delivery_count == 5
        assert [queue.name async for queue in client.list_queues()] == ["a/orders"]
        await client.delete_queue("a/orders")
        with pytest.raises(ResourceNotFoundError):
            await client.delete_queue("a/orders")
        await client.create_topic("prices")
        await client.create_subscription("prices", "all")
        await client.create_rule("prices", "all", "cheap", filter=SqlRuleFilter("price < 5"))
        rule = await client.get_rule("prices", "all", "cheap")
        await client.update_rule("prices", "all", rule, filter=SqlRuleFilter("price < 9"))
        assert (await client.get_rule("prices", "all", "cheap")).filter.sql_expression == "price < 9"
        await client.delete_rule("prices", "all", "cheap")
        assert [one.name async for one in client.list_rules("prices", "all")] == ["$Default"]
