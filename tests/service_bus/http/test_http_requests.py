"""URLs, timeouts, and how refusals are told. No database, no sockets."""

from types import SimpleNamespace
from uuid import UUID
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common import errors
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import EntityAddress, SubQueue
from broker_core.service_bus import http_requests
from broker_core.service_bus.http import addresses, receive
from broker_core.service_bus.http import errors as wire_errors
from broker_core.service_bus.http.addresses import Kind
from broker_core.service_bus.http.errors import TokenRefused, wire_error
from broker_core.service_bus.http.request import Request
from broker_core.wire.failed_authentications import TooManyFailedAuthentications
from broker_core.wire.http.errors import BodyTooLarge, ConnectionClosed, MethodNotAllowed, UnknownResource
from broker_core.wire.http.request import ClientGone
from broker_core.wire.published_keys import PublishedKeyRefused
from broker_core.wire.xml import InvalidXml
from tests.wire.asgi_client import Client

LOCK = "7da9cfd5-40d5-4bb1-8d64-000000000007"
SUBSCRIPTION_S = EntityAddress("demo", "t/subscriptions/s")


@pytest.mark.parametrize(
    ("path", "kind", "address"),
    [
        ("/servicebus/demo/q/messages", Kind.MESSAGES, EntityAddress("demo", "q")),
        ("/servicebus/demo/a/b/q/messages", Kind.MESSAGES, EntityAddress("demo", "a/b/q")),
        ("/servicebus/demo/a%2Fb/messages", Kind.MESSAGES, EntityAddress("demo", "a/b")),
        ("/servicebus/demo/messages/messages", Kind.MESSAGES, EntityAddress("demo", "messages")),
        ("/servicebus/demo/servicebus/messages", Kind.MESSAGES, EntityAddress("demo", "servicebus")),
        ("/servicebus/demo/q/messages/head", Kind.HEAD, EntityAddress("demo", "q")),
        ("/servicebus/demo/messages/messages/head", Kind.HEAD, EntityAddress("demo", "messages")),
        ("/servicebus/demo/q/$DeadLetterQueue/messages/head", Kind.HEAD, EntityAddress("demo", "q", SubQueue.DEAD_LETTER)),
        ("/servicebus/demo/q/%24deadletterqueue/messages/head", Kind.HEAD, EntityAddress("demo", "q", SubQueue.DEAD_LETTER)),
        ("/servicebus/demo/q/Messages", Kind.MESSAGES, EntityAddress("demo", "q")),
        ("/servicebus/demo/q/Messages/HEAD", Kind.HEAD, EntityAddress("demo", "q")),
        ("/servicebus/demo/t/Subscriptions/s/messages/head", Kind.HEAD, EntityAddress("demo", "t").subscription("s")),
        ("/servicebus/demo/a/T/SUBSCRIPTIONS/S/messages/head", Kind.HEAD, EntityAddress("demo", "a/T/SUBSCRIPTIONS/S")),
        ("/servicebus/demo/t/subscriptions/messages/messages/head", Kind.HEAD, EntityAddress("demo", "t/subscriptions/messages")),
        ("/servicebus/demo/t/subscriptions/s/$deadletterqueue/messages/head", Kind.HEAD, SUBSCRIPTION_S.dead_letter),
        (
            "/servicebus/demo/t/subscriptions/s/$Transfer/$DeadLetterQueue/messages/head",
            Kind.HEAD,
            SUBSCRIPTION_S.transfer_dead_letter,
        ),
        (f"/servicebus/demo/t/subscriptions/s/messages/7/{LOCK}", Kind.LOCK, SUBSCRIPTION_S),
        (f"/servicebus/demo/q/MESSAGES/7/{LOCK}", Kind.LOCK, EntityAddress("demo", "q")),
        (f"/servicebus/demo/q/messages/7/{LOCK}", Kind.LOCK, EntityAddress("demo", "q")),
        (f"/servicebus/demo/q/messages/my%2Fid/{LOCK}", Kind.LOCK, EntityAddress("demo", "q")),
        (f"/servicebus/demo/q/messages/messages/{LOCK.upper()}", Kind.LOCK, EntityAddress("demo", "q")),
    ],
)
def test_url_names_an_operation_and_an_address(path, kind, address):
    target = addresses.parse(path)
    assert (target.kind, target.address) == (kind, address)
    assert target.lock_token == (UUID(LOCK) if kind is Kind.LOCK else None)


