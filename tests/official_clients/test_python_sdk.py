"""azure-storage-queue, synchronous and asyncio: each operation, and each way to sign a request."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.storage.queue import (
    AccessPolicy,
    AccountSasPermissions,
    BinaryBase64DecodePolicy,
    BinaryBase64EncodePolicy,
    CorsRule,
    Metrics,
    QueueAnalyticsLogging,
    QueueClient,
    QueueSasPermissions,
    QueueServiceClient,
    ResourceTypes,
    RetentionPolicy,
    TextBase64DecodePolicy,
    TextBase64EncodePolicy,
    aio,
    generate_account_sas,
    generate_queue_sas,
)

from broker_core import queue_storage
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import accounts
from tests.wire.listening import ListenerThread, listening

from .blocking import loop_in_a_thread, made

QUICKLY = {"retry_total": 0}  # a refusal is not tried again
WEEK = 604_800


class ToPort(RequestsTransport):
    """Sends each request to a port of this machine, whatever host its URL has."""

    def __init__(self, port: int):
        super().__init__()
        self._port = port

    def send(self, request: Any, **options: Any) -> Any:
        return super().send(_redirected(request, self._port), **options)


class AioToPort(AioHttpTransport):
    """The same for the asyncio client."""

    def __init__(self, port: int):
        super().__init__()
        self._port = port

    async def send(self, request: Any, **options: Any) -> Any:
        return await super().send(_redirected(request, self._port), **options)


def _redirected(request: Any, port: int) -> Any:
    parts = urlsplit(request.url)
    request.headers["Host"] = parts.netloc
    request.url = urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))
    return request


@pytest.fixture(params=["sync", "aio"])
def connect(request):
    """connect("service" or "queue", ...) -> a client of either kind, closed after the test.

    "service from_connection_string" uses that factory. to_port: of this machine, to which all requests go, whatever their host.
    """
    with ExitStack() as opened:
        yield _connect_sync(opened) if request.param == "sync" else _connect_aio(opened)


def _connect_sync(opened: ExitStack) -> Callable[..., Any]:
    def connect(kind: str, *args: Any, to_port: int = 0, **options: Any) -> Any:
        transport = {"transport": ToPort(to_port)} if to_port else {}
        client = _factory(kind, QueueClient, QueueServiceClient)(*args, **QUICKLY, **options, **transport)
        return opened.enter_context(closing(client))

    return connect


def _connect_aio(opened: ExitStack) -> Callable[..., Any]:
    loop = opened.enter_context(loop_in_a_thread())

    def connect(kind: str, *args: Any, to_port: int = 0, **options: Any) -> Any:
        def make() -> Any:
            transport = {"transport": AioToPort(to_port)} if to_port else {}
            return _factory(kind, aio.QueueClient, aio.QueueServiceClient)(*args, **QUICKLY, **options, **transport)

        return opened.enter_context(closing(made(loop, make)))

    return connect


def _factory(kind: str, queue: type, service: type) -> Callable[..., Any]:
    name, _, factory = kind.partition(" ")
    made = {"queue": queue, "service": service}[name]
    return getattr(made, factory) if factory else made


@pytest.fixture
def service(connect, storage):
    return connect("service from_connection_string", storage.connection_string)


@pytest.fixture
def orders(service):
    return service.create_queue("orders")


def code_of(call) -> str:
    """The code of a refusal; of an error that the SDK has a class for, too."""
    with pytest.raises(HttpResponseError) as refused:
        outcome = call()
        list(outcome) if hasattr(outcome, "by_page") else None
    return refused.value.error_code


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


# Queues


def test_create_delete_and_create_again(service):
    """201, 204 (which the SDK takes for 409), 409, 204, 404, 201."""
    service.create_queue("orders", metadata={"team": "a"})
    with pytest.raises(ResourceExistsError):
        service.create_queue("orders", metadata={"team": "a"})
    assert code_of(lambda: service.create_queue("orders", metadata={"team": "b"})) == "QueueAlreadyExists"
    service.delete_queue("orders")
    assert code_of(lambda: service.delete_queue("orders")) == "QueueNotFound"
    service.create_queue("orders")


def test_metadata(orders):
    assert orders.get_queue_properties().metadata == {}
    orders.set_queue_metadata({"team": "logistics", "b_c": "d", "Case": "Kept in values"})
    assert orders.get_queue_properties().metadata == {"team": "logistics", "b_c": "d", "case": "Kept in values"}
    orders.set_queue_metadata({})
    assert orders.get_queue_properties().metadata == {}
    assert code_of(lambda: orders.set_queue_metadata({"1a": "x"})) == "InvalidMetadata"
    assert code_of(lambda: orders.set_queue_metadata({"a": "x" * 8192})) == "MetadataTooLarge"


def test_names_that_no_queue_can_have(service):
    assert code_of(lambda: service.create_queue("ab")) == "OutOfRangeInput"
    assert code_of(lambda: service.create_queue("Orders")) == "InvalidResourceName"


def test_lists_by_page_with_prefix_and_metadata(service):
    for number in range(5):
        service.create_queue(f"list-{number}", metadata={"n": str(number)})
    service.create_queue("other")
    assert [queue.name for queue in service.list_queues()] == [*(f"list-{number}" for number in range(5)), "other"]
    pages = service.list_queues(name_starts_with="list", results_per_page=2, include_metadata=True).by_page()
    assert [[queue.metadata["n"] for queue in page] for page in pages] == [["0", "1"], ["2", "3"], ["4"]]
    assert next(iter(service.list_queues("other"))).metadata is None
    assert code_of(lambda: service.list_queues(results_per_page=5001)) == "OutOfRangeQueryParameterValue"


# The service


def test_service_properties(service):
    first = service.get_service_properties()
    assert first["cors"] == [] and not first["hour_metrics"].enabled
    logging = QueueAnalyticsLogging(read=True, write=True, delete=False, retention_policy=RetentionPolicy(enabled=True, days=3))
    metrics = Metrics(enabled=True, include_apis=True, retention_policy=RetentionPolicy(enabled=True, days=5))
    rules = [
        CorsRule(["http://a.example"], ["GET", "PUT"], allowed_headers=["x-ms-*"], exposed_headers=["*"], max_age_in_seconds=9)
    ]
    service.set_service_properties(analytics_logging=logging, hour_metrics=metrics, minute_metrics=metrics, cors=rules)
    read = service.get_service_properties()
    assert (read["analytics_logging"].read, read["analytics_logging"].delete) == (True, False)
    assert (read["hour_metrics"].retention_policy.days, read["minute_metrics"].include_apis) == (5, True)
    assert [(rule.allowed_origins, rule.allowed_methods, rule.max_age_in_seconds) for rule in read["cors"]] == [
        ("http://a.example", "GET,PUT", 9)
    ]
    service.set_service_properties(cors=[])
    after = service.get_service_properties()
    assert after["cors"] == [] and after["hour_metrics"].enabled  # only the parts that are sent are replaced


@pytest.mark.parametrize(
    "given",
    [
        {"cors": [CorsRule([f"http://{number}.example"], ["GET"]) for number in range(6)]},
        {"hour_metrics": Metrics(enabled=True, include_apis=True, retention_policy=RetentionPolicy(enabled=True, days=366))},
    ],
)
def test_service_properties_that_are_refused(service, given):
    assert code_of(lambda: service.set_service_properties(**given)) == "InvalidXmlDocument"


def test_stats_of_the_secondary_endpoint(connect, storage):
    """By host style: in path style, the SDK has no URL for it."""
    credential = {"account_name": storage.name, "account_key": storage.key}
    hosts = [f"{storage.name}{suffix}.queue.localhost:{storage.port}" for suffix in ("", "-secondary")]
    service = connect("service", f"http://{hosts[0]}", credential=credential, secondary_hostname=hosts[1], to_port=storage.port)
    service.create_queue("orders").send_message("x")
    stats = service.get_service_stats()
    assert stats["geo_replication"]["status"] == "live"
    assert datetime.now(UTC) - stats["geo_replication"]["last_sync_time"] < timedelta(minutes=1)


# Access policies


def test_access_policies_are_set_read_and_removed(orders):
    start = datetime(2026, 11, 21, 2, 55, 46, tzinfo=UTC)
    policies = {"read": AccessPolicy(QueueSasPermissions(read=True), start=start, expiry=in_an_hour()), "empty": None}
    orders.set_queue_access_policy(policies)
    read = orders.get_queue_access_policy()
    assert (read["read"].permission, read["read"].start) == ("r", "2026-11-21T02:55:46Z")
    assert set(read) == {"read", "empty"}
    six = {str(number): AccessPolicy(expiry=in_an_hour()) for number in range(6)}
    with pytest.raises((HttpResponseError, ValueError)):  # the SDK counts, too
        orders.set_queue_access_policy(six)
    orders.set_queue_access_policy({})
    assert orders.get_queue_access_policy() == {}


# Messages


def test_put_get_update_and_delete(orders):
    sent = orders.send_message("h\u00e9 <&> \n \U0001f600", visibility_timeout=0, time_to_live=60)
    assert (sent.expires_on - sent.inserted_on, sent.next_visible_on) == (timedelta(seconds=60), sent.inserted_on)
    got = orders.receive_message(visibility_timeout=WEEK)
    assert (got.id, got.dequeue_count, got.content) == (sent.id, 1, "h\u00e9 <&> \n \U0001f600")
    assert got.next_visible_on > got.expires_on
    assert orders.receive_message() is None
    assert code_of(lambda: orders.delete_message(sent)) == "PopReceiptMismatch"
    kept = orders.update_message(got, visibility_timeout=0)
    assert [message.content for message in orders.peek_messages()] == [got.content]  # without a text, it stays
    changed = orders.update_message(kept, visibility_timeout=0, content="new")
    [peeked] = orders.peek_messages(max_messages=32)
    assert (peeked.content, peeked.dequeue_count, peeked.pop_receipt) == ("new", 1, None)
    orders.delete_message(changed)
    assert code_of(lambda: orders.delete_message(changed)) == "MessageNotFound"


def test_a_producer_changes_its_own_message(orders):
    sent = orders.send_message("a", visibility_timeout=WEEK, time_to_live=-1)
    assert sent.expires_on.year == 9999 and orders.peek_messages() == []
    sent = orders.update_message(sent, visibility_timeout=0, content="b")
    assert [message.content for message in orders.receive_messages(max_messages=1)] == ["b"]
    with pytest.raises(HttpResponseError):
        orders.delete_message(sent)


def test_many_messages_by_page_and_clear(orders):
    for number in range(40):
        orders.send_message(str(number))
    assert orders.get_queue_properties().approximate_message_count == 40
    pages = [[m.content for m in page] for page in orders.receive_messages(messages_per_page=32).by_page()]
    assert [len(page) for page in pages if page] == [32, 8]
    assert sorted(int(text) for page in pages for text in page) == list(range(40))
    orders.clear_messages()
    assert orders.get_queue_properties().approximate_message_count == 0


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda q: q.send_message("x" * 65_537), "RequestBodyTooLarge"),
        (lambda q: q.send_message("a\x01b"), "InvalidXmlDocument"),
        (lambda q: q.send_message("x", visibility_timeout=WEEK + 1), "OutOfRangeQueryParameterValue"),
        (lambda q: q.send_message("x", visibility_timeout=5, time_to_live=5), "InvalidQueryParameterValue"),
        (lambda q: q.receive_messages(messages_per_page=33), "OutOfRangeQueryParameterValue"),
        (lambda q: q.receive_messages(visibility_timeout=WEEK + 1), "OutOfRangeQueryParameterValue"),
        (lambda q: q.update_message("4711", "nobodys", visibility_timeout=1), "MessageNotFound"),
        (lambda q: q.delete_message("4711", "nobodys"), "MessageNotFound"),
    ],
)
def test_what_is_refused(orders, call, code):
    assert code_of(lambda: call(orders)) == code
    assert orders.get_queue_properties().approximate_message_count == 0


@pytest.mark.parametrize(
    ("encode", "decode", "content", "stored"),
    [
        (TextBase64EncodePolicy, TextBase64DecodePolicy, "\x00 h\u00e9", "ACBow6k="),
        (BinaryBase64EncodePolicy, BinaryBase64DecodePolicy, b"\x00\xff", "AP8="),
    ],
)
def test_base64_is_the_clients_own(connect, storage, orders, encode, decode, content, stored):
    policies = {"message_encode_policy": encode(), "message_decode_policy": decode()}
    encoded = connect("queue from_connection_string", storage.connection_string, "orders", **policies)
    encoded.send_message(content)
    assert [message.content for message in orders.peek_messages()] == [stored]
    assert encoded.receive_message().content == content


def test_a_queue_that_is_gone(service, orders):
    service.delete_queue("orders")
    calls = (
        lambda: orders.send_message("x"),
        orders.receive_message,
        orders.peek_messages,
        orders.clear_messages,
        orders.get_queue_properties,
        lambda: orders.set_queue_metadata({}),
        orders.get_queue_access_policy,
        lambda: orders.set_queue_access_policy({}),
    )
    for call in calls:
        with pytest.raises(ResourceNotFoundError):
            call()


# Signatures


def test_either_key_of_the_account(connect, storage):
    for key in accounts.get_keys(storage.name).keys:
        service = connect("service", storage.url, credential={"account_name": storage.name, "account_key": key})
        assert list(service.list_queues()) == []


def test_a_wrong_key(connect, storage):
    service = connect("service", storage.url, credential={"account_name": storage.name, "account_key": "A" * 86 + "=="})
    with pytest.raises(ClientAuthenticationError, match="not that of any key"):
        list(service.list_queues())


OPERATIONS = {
    "list": (lambda s: list(s.list_queues()), "s", "l"),
    "get properties": (lambda s: s.get_service_properties(), "s", "r"),
    "set properties": (lambda s: s.set_service_properties(cors=[]), "s", "w"),
    "create": (lambda s: s.create_queue("another"), "c", "c"),
    "create by write": (lambda s: s.create_queue("another"), "c", "w"),
    "delete queue": (lambda s: s.delete_queue("orders"), "c", "d"),
    "get metadata": (lambda s: s.get_queue_client("orders").get_queue_properties(), "c", "r"),
    "set metadata": (lambda s: s.get_queue_client("orders").set_queue_metadata({"a": "b"}), "c", "w"),
    "put": (lambda s: s.get_queue_client("orders").send_message("x"), "o", "a"),
    "get": (lambda s: s.get_queue_client("orders").receive_message(), "o", "p"),
    "peek": (lambda s: s.get_queue_client("orders").peek_messages(), "o", "r"),
    "update": (lambda s: s.get_queue_client("orders").update_message(PUT.id, PUT.pop_receipt, visibility_timeout=0), "o", "u"),
    "delete": (lambda s: s.get_queue_client("orders").delete_message(PUT.id, PUT.pop_receipt), "o", "p"),
    "clear": (lambda s: s.get_queue_client("orders").clear_messages(), "o", "d"),
}
LETTERS = {
    "r": "read", "w": "write", "d": "delete", "l": "list", "a": "add", "c": "create", "u": "update", "p": "process",
}  # fmt: skip
TYPES = {"s": "service", "c": "container", "o": "object"}


class PUT:
    """The message that waits in the queue."""

    id: str = ""
    pop_receipt: str = ""


def account_sas(storage, types: str, letters: str, **options: Any) -> str:
    permission = AccountSasPermissions(**{LETTERS[letter]: True for letter in letters})
    of_types = ResourceTypes(**{TYPES[kind]: True for kind in types})
    options.setdefault("expiry", in_an_hour())
    return generate_account_sas(storage.name, storage.key, of_types, permission, **options)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_account_sas_permits_what_its_letters_say(connect, storage, orders, name):
    call, kind, letter = OPERATIONS[name]
    PUT.id, PUT.pop_receipt = (sent := orders.send_message("x")).id, sent.pop_receipt
    others = "".join(other for other in LETTERS if other != letter and not (name.startswith("create") and other in "cw"))

    def by(types: str, letters: str) -> Any:
        return connect("service", storage.url, credential=account_sas(storage, types, letters))

    assert code_of(lambda: call(by("sco", others))) == "AuthorizationPermissionMismatch"
    assert code_of(lambda: call(by("sco".replace(kind, ""), letter))) == "AuthorizationResourceTypeMismatch"
    call(by(kind, letter))


def test_no_account_sas_reads_or_sets_access_policies(connect, storage, orders):
    """QS-098."""
    service = connect("service", storage.url, credential=account_sas(storage, "sco", "".join(LETTERS)))
    queue = service.get_queue_client("orders")
    assert code_of(queue.get_queue_access_policy) == "AuthorizationPermissionMismatch"
    assert code_of(lambda: queue.set_queue_access_policy({})) == "AuthorizationPermissionMismatch"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"expiry": datetime(2020, 1, 1, tzinfo=UTC)}, "AuthenticationFailed"),
        ({"start": datetime(2199, 1, 1, tzinfo=UTC)}, "AuthenticationFailed"),
        ({"ip": "10.0.0.1"}, "AuthorizationSourceIPMismatch"),
        ({"protocol": "https"}, "AuthorizationProtocolMismatch"),
    ],
)
def test_an_account_sas_that_is_not_for_this_request(connect, storage, options, code):
    service = connect("service", storage.url, credential=account_sas(storage, "s", "l", **options))
    assert code_of(lambda: list(service.list_queues())) == code


def test_an_account_sas_for_this_address(connect, storage):
    token = account_sas(storage, "s", "l", ip="127.0.0.0-127.255.255.255", protocol="https,http")
    assert list(connect("service", storage.url, credential=token).list_queues()) == []


def test_a_connection_string_with_a_shared_access_signature(connect, storage):
    text = f"QueueEndpoint={storage.url};SharedAccessSignature={account_sas(storage, 's', 'l')}"
    assert list(connect("service from_connection_string", text).list_queues()) == []


QUEUE_OPERATIONS = {
    "get metadata": (lambda q: q.get_queue_properties(), "r"),
    "peek": (lambda q: q.peek_messages(), "r"),
    "put": (lambda q: q.send_message("x"), "a"),
    "get": (lambda q: q.receive_message(), "p"),
    "update": (lambda q: q.update_message(PUT.id, PUT.pop_receipt, visibility_timeout=0), "u"),
    "delete": (lambda q: q.delete_message(PUT.id, PUT.pop_receipt), "p"),
    "set metadata": (lambda q: q.set_queue_metadata({}), ""),
    "delete queue": (lambda q: q.delete_queue(), ""),
    "create": (lambda q: q.create_queue(), ""),
    "clear": (lambda q: q.clear_messages(), ""),
    "get policies": (lambda q: q.get_queue_access_policy(), ""),
    "set policies": (lambda q: q.set_queue_access_policy({}), ""),
}


def queue_sas(storage, letters: str | None = None, **options: Any) -> str:
    permission = QueueSasPermissions(**{LETTERS[letter]: True for letter in letters}) if letters else None
    return generate_queue_sas(storage.name, "orders", storage.key, permission, **options)


@pytest.mark.parametrize("name", QUEUE_OPERATIONS)
def test_a_service_sas_permits_what_its_letters_say(connect, storage, orders, name):
    call, letter = QUEUE_OPERATIONS[name]
    PUT.id, PUT.pop_receipt = (sent := orders.send_message("x")).id, sent.pop_receipt

    def by(letters: str) -> Any:
        return connect("queue", storage.url, "orders", credential=queue_sas(storage, letters, expiry=in_an_hour()))

    assert code_of(lambda: call(by("raup".replace(letter, "") if letter else "raup"))) == "AuthorizationPermissionMismatch"
    if letter:
        call(by(letter))


def test_a_service_sas_is_for_one_queue(connect, service, storage, orders):
    service.create_queue("other")
    token = queue_sas(storage, "raup", expiry=in_an_hour())
    assert code_of(lambda: connect("queue", storage.url, "other", credential=token).peek_messages()) == "AuthenticationFailed"
    lister = connect("service", storage.url, credential=token)
    assert code_of(lambda: list(lister.list_queues())) == "AuthenticationFailed"


def test_a_stored_access_policy_says_what_a_sas_leaves_out(connect, storage, orders):
    """QS-096; a policy that is removed ends what was signed with it."""
    orders.set_queue_access_policy({"p": AccessPolicy(QueueSasPermissions(read=True, add=True), expiry=in_an_hour())})
    by_policy = connect("queue", storage.url, "orders", credential=queue_sas(storage, policy_id="p"))
    by_policy.send_message("x")
    assert [message.content for message in by_policy.peek_messages()] == ["x"]
    assert code_of(by_policy.receive_message) == "AuthorizationPermissionMismatch"
    both = connect("queue", storage.url, "orders", credential=queue_sas(storage, "r", policy_id="p"))
    assert code_of(both.peek_messages) == "AuthenticationFailed"
    orders.set_queue_access_policy({"p": AccessPolicy(QueueSasPermissions(read=True))})
    with_expiry = connect("queue", storage.url, "orders", credential=queue_sas(storage, policy_id="p", expiry=in_an_hour()))
    assert [message.content for message in with_expiry.peek_messages()] == ["x"]
    orders.set_queue_access_policy({})
    assert code_of(with_expiry.peek_messages) == "AuthenticationFailed"


# TLS


@pytest.fixture
def over_tls(storage, with_tls):
    """The account at a port with TLS: its URL, and the path of the certificate that clients have to trust."""
    with listening(["QUEUE_STORAGE_TLS_PORT"]) as served:
        yield f"https://127.0.0.1:{served.port('QUEUE_STORAGE_TLS_PORT')}/{storage.name}", with_tls.authority


def test_a_port_with_tls(connect, storage, over_tls):
    url, certificate = over_tls
    token = account_sas(storage, "sco", "".join(LETTERS), protocol="https")
    orders = connect("service", url, credential=token, connection_verify=certificate).create_queue("orders")
    orders.send_message("x")
    assert [message.content for message in orders.receive_messages()] == ["x"]


# The development account


@pytest.fixture
def development_port(development_storage):
    """The port that clients of emulators use: the listener's, or one that it is mapped to where another program has it."""
    try:
        taken = socket.create_server(("127.0.0.1", 10001))
    except OSError:
        yield development_storage.port
        return
    with closing(ListenerThread(())) as served:
        served.sockets["QUEUE_STORAGE_PORT"] = taken
        served.start()
        yield 10001
        served.stop()


def test_development_storage(connect, development_port):
    service = connect("service from_connection_string", "UseDevelopmentStorage=true", to_port=development_port)
    assert service.url.startswith("http://127.0.0.1:10001/devstoreaccount1")
    orders = service.create_queue("orders")
    orders.send_message("x")
    assert [message.content for message in orders.receive_messages()] == ["x"]
    assert queue_storage.approximate_count(EntityAddress("devstoreaccount1", "orders")) == 1
