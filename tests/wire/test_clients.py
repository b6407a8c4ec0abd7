"""The registry of clients: who is there, what is counted, what closing does, and that its memory is bounded. No database."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.wire import clients
from broker_core.wire.clients import Direction, Registry
from broker_core.wire.http import clients as http
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.errors import ConnectionClosed
from broker_core.wire.http.request import Request
from tests.eventually import eventually_aio

ORDERS = EntityAddress("shop", "orders")
SDK = "azsdk-python-storage-queue/12.18.1 Python/3.11.2 (Linux)"


class Connection:
    """The server's object for a connection."""

    is_shut = False

    def shutdown(self):
        self.is_shut = True


def request(peer="10.0.0.7", agent=SDK, path="/shop/orders/messages", connection=None, body=b""):
    async def receive():
        if not receive.sent:
            receive.sent = True
            return {"type": "http.request", "body": body}
        return await asyncio.Event().wait()

    receive.sent = False
    scope = {
        "type": "http", "method": "PUT", "path": path, "headers": [(b"user-agent", agent.encode())], "scheme": "https",
        "client": (peer, 4711), "server": ("127.0.0.1", 10001), http.CONNECTION: connection,
    }  # fmt: skip
    return Request(scope, receive)


def actor(name="shop"):
    return Actor("key", name, Right.SEND, f"key:{name}@10.0.0.7")


def begun(**of):
    made = request(**{name: value for name, value in of.items() if name != "name"})
    http.begin("Test", made, actor(of.get("name", "shop")), "shop")
    return made


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    own = Registry()
    monkeypatch.setattr(http, "registry", own)
    monkeypatch.setattr(http, "_clients", {})
    return own


def test_a_connection_is_there_from_its_opening_to_its_end():
    registry, reasons = Registry(), []
    client = registry.opened("AMQP 1.0", "10.0.0.7:4711", is_tls=True, port=5671, close=reasons.append)
    client.identify("azure-servicebus", "7.14", "\x00bad\nname" + "x" * 1000)
    client.authenticated(actor(), "shop")
    link = client.link(ORDERS, Direction.RECEIVES, "peek-lock", name="r-1", channel=2)
    link.credit, link.unsettled = 10, 3
    assert list(registry.clients.values()) == [client]
    assert (client.actor, client.holder, client.namespace) == ("key:shop", "key:shop@10.0.0.7", "shop")
    assert len(client.description) == clients.MOST_TEXT and client.description.startswith("\ufffdbad\ufffdname")
    client.close("maintenance")
    assert reasons == ["maintenance"]
    client.unlink(link.number)
    registry.closed(client)
    registry.closed(client)
    assert not client.links and not registry.clients


def test_requests_of_one_agent_peer_and_key_are_one_client(registry):
    for _ in range(3):
        begun()
    begun(agent="curl/8.1")
    begun(peer="10.0.0.8")
    begun(name="other")
    assert [(c.peer, c.product, c.version, c.actor) for c in registry.clients.values()] == [
        ("10.0.0.7", "azsdk-python-storage-queue", "12.18.1", "key:shop"),
        ("10.0.0.7", "curl", "8.1", "key:shop"),
        ("10.0.0.8", "azsdk-python-storage-queue", "12.18.1", "key:shop"),
        ("10.0.0.7", "azsdk-python-storage-queue", "12.18.1", "key:other"),
    ]
    first = next(iter(registry.clients.values()))
    assert (first.is_tls, first.port, first.description, first.last_request) == (True, 10001, SDK, "PUT /shop/orders/messages")


@pytest.mark.parametrize(("agent", "known"), [
    ("", ("", "")), ("Robot", ("Robot", "")), ("(odd) agent/1", ("(odd) agent/1", "")), ("a/", ("a/", "")),
    ("a/b/c d", ("a", "b/c")),
])  # fmt: skip
def test_any_user_agent_is_shown(registry, agent, known):
    begun(agent=agent)
    (client,) = registry.clients.values()
    assert (client.product, client.version) == known


async def test_messages_and_bytes_are_counted_with_what_the_client_does_with_which_entity(registry):
    put, get = begun(body=b"x" * 300), begun()
    assert len(await put.body(1000)) == 300
    http.sent(put, ORDERS, 1)
    http.end(put, Answer(201, body=b"y" * 50))
    http.received(get, ORDERS, 0, "lease")
    http.received(get, ORDERS, 32, "lease")
    http.end(get, Answer(200, body=b"y" * 1000))
    (client,) = registry.clients.values()
    assert (client.messages_in, client.messages_out, client.bytes_in, client.bytes_out) == (1, 32, 300, 1050)
    assert [(link.address, link.direction, link.mode, link.messages) for link in client.links.values()] == [
        (ORDERS, "sends", "", 1),
        (ORDERS, "receives", "lease", 32),
    ]