@pytest.mark.parametrize(
    "path",
    ["/", "/servicebus", "/servicebus/demo", "/servicebus/demo/messages", "/servicebus/demo/q", "/servicebus/demo/messages/head"]
    + [
        f"/servicebus/demo/messages/7/{LOCK}",
        "/servicebus/demo/q/messages/",
        "/servicebus/demo/q/messages/tail",
        "/demo/q/messages",
        "/elsewhere/servicebus/demo/q/messages",
        "//servicebus/demo/q/messages",
        "servicebus/demo/q/messages",
        "/servicebus%2Fdemo/q/messages",
        "/%2573ervicebus/demo/q/messages",
        "/servicebus/demo/q%2Fmessages",
    ],
)
def test_url_without_an_entity_is_not_found(path):
    with pytest.raises(UnknownResource, match="servicebus"):
        addresses.parse(path)


@pytest.mark.parametrize(
    "path",
    ["/servicebus/demo/q/messages/7/xyz", "/servicebus//q/messages", "/servicebus/demo/a//b/messages"]
    + ["/servicebus/demo/a%2f/b/messages", "/servicebus/demo/a/../b/messages", "/servicebus/demo/a%2F%2e%2E%2Fb/messages"]
    + ["/servicebus/../demo/q/messages", "/servicebus/demo/./messages", "/servicebus/a%2Fb/q/messages"],
)
def test_malformed_url_is_refused(path):
    with pytest.raises(InvalidArgument):
        addresses.parse(path)


@pytest.mark.parametrize(
    ("raw_path", "kind", "entity", "path", "lock_path"),
    [
        ("/q/messages", Kind.MESSAGES, EntityAddress("", "q"), "/q/messages", "/q/messages"),
        ("/servicebus/q/messages", Kind.MESSAGES, EntityAddress("", "servicebus/q"), "/servicebus/q/messages", None),
        ("/a%2Fb/Messages/HEAD", Kind.HEAD, EntityAddress("", "a/b"), "/a/b/Messages/HEAD", "/a%2Fb/Messages"),
        ("/namespace/messages/head", Kind.HEAD, EntityAddress("", "namespace"), "/namespace/messages/head", None),
        (
            *("/t/Subscriptions/s/$deadletterqueue/messages/head", Kind.HEAD, EntityAddress("", "t/Subscriptions/s").dead_letter),
            *("/t/Subscriptions/s/$DeadLetterQueue/messages/head", "/t/Subscriptions/s/$deadletterqueue/messages"),
        ),
        (f"/q/messages/7/{LOCK}", Kind.LOCK, EntityAddress("", "q"), f"/q/messages/7/{LOCK}", "/q/messages"),
    ],
)
def test_url_at_the_root_names_an_entity_of_a_namespace_that_is_not_known_yet(raw_path, kind, entity, path, lock_path):
    target = addresses.parse_at_root(raw_path)
    assert (target.kind, target.address, target.path) == (kind, entity, path)
    within = target.within("demo")
    assert within.address == EntityAddress("demo", entity.path, entity.subqueue) and within.path == path
    assert lock_path is None or within.lock_path(7, UUID(LOCK)) == f"{lock_path}/7/{LOCK}"


@pytest.mark.parametrize("raw_path", ["", "/", "/q", "q/messages", "/messages", "/messages/head", "/q/messages/tail"])
def test_url_at_the_root_without_an_entity_is_not_found(raw_path):
    with pytest.raises(UnknownResource, match="use /<entity>/messages to send"):
        addresses.parse_at_root(raw_path)


@pytest.mark.parametrize("raw_path", ["//messages", "/a//b/messages", "/a/../b/messages", "/a%2F%2e%2E%2Fb/messages"])
def test_malformed_url_at_the_root_is_refused(raw_path):
    with pytest.raises(InvalidArgument):
        addresses.parse_at_root(raw_path)


@given(st.text("/.%2Feqm$ DLtQ73", max_size=40))
def test_the_scope_at_the_root_names_the_address_whatever_the_path(below):
    try:
        target = addresses.parse_at_root(f"/{below}/messages")
    except (UnknownResource, InvalidArgument):
        return
    assert target.path == f"{target.address}/messages" and not {"", ".", ".."} & set(target.path.split("/")[1:])


