"""Who may use the keys that everybody knows: by the address of the peer, the Host that it names, and pages that browsers show."""

import pytest

from broker_core.wire import published_keys
from broker_core.wire.http.request import Request
from broker_core.wire.peers import is_loopback
from broker_core.wire.published_keys import PublishedKeyRefused


def request(client="127.0.0.1", host="localhost:10001", **headers):
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": "/", "client": (client, 1), "headers": [(b"host", host.encode()), *named]}
    return Request(scope, None)


def why(request, allowed_origin=None) -> str:
    """Why the request is refused; empty: it is not."""
    try:
        published_keys.require_allowed(request, lambda origin: origin == allowed_origin)
    except PublishedKeyRefused as problem:
        return str(problem)
    return ""


@pytest.fixture(autouse=True)
def hosts(settings):
    settings.ALLOWED_HOSTS = ["broker.example", ".lan.example"]


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.7", False),
        ("::ffff:192.0.2.7", False),
        ("fe80::1%lo", False),
        ("0.0.0.0", False),
        ("localhost", False),  # servers report addresses; a name is none
        ("unknown", False),
        ("", False),
    ],
)
def test_who_is_on_this_machine(client, expected):
    assert is_loopback(client) is expected
    assert ("WELL_KNOWN_KEYS=everywhere" in why(request(client))) is not expected


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "x_real_ip", "via"])
@pytest.mark.parametrize("said", ["127.0.0.1", "192.0.2.7"])
def test_what_came_through_a_proxy_is_not_of_this_machine(settings, header, said):
    """Whatever it says: a proxy here makes everybody look like this machine, and some pass on what a client says."""
    assert "came through a proxy" in why(request(**{header: said}))
    settings.WELL_KNOWN_KEYS = "everywhere"
    assert why(request(**{header: said})) == ""


@pytest.mark.parametrize(
    ("setting", "from_here", "from_elsewhere"), [("loopback", True, False), ("everywhere", True, True), ("off", False, False)]
)
def test_the_setting(settings, setting, from_here, from_elsewhere):
    settings.WELL_KNOWN_KEYS = setting
    assert [why(request("::1")) == "", why(request("192.0.2.7")) == ""] == [from_here, from_elsewhere]
    if setting == "off":
        assert "WELL_KNOWN_KEYS=off" in why(request())
    del settings.WELL_KNOWN_KEYS  # of a site without the explorer
    assert why(request("::1")) == "" != why(request("192.0.2.7"))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:10001",
        "devstoreaccount1.queue.localhost:10001",
        "127.0.0.1:10001",
        "127.1.2.3",
        "[::1]:10001",
        "broker.example:5300",
        "shop.queue.lan.example",
    ],
)
def test_hosts_that_are_known(host):
    assert why(request(host=host)) == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.7",
        "evil.example@localhost",
        "localhost evil",
        "[::1",
        "broker.example.evil",
        "notlocalhost",
        "%6cocalhost",
    ],
)
def test_a_page_whose_name_was_pointed_at_this_machine_is_refused(host, settings):
    """DNS rebinding: to the browser, the page and the broker are one site."""
    assert "ALLOWED_HOSTS" in why(request(host=host, sec_fetch_site="same-origin"))
    settings.WELL_KNOWN_KEYS = "everywhere"
    assert "ALLOWED_HOSTS" in why(request(host=host))


def test_a_page_needs_a_rule_for_its_origin():
    of_page = request(origin="http://shop.example", sec_fetch_site="cross-site")
    assert why(of_page, allowed_origin="http://shop.example") == ""
    assert "http://shop.example" in why(of_page, allowed_origin="http://other.example")
    assert "CORS rule" in why(request(origin="null"))
    assert "CORS rule" in why(request(origin="http://localhost:3000"))


@pytest.mark.parametrize(
    ("site", "is_refused"), [("cross-site", True), ("same-site", True), ("same-origin", False), ("none", False)]
)
def test_an_image_of_a_page_elsewhere_is_refused(site, is_refused):
    """Its request has no Origin, and a signature in its URL could receive messages. Browsers say where it is from."""
    assert ("Web pages" in why(request(sec_fetch_site=site))) is is_refused
