"""The official SDK for Python, unmodified, synchronous and asyncio: a story of each kind of client."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import (
    AccessPolicy,
    AccountSasPermissions,
    CorsRule,
    QueueClient,
    QueueSasPermissions,
    QueueServiceClient,
    ResourceTypes,
    TextBase64DecodePolicy,
    TextBase64EncodePolicy,
    generate_account_sas,
    generate_queue_sas,
)
from azure.storage.queue.aio import QueueServiceClient as AioQueueServiceClient

from broker_core.queue_storage.rules import sas

QUICKLY: dict[str, Any] = {"retry_total": 0}  # a refusal is not tried again


@pytest.fixture
def service(connection_string):
    with QueueServiceClient.from_connection_string(connection_string, **QUICKLY) as client:
        yield client


@pytest.fixture
def orders(service):
    return service.create_queue("orders", metadata={"team": "a", "b_c": "d"})


def code_of(call):
    with pytest.raises(HttpResponseError) as refused:
        call()
    return refused.value.error_code


def in_an_hour():
    return datetime.now(UTC) + timedelta(hours=1)


def test_a_message_from_send_to_delete(orders):
    sent = orders.send_message("h\u00e9 <&> \n x", time_to_live=-1)
    assert sent.expires_on.year == 9999
    assert [message.content for message in orders.peek_messages(5)] == ["h\u00e9 <&> \n x"]
    got = orders.receive_message(visibility_timeout=5)
    assert (got.id, got.dequeue_count, got.content) == (sent.id, 1, "h\u00e9 <&> \n x")
    assert code_of(lambda: orders.update_message(sent, visibility_timeout=0)) == "PopReceiptMismatch"
    updated = orders.update_message(got, visibility_timeout=0, content="new")
    assert orders.peek_messages()[0].content == "new"
    orders.delete_message(updated)
    with pytest.raises(ResourceNotFoundError):
        orders.delete_message(updated)


def test_many_messages_by_page_and_clear(orders):
    for number in range(40):
        orders.send_message(str(number))
    assert orders.get_queue_properties().approximate_message_count == 40
    pages = [[message.content for message in page] for page in orders.receive_messages(messages_per_page=32).by_page()]
    assert [len(page) for page in pages if page] == [32, 8]
    assert sorted(map(int, sum(pages, []))) == list(range(40))
    orders.clear_messages()
    assert orders.get_queue_properties().approximate_message_count == 0


def test_base64_is_the_clients_own(service, orders):
    encoding = {"message_encode_policy": TextBase64EncodePolicy(), "message_decode_policy": TextBase64DecodePolicy()}
    encoded = service.get_queue_client("orders", **encoding)
    encoded.send_message("\x00 h\u00e9")
    assert orders.peek_messages()[0].content == "ACBow6k="
    assert encoded.receive_message().content == "\x00 h\u00e9"


def test_queues_and_their_metadata(service, orders):
    assert orders.get_queue_properties().metadata == {"team": "a", "b_c": "d"}
    with pytest.raises(ResourceExistsError):
        service.create_queue("orders", metadata={"team": "b"})
    orders.set_queue_metadata({"x": "y"})
    for number in range(5):
        service.create_queue(f"list-{number}")
    listed = list(service.list_queues(name_starts_with="list", results_per_page=2, include_metadata=True))
    assert [queue.name for queue in listed] == [f"list-{number}" for number in range(5)]
    assert next(iter(service.list_queues("orders", include_metadata=True))).metadata == {"x": "y"}
    service.delete_queue("orders")
    with pytest.raises(ResourceNotFoundError):
        orders.send_message("x")
    service.create_queue("orders")


def test_service_properties_and_stats(service):
    rule = CorsRule(["http://a.example"], ["GET"], max_age_in_seconds=5)
    service.set_service_properties(cors=[rule])
    properties = service.get_service_properties()
    assert properties["cors"][0].allowed_origins == "http://a.example"
    assert not properties["hour_metrics"].enabled


def test_stored_access_policies(service, orders):
    policy = AccessPolicy(QueueSasPermissions(read=True, add=True), expiry=in_an_hour())
    orders.set_queue_access_policy({"p": policy})
    assert orders.get_queue_access_policy()["p"].permission == "ra"
    token = generate_queue_sas(service.account_name, "orders", service.credential.account_key, policy_id="p")
    by_policy = QueueClient(service.primary_endpoint, "orders", credential=token, **QUICKLY)
    by_policy.send_message("x")
    assert code_of(by_policy.receive_message) == "AuthorizationPermissionMismatch"
    with pytest.raises(HttpResponseError, match="this needs an account key, or an account SAS with d"):
        by_policy.clear_messages()
    for change in (by_policy.get_queue_access_policy, lambda: by_policy.set_queue_access_policy({})):
        assert code_of(change) == "AuthorizationPermissionMismatch", "only an account key may (QS-098)"
    orders.set_queue_access_policy({})
    assert code_of(lambda: by_policy.send_message("x")) == "AuthenticationFailed"


def test_signatures_made_here_are_accepted(service, orders):
    key, expiry = service.credential.account_key, f"{in_an_hour():%Y-%m-%dT%H:%M:%SZ}"
    made = sas.signed(sas.Sas(permission="ap", expiry=expiry), key, account=service.account_name, queue="orders")
    of_queue = QueueClient(service.primary_endpoint, "orders", credential=sas.as_query(made), **QUICKLY)
    of_queue.send_message("x")
    assert of_queue.receive_message().content == "x" and code_of(of_queue.peek_messages) == "AuthorizationPermissionMismatch"
    made = sas.signed(sas.Sas(permission="l", expiry=expiry, services="q", types="s"), key, account=service.account_name)
    lister = QueueServiceClient(service.primary_endpoint, credential=sas.as_query(made), **QUICKLY)
    assert [queue.name for queue in lister.list_queues()] == ["orders"]


def test_an_account_sas(service):
    permission, types = AccountSasPermissions(list=True), ResourceTypes(service=True)
    key = service.credential.account_key
    token = generate_account_sas(service.account_name, key, types, permission, in_an_hour())
    lister = QueueServiceClient(service.primary_endpoint, credential=token, **QUICKLY)
    assert list(lister.list_queues()) == []
    assert code_of(lambda: lister.create_queue("nope")) == "AuthorizationResourceTypeMismatch"
    assert code_of(lister.get_service_properties) == "AuthorizationPermissionMismatch"


def test_a_wrong_key(service):
    credential = {"account_name": service.account_name, "account_key": "A" * 86 + "=="}
    client = QueueServiceClient(service.primary_endpoint, credential=credential, **QUICKLY)
    with pytest.raises(ClientAuthenticationError, match="not that of any key"):
        list(client.list_queues())


@pytest.fixture(params=["key", "sas"])
def signed_string(request, service, connection_string):
    """A connection string with the account's key, or with a shared access signature for everything."""
    if request.param == "key":
        return connection_string
    letters = AccountSasPermissions(read=True, write=True, list=True, add=True, update=True, process=True)
    types, key = ResourceTypes(service=True, container=True, object=True), service.credential.account_key
    token = generate_account_sas(service.account_name, key, types, letters, in_an_hour())
    return f"QueueEndpoint={service.primary_endpoint};SharedAccessSignature={token}"


def test_the_synchronous_client_by_key_and_by_signature(signed_string):
    with QueueServiceClient.from_connection_string(signed_string, **QUICKLY) as service:
        queue = service.create_queue("orders")
        queue.send_message("x")
        queue.update_message(queue.receive_message(), visibility_timeout=0, content="y")
        queue.delete_message(queue.receive_message())
        assert [queue.name for queue in service.list_queues()] == ["orders"]
        assert queue.get_queue_properties().approximate_message_count == 0


async def test_the_asyncio_client_by_key_and_by_signature(signed_string):
    async with AioQueueServiceClient.from_connection_string(signed_string, **QUICKLY) as service:
        queue = await service.create_queue("orders")
        await queue.send_message("x")
        [got] = [message async for message in queue.receive_messages()]
        await queue.update_message(got, visibility_timeout=0, content="y")
        assert [message.content for message in await queue.peek_messages()] == ["y"]
        [again] = [message async for message in queue.receive_messages()]
        await queue.delete_message(again)
        assert [queue.name async for queue in service.list_queues()] == ["orders"]