@pytest.mark.parametrize(
    ("raw_path", "root_path"),
    [("/servicebus/demo/a%2Fb/messages/head", "/prefix"), ("/prefix/servicebus/demo/a%2Fb/messages/head", "/prefix")]
    + [("/p%72efix/%73ervicebus/demo/a%2Fb/messages/head", "/prefix/")],
)
def test_prefix_of_the_site_is_kept_with_and_without_a_stripping_proxy(raw_path, root_path):
    target = addresses.parse(raw_path, root_path)
    assert target.path == "/prefix/servicebus/demo/a/b/messages/head"
    assert target.lock_path(7, UUID(LOCK)) == f"/prefix/servicebus/demo/a%2Fb/messages/7/{LOCK}"


@pytest.mark.parametrize(
    ("path", "namespace", "entity"),
    [
        ("/%73ervicebus/demo/a/servicebus/demo/b/messages", "demo", "a/servicebus/demo/b"),
        ("/servicebus/demo/a%252Fb/messages", "demo", "a%2Fb"),
        ("/servicebus/de%256Do/q/messages", "de%6Do", "q"),
        ("/servicebus/demo/q%3Fmessages/messages", "demo", "q?messages"),
    ],
)
def test_a_segment_is_decoded_once_and_the_scope_is_the_address_that_was_parsed(path, namespace, entity):
    target = addresses.parse(path)
    assert target.address == EntityAddress(namespace, entity)
    assert target.path.startswith(f"/servicebus/{target.address}/messages")


@pytest.mark.parametrize(
    "raw_path", [{}, {"raw_path": None}, {"raw_path": b""}, {"raw_path": b"/servicebus/demo/a%252Fb/messages"}]
)
def test_a_server_may_leave_out_the_raw_path(raw_path):
    scope = {"path": "/servicebus/demo/a%2Fb/messages", "root_path": ""} | raw_path
    assert addresses.is_mounted(scope)
    assert addresses.parse_scope(scope).address == EntityAddress("demo", "a%2Fb")


@given(st.text("/.%2Ffesrvicbuqm$ DLtQ73", max_size=40), st.sampled_from(["", "/prefix", "/servicebus"]))
def test_the_scope_names_the_address_whatever_the_path(below, root_path):
    """A token covers by segments: those of the scope are those of the address, and routing takes what can be parsed."""
    raw_path = f"{root_path}/servicebus/{below}/messages"
    try:
        target = addresses.parse(raw_path, root_path)
    except (UnknownResource, InvalidArgument):
        return
    assert addresses.is_mounted({"path": "/", "raw_path": raw_path.encode(), "root_path": root_path})
    segments = [*root_path.split("/")[1:], "servicebus", *str(target.address).split("/"), "messages"]
    assert target.path.split("/")[1:] == segments
    assert not {"", ".", ".."} & set(segments)


def test_lock_url_of_a_subscription_keeps_the_casing_of_the_request():
    target = addresses.parse("/servicebus/demo/Orders/subscriptions/EU/Messages/Head")
    assert target.lock_path(7, UUID(LOCK)) == f"/servicebus/demo/Orders/subscriptions/EU/Messages/7/{LOCK}"
    assert (target.address.topic, target.address.name) == (EntityAddress("demo", "Orders"), "EU")


@pytest.mark.asyncio
async def test_no_message_is_deleted_for_a_client_that_disconnected_while_waiting(monkeypatch):
    """Regression: requests that waited for the server were served, though their clients had given up long before."""
    client, calls = Client(), []
    client.left.set()
    monkeypatch.setattr(receive.service_bus, "receive_and_delete", SimpleNamespace(aio=lambda *_, **__: calls.append(1)))
    request = client.request(of=Request)
    with pytest.raises(ClientGone):
        await receive.receive_and_delete(request, None)
    assert not calls


@pytest.mark.parametrize(("query", "seconds"), [(b"", 60), (b"timeout=0", 0), (b"timeout=2.5&x=1", 2.5), (b"timeout=3600", 3600)])
def test_timeout_is_parsed(query, seconds):
    assert Client().request(query, of=Request).timeout_seconds == seconds


