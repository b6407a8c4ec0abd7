"""The official SDK for Python, unmodified."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import *


@pytest.fixture
def service(connection_string):
    with QueueServiceClient.from_connection_string(connection_string, retry_total=0) as client:
        yield client


def test_a_story(service):
    queue = service.create_queue("orders", metadata={"team": "a", "b_c": "d"})
    with pytest.raises(ResourceExistsError):
        service.create_queue("orders", metadata={"team": "b"})
    sent = queue.send_message("hé <&>\n x", visibility_timeout=0, time_to_live=-1)
    assert sent.expires_on.year == 9999
    assert [m.content for m in queue.peek_messages(5)] == ["hé <&>\n x"]
    got = next(iter(queue.receive_messages(visibility_timeout=5)))
    assert (got.id, got.dequeue_count, got.content) == (sent.id, 1, "hé <&>\n x")
    with pytest.raises(HttpResponseError) as refused:
        queue.update_message(sent, visibility_timeout=0)
    assert refused.value.error_code == "PopReceiptMismatch"
    updated = queue.update_message(got, visibility_timeout=0, content="new")
    queue.delete_message(updated)
    with pytest.raises(ResourceNotFoundError) as refused:
        queue.delete_message(updated)
    assert refused.value.error_code == "MessageNotFound"
    for i in range(40):
        queue.send_message(f"m{i}")
    assert queue.get_queue_properties().approximate_message_count == 40
    assert queue.get_queue_properties().metadata == {"team": "a", "b_c": "d"}
    assert sum(1 for page in queue.receive_messages(messages_per_page=32).by_page() for _ in page) == 40
    queue.clear_messages()
    assert queue.get_queue_properties().approximate_message_count == 0
    for i in range(7):
        service.create_queue(f"list-{i}")
    names = [q.name for q in service.list_queues(name_starts_with="list", results_per_page=2, include_metadata=True)]
    assert names == [f"list-{i}" for i in range(7)]
    p = service.get_service_properties()
    service.set_service_properties(cors=[CorsRule(["http://a"], ["GET"], max_age_in_seconds=5)])
    assert service.get_service_properties()["cors"][0].allowed_origins == "http://a"
    queue.set_queue_access_policy(
        {"p": AccessPolicy(QueueSasPermissions(read=True, add=True), datetime.now(UTC) + timedelta(hours=1)), "e": None}
    )
    print(queue.get_queue_access_policy())
    key = service.credential.account_key
    token = generate_queue_sas("shop", "orders", key, policy_id="p")
    by_policy = QueueClient(service.primary_endpoint, "orders", credential=token, retry_total=0)
    by_policy.send_message("x")
    with pytest.raises(HttpResponseError) as refused:
        list(by_policy.receive_messages())
    assert refused.value.error_code == "AuthorizationPermissionMismatch"
    token = generate_account_sas(
        "shop", key, ResourceTypes(service=True), AccountSasPermissions(list=True), datetime.now(UTC) + timedelta(hours=1)
    )
    lister = QueueServiceClient(service.primary_endpoint, credential=token, retry_total=0)
    assert len(list(lister.list_queues())) == 8
    with pytest.raises(HttpResponseError) as refused:
        lister.create_queue("nope")
    assert refused.value.error_code == "AuthorizationResourceTypeMismatch"
    bad = QueueServiceClient(
        service.primary_endpoint, credential={"account_name": "shop", "account_key": "A" * 87 + "="}, retry_total=0
    )
    with pytest.raises(ClientAuthenticationError) as refused:
        list(bad.list_queues())
    print(refused.value)
    service.delete_queue("orders")
    with pytest.raises(ResourceNotFoundError):
        queue.send_message("x")