def test_a_request_of_nobody_known_is_not_counted():
    unknown = request()
    http.sent(unknown, ORDERS, 1)
    http.received(unknown, ORDERS, 1, "lease")
    http.end(unknown, Answer(403, body=b"no"))


async def test_closing_answers_the_requests_that_wait_and_ends_the_connections(registry):
    busy, idle = Connection(), Connection()
    begun(connection=idle)
    waiting = begun(connection=busy)
    task = asyncio.create_task(waiting.while_connected(asyncio.Event().wait()))
    (client,) = registry.clients.values()
    await eventually_aio(lambda: client.idle_seconds is None)
    client.close("maintenance")
    with pytest.raises(ConnectionClosed, match="The connection was closed: maintenance"):
        await task
    assert busy.is_shut and idle.is_shut and not registry.clients
    begun()
    assert len(registry.clients) == 1, "it may come again, as another one"


async def test_a_client_ends_when_it_makes_no_request_but_not_while_one_waits(registry):
    waiting = begun()
    (client,) = registry.clients.values()
    task = asyncio.create_task(waiting.while_connected(asyncio.Event().wait()))
    await eventually_aio(lambda: client.idle_seconds is None)
    registry.end_idle(client.last_at + 2 * http.IDLE_SECONDS)
    assert registry.clients
    task.cancel()
    await asyncio.wait([task])
    registry.end_idle(client.last_at + http.IDLE_SECONDS)
    assert registry.clients
    registry.end_idle(client.last_at + http.IDLE_SECONDS + 1)
    assert not registry.clients and not http._clients


REQUESTS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz"), st.sampled_from("pqrst"), st.integers(0, 3), st.booleans())
)


@given(REQUESTS)
def test_memory_is_bounded_and_the_clients_of_the_last_requests_stay(requests):
    with pytest.MonkeyPatch.context() as patched:
        own = Registry()
        patched.setattr(http, "registry", own)
        patched.setattr(http, "_clients", {})
        patched.setattr(http, "MOST_CLIENTS", 3)
        patched.setattr(http, "MOST_ENTITIES", 2)
        order: list[tuple[str, str]] = []
        counted: dict[tuple[str, str], int] = {}
        for agent, name, path, messages, is_sent in requests:
            made = begun(agent=agent, name=name)
            key = (agent, name)
            order = [other for other in order if other != key] + [key]
            if len(order) > 3:
                del counted[order.pop(0)]
            address = EntityAddress("shop", path)
            if is_sent:
                http.sent(made, address, messages)
            else:
                http.received(made, address, messages, "lease")
            http.end(made, Answer(200))
            counted[key] = counted.get(key, 0) + messages
            found = {(client.product, client.actor.removeprefix("key:")): client for client in own.clients.values()}
            assert {key: client.messages_in + client.messages_out for key, client in found.items()} == counted
            assert all(len(client.links) <= 2 for client in found.values())
            assert any(link.address == address for link in found[key].links.values()), "the latest one stays"
        assert len(own.clients) == len(http._clients) == len(order)


@given(st.text(max_size=2000))
def test_texts_of_clients_are_short_and_can_be_stored(text):
    shown = clients.shown(text)
    assert shown.isprintable() and len(shown) <= clients.MOST_TEXT and clients.shown(shown) == shown
    shown.encode()


def test_links_of_a_connection_are_bounded(monkeypatch):
    monkeypatch.setattr(clients, "MOST_LINKS", 3)
    client = Registry().opened("AMQP 1.0", "10.0.0.7:4711")
    links = [client.link(ORDERS, Direction.SENDS) for _ in range(5)]
    assert list(client.links.values()) == links[2:]
    assert len({client.number, *(link.number for link in links)}) == 6


def test_a_connection_of_the_server_is_known_once(registry):
    connection = SimpleNamespaceWithWeakref()
    for _ in range(3):
        begun(connection=connection)
    (found,) = http._clients.values()
    assert list(found.connections) == [connection]
    del connection
    assert not list(found.connections), "it is not kept in memory"


class SimpleNamespaceWithWeakref(SimpleNamespace):
    __hash__ = object.__hash__
