"""What a URL names, in both styles, and the paths that name nothing."""

import pytest

from broker_core.queue_storage.http.paths import Level, Target, target_of
from broker_core.queue_storage.rules.errors import InvalidResourceName, OutOfRangeInput
from broker_core.wire.http.errors import UnknownResource


@pytest.mark.parametrize(
    ("host", "path", "target"),
    [
        ("127.0.0.1:10001", "/shop", (Level.SERVICE, "shop")),
        ("127.0.0.1:10001", "/shop/", (Level.SERVICE, "shop")),
        ("localhost", "/shop/orders", (Level.QUEUE, "shop", "orders")),
        ("[::1]:10001", "/shop/orders/", (Level.QUEUE, "shop", "orders")),
        ("queues.example.org", "/shop/%6frders/messages", (Level.MESSAGES, "shop", "orders")),
        ("localhost", "/shop/orders/messages/", (Level.MESSAGES, "shop", "orders")),
        ("localhost", "/shop/orders/messages/4c-1", (Level.MESSAGE, "shop", "orders", "4c-1")),
        ("localhost", "/shop/orders/messages/..%2Fother", (Level.MESSAGE, "shop", "orders", "../other")),
        ("localhost", "/shop/messages/messages", (Level.MESSAGES, "shop", "messages")),
    ],
)
def test_path_style(host, path, target):
    level, account, queue, message = (*target, "", "")[:4]
    assert target_of(host, path) == Target(level, account, False, True, queue, message)


@pytest.mark.parametrize(
    ("host", "path", "level"),
    [
        ("shop.queue.localhost:10001", "/", Level.SERVICE),
        ("SHOP.queue.core.windows.net", "/orders", Level.QUEUE),
        ("shop.queue.localhost", "/orders/messages", Level.MESSAGES),
    ],
)
def test_host_style(host, path, level):
    target = target_of(host, path)
    assert (target.account, target.level, target.is_path_style) == ("shop", level, False)


@pytest.mark.parametrize(("host", "path"), [("localhost", "/shop-secondary/"), ("shop-secondary.queue.localhost", "/")])
def test_the_secondary_endpoint_is_of_the_same_account(host, path):
    target = target_of(host, path)
    assert (target.account, target.is_secondary) == ("shop", True)


@pytest.mark.parametrize(
    "path",
    [
        *("", "*", "/", "//", "http://x/shop", "/shop//orders", "/shop/orders//", "/shop/orders/other", "/shop/orders/Messages"),
        *(
            "/shop/orders/messages/1/2",
            "/shop/orders/messages//",
            "/shop/../shop/orders",
            "/shop/%ff",
            "/shop/a%00b",
            "//shop/orders",
        ),
    ],
)
def test_a_path_that_names_nothing(path):
    with pytest.raises(UnknownResource):
        target_of("localhost", path)


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("/shop/..%2fother", InvalidResourceName),
        ("/shop/a%2Fb", InvalidResourceName),
        ("/shop/Orders", InvalidResourceName),
        ("/shop/ord--ers", InvalidResourceName),
        ("/shop/or%3Fders", InvalidResourceName),
        ("/shop/or%23ders", InvalidResourceName),
        ("/shop/%EF%BC%91abc", InvalidResourceName),
        ("/shop/..", OutOfRangeInput),
        ("/shop/" + "a" * 10_000, OutOfRangeInput),
    ],
)
def test_no_name_leads_to_another_queue(path, refusal):
    with pytest.raises(refusal):
        target_of("localhost", path)