@pytest.mark.parametrize("text", ["-1", "3601", "abc", "", "nan", "inf", "1e9", "1e1", "+5", "1_0", "%EF%BC%95"])
def test_timeout_out_of_range_is_refused(text):
    with pytest.raises(InvalidArgument, match="timeout.*0 to 3600"):
        _ = Client().request(f"timeout={text}".encode(), of=Request).timeout_seconds


def concrete_refusals() -> list[BrokerError]:
    return [
        errors.InvalidArgument("header BrokerProperties", "is <bad> & \x00 wrong"),
        errors.InvalidFilter("filter", "a =", 3, "the end", "a value"),
        errors.FilterError(3, "A value is missing."),
        errors.NotAllowed("no"),
        errors.LimitReached("There are as many as there can be."),
        errors.NotAuthorized("key:a", "SEND", "demo/q"),
        errors.EntityNotFound("demo/q"),
        errors.EntityExists("demo/q"),
        errors.PreviewOutdated("demo/q", "its settings have changed"),
        errors.EntityProtected(["demo/q"]),
        errors.EntityDisabled("demo/q", "Disabled", "sends"),
        errors.LockLost([UUID(LOCK)]),
        errors.SessionLockLost("demo/q", "s-1"),
        errors.SessionCannotBeLocked("demo/q", "s-1"),
        errors.NoSessionAvailable("demo/q", 60),
        errors.TransactionEnded("was rolled back"),
        errors.MessageNotFound("demo/q", [7], "message"),
        errors.MessageHeld("demo/q", 7, "lock", "process:slow", None),
        errors.MessageChanged("demo/q", 7),
        errors.MessageTooLarge("message", 300_000, 262_144),
        errors.QuotaExceeded("demo/q", 2**30),
        errors.NamespaceFull("demo", 2**30),
        errors.BrokerUnavailable("down"),
        errors.ServerBusy("busy"),
        errors.StorageFull("full"),
        PublishedKeyRefused("not from here"),
        TooManyFailedAuthentications(60),
        TokenRefused(TokenRefused.EXPIRED, "expired"),
        UnknownResource("nothing"),
        MethodNotAllowed("GET", ("POST", "DELETE")),
        BodyTooLarge(5),
        ConnectionClosed("maintenance"),
        InvalidXml("no element found", 1, 1),
    ]


def test_each_row_of_the_table_has_an_example():
    assert {type(exc) for exc in concrete_refusals()} | {BrokerError} == set(wire_errors.TABLE)


@pytest.mark.parametrize("exc", concrete_refusals(), ids=lambda exc: type(exc).__name__)
def test_error_response_is_an_error_document(exc):
    answer = http_requests.error_answer(exc, wire_error(exc), "/servicebus/demo/q/messages")
    document, headers = ElementTree.fromstring(answer.body), dict(answer.headers)
    assert document.tag == "Error" and document.findtext("Code") == str(answer.status) == str(wire_error(exc).status)
    detail = document.findtext("Detail")
    assert detail.startswith(f"SubCode={wire_error(exc).sub_code}. ")
    assert (
        "You can retry." in detail or "Retrying the same request" in detail
    ) and ".. " not in detail  # each text is a sentence of its own
    assert f"TrackingId:{exc.tracking_id}, SystemTracker:/servicebus/demo/q/messages, Timestamp:" in detail
    assert headers["vitrine-tracking-id"] == exc.tracking_id
    assert (headers["vitrine-retryable"] == "true") == exc.retryable == ("You can retry" in detail)
    assert ("retry-after" in headers) == (answer.status in (429, 503))
    assert ("www-authenticate" in headers) == (answer.status == 401)
    assert ("allow" in headers) == (answer.status == 405)


def test_unexpected_exception_is_an_internal_error():
    assert wire_error(KeyError("x")) == wire_errors.INTERNAL


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_connection_ends_only_if_its_body_may_never_come(is_awaited):
    answer = http_requests.error_answer(BodyTooLarge(5, is_awaited=is_awaited), wire_error(BodyTooLarge(5)), "/q/messages")
    assert (("connection", "close") in answer.headers) is is_awaited


def test_a_long_path_is_cut_in_the_answer():
    answer = http_requests.error_answer(errors.EntityNotFound("q"), wire_errors.INTERNAL, "/" + "x" * 10_000)
    assert len(answer.body) < 1000
