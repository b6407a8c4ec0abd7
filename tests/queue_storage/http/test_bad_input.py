"""Bad input as bytes on the port: the documented refusal, nothing changed, and a connection that stays usable."""

import gzip
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from broker_core import queue_storage
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules import sas
from broker_core.wire.http.dates import write_rfc1123
from tests.at_once import at_once

from .client import Client
from .test_requests import TEXT, refused

OTHER_KEY = "A" * 86 + "=="
SAS = {"sv": "2026-02-06", "ss": "q", "srt": "sco", "sp": "rwdlacup", "se": "2099-01-01T00:00:00Z", "sig": "x"}
MEGABYTE = 2**20
ROUNDS = 12  # of each race


@pytest.fixture
def orders(client, account):
    assert client.request("PUT", "/orders").status == 201
    return EntityAddress(account, "orders")


@pytest.fixture
def usable(client, orders):
    """After the test, the same connection serves a valid request, and nothing was changed."""
    queue_storage.put(orders, "there before")
    yield client
    assert client.request("GET", "/orders", "comp=metadata").status == 200
    assert [message.text for message in queue_storage.peek(orders, 5)] == ["there before"]


@pytest.fixture
def second(client):
    with closing(Client(client.port, client.account, client.key)) as connected:
        yield connected


# Signatures


def signed_query(client, **fields):
    query = [(name, value) for name, value in (SAS | fields).items() if value is not None]
    return sas.as_query(sas.signed(sas.parse(query), client.key, account=client.account, queue=None))


def detail(reply, status=403, code="AuthenticationFailed"):
    return refused(reply, status, code)["AuthenticationErrorDetail"]


@pytest.mark.parametrize("scheme", ["SharedKey", "SharedKeyLite"])
def test_a_signature_with_another_key_is_refused_with_the_text_to_sign(usable, scheme):
    key, usable.key = usable.key, OTHER_KEY
    said = detail(usable.request("DELETE", "/orders/messages", "timeout=30", scheme=scheme))
    usable.key = key
    assert "Check the key" in said and "The text to sign is 'DELETE\\n" in said
    assert f"/{usable.account}/{usable.account}/orders/messages" in said
    assert key not in said


@pytest.mark.parametrize(
    ("changed", "value"), [("method", "PUT"), ("target", "/orders?timeout=31"), ("x-ms-version", "2021-12-03"), ("x-ms-a", "b")]
)
def test_a_signature_of_another_request_is_refused(usable, changed, value):
    path = f"/{usable.account}/orders"
    headers = [("Host", "127.0.0.1"), ("x-ms-date", write_rfc1123(datetime.now(UTC))), ("x-ms-version", "2021-12-02")]
    headers += [("x-ms-a", "a"), ("Content-Length", "0")]
    headers.append(("Authorization", usable.authorization("DELETE", path, "timeout=30", headers)))
    sent = [(name, value if name == changed else given) for name, given in headers]
    target = f"/{usable.account}{value}" if changed == "target" else f"{path}?timeout=30"
    assert "The text to sign is" in detail(usable.send(value if changed == "method" else "DELETE", target, sent))


def test_a_signature_for_the_account_of_another_host_is_refused(usable):
    queue_storage.create_account("elsewhere")
    reply = usable.request("GET", query="comp=list", whole_path="/", host="elsewhere.queue.localhost")
    assert f"for the account 'elsewhere' and signed for '{usable.account}'" in detail(reply)


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_date_sixteen_minutes_off_is_refused(usable, minutes):
    date = datetime.now(UTC) + timedelta(minutes=minutes)
    said = detail(usable.request("DELETE", "/orders", date=date))
    assert "more than 15 minutes" in said and "Check the clock" in said


def authorized(client, headers):
    """A request that deletes a queue, with these headers, and signed."""
    path = f"/{client.account}/orders"
    headers = [("Host", "127.0.0.1"), *headers]
    return client.send("DELETE", path, [*headers, ("Authorization", client.authorization("DELETE", path, "", headers))])


def test_a_request_without_a_date_is_refused(usable):
    assert "send the header x-ms-date" in detail(authorized(usable, []))


@pytest.mark.parametrize("date", ["today", "2026-11-21T02:55:46Z", "Sun, 06 Nov 1994 08:49:37 +0000", "\uff13"])
def test_a_date_that_is_none_is_refused(usable, date):
    said = detail(authorized(usable, [("x-ms-date", date)]), 400, "InvalidAuthenticationInfo")
    assert "must be such as 'Sun, 06 Nov 1994 08:49:37 GMT'" in said


def test_two_dates_are_none(usable):
    now = write_rfc1123(datetime.now(UTC))
    detail(authorized(usable, [("x-ms-date", now), ("X-MS-Date", now)]), 400, "InvalidAuthenticationInfo")


def test_two_authorizations_are_refused_though_one_is_valid(usable):
    path, headers = f"/{usable.account}/orders", [("Host", "a"), ("x-ms-date", write_rfc1123(datetime.now(UTC)))]
    valid, other = ("Authorization", usable.authorization("DELETE", path, "", headers)), ("authorization", "SharedKey a:b")
    for both in ([valid, other], [other, valid], [valid, valid]):
        assert "must be 'SharedKey ACCOUNT:SIGNATURE'" in detail(
            usable.send("DELETE", path, [*headers, *both]), 400, "InvalidAuthenticationInfo"
        )


@pytest.mark.parametrize(
    "authorization",
    ["", "SharedKey", "SharedKey a", "Basic YTpi", "SharedKey \u00e9:x", "SharedKey a:b, SharedKey a:b", "x" * 60_000],
)
def test_an_authorization_that_is_malformed_is_refused(usable, authorization):
    headers = [("Host", "a"), ("Authorization", authorization)]
    said = detail(usable.send("DELETE", f"/{usable.account}/orders", headers), 400, "InvalidAuthenticationInfo")
    assert "SharedKey ACCOUNT:SIGNATURE" in said and len(said) < 1000


def test_a_header_that_is_not_ascii_is_signed_as_it_was_sent(client, orders):
    reply = client.request("PUT", "/orders", "comp=metadata", headers=[("x-ms-meta-a", "\u00e9")])
    assert "printable ASCII" in reply.text("Message")
    refused(reply, 400, "InvalidMetadata")


@pytest.mark.parametrize(
    "head",
    [
        "GET /%s/orders HTTP/1.1\r\nHost: a\r\nx-ms-date: Sun,\r\n 06 Nov 1994 08:49:37 GMT\r\n\r\n",
        "GET /%s/orders HTTP/1.1\r\nHost: a\r\nAuthorization : SharedKey a:b\r\n\r\n",
        "GET /%s/orders HTTP/1.1\r\nHost: a\r\nx-ms-a: \x00\r\n\r\n",
        "GET /%s/orders HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /%s/orders HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
        "GET /%s/orders HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_ends_the_connection(client, orders, second, head):
    client.send_bytes((head % client.account).encode("latin-1"))
    reply = client.read()
    assert (reply.status, reply.headers["connection"]) == (400, "close")
    assert second.request("GET", "/orders", "comp=metadata").status == 200


def test_headers_of_more_than_64_kib_are_refused(client, orders, second):
    client.send_bytes(b"GET /x HTTP/1.1\r\nHost: a\r\nx-ms-a: " + b"a" * 70_000)
    reply = client.read()
    assert (reply.status, b"at most 64 KB" in reply.body) == (431, True)
    assert second.request("GET", "/orders", "comp=metadata").status == 200


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"se": "2020-01-01T00:00:00Z"}, "expired at 2020-01-01T00:00:00Z; the server's time is"),
        ({"st": "2098-01-01T00:00:00Z"}, "not valid before 2098-01-01T00:00:00Z; the server's time is"),
        ({"se": "soon"}, "se='soon' must be a time"),
        ({"sv": "2014-01-01"}, "version"),
    ],
)
def test_a_shared_access_signature_that_is_not_valid_now(usable, fields, problem):
    if "sv" in fields:
        query = "&".join(f"{name}={quote(value)}" for name, value in (SAS | fields).items())
    else:
        query = signed_query(usable, **fields)
    assert problem in detail(usable.request("DELETE", "/orders", query, sign=False))


def test_a_shared_access_signature_is_refused_with_the_text_to_sign(usable):
    query = signed_query(usable).replace("sp=rwdlacup", "sp=rwdlacupx")
    said = detail(usable.request("DELETE", "/orders", query, sign=False))
    assert f"The text to sign is '{usable.account}\\nrwdlacupx\\nq\\nsco\\n" in said


def test_a_parameter_of_a_signature_that_is_given_twice_is_refused(usable):
    query = signed_query(usable, sp="r")
    assert "given twice" in detail(usable.request("DELETE", "/orders", f"{query}&sp=d", sign=False))


# Paths


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/nothing/../orders",
        "/./orders",
        "//orders",
        "/orders//",
        "/orders//messages",
        "/nothing%2F..%2Forders",
        "/nothing%2f%2e%2e%2forders",
        "/%2e%2e/orders",
        "/orders%00",
        "/orders%0a",
        "/orders%20",
        "/orders%3Fcomp=acl",
        "/orders%23",
        "/ORDERS",
        "/%EF%BD%8Frders",
        "/orders%",
        "/orders;a=b",
        "/orders\\messages",
        f"/{'a' * 10_000}",
        f"/orders/messages/{'%2e%2e%2f' * 1000}",
        "/orders/messages/%2e%2e",
        "/orders/messages/1/../../..",
    ],
)
def test_a_path_never_leads_to_another_entity(usable, path, method):
    reply = usable.request(method, path, "popreceipt=AAAA&visibilitytimeout=0")
    assert reply.status in (400, 404) and reply.code, reply
    assert len(reply.body) < 12_000


@pytest.mark.parametrize("target", ["/%s/orders#x", "/%s/orders#/../other", "*", "http://[/orders", "/%s/ord\x80ers", "orders"])
def test_a_target_that_is_no_path(client, orders, second, target):
    """A signature is of the path without what follows #, which no client sends."""
    path = target.replace("%s", client.account)
    headers = [("Host", "127.0.0.1"), ("x-ms-date", write_rfc1123(datetime.now(UTC)))]
    signature = client.authorization("DELETE", path, "", headers)
    head = "".join(f"{name}: {value}\r\n" for name, value in [*headers, ("Authorization", signature)])
    client.send_bytes(f"DELETE {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))
    assert client.read().status in (400, 403, 404)
    assert second.request("GET", "/orders", "comp=metadata").status == 200


# Bodies


def place_of(reply):
    """That the message says where in the document the problem is."""
    text = reply.text("Message")
    return "at line " in text and ", column " in text


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(TEXT % b"x"),
        (TEXT % b"x").decode().encode("utf-16"),
        (TEXT % b"x").decode().encode("utf-16-be"),
        b"<?xml version='1.0' encoding='utf-16'?>" + TEXT % b"x",
        b"<?xml version='1.0' encoding='utf-7'?>" + TEXT % b"x",
        b"<!DOCTYPE a [" + b"<!ENTITY a 'aaaaaaaaaa'>" * 100 + b"]>" + TEXT % b"&a;",
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'>" + TEXT % b"x",
        b"<QueueMessage>" + b"<b/>" * 200_000 + b"</QueueMessage>",
        b"<a>" * 100_000 + b"</a>" * 100_000,
        TEXT % b"\x00",
        TEXT % b"\xff",
        TEXT % b"\xed\xa0\x80",
        TEXT % "\uffff".encode(),
        TEXT % b"&#xFFFE;",
        (TEXT % b"x")[:-1],
        TEXT % b"x" + b"<a/>",
        b" " * 1000,
        b"{}",
    ],
    ids=range(18),
)
def test_a_body_that_is_no_document_is_refused_with_line_and_column(usable, body):
    put = queue_storage.peek(EntityAddress(usable.account, "orders"), 1)[0]
    for method, path, query in (
        ("POST", "/orders/messages", ""),
        ("PUT", f"/orders/messages/{put.message_id}", "popreceipt=x&visibilitytimeout=0"),
        ("PUT", "/", "restype=service&comp=properties"),
        ("PUT", "/orders", "comp=acl"),
    ):
        reply = usable.request(method, path, query, body)
        if reply.status == 413:
            assert refused(reply, 413, "RequestBodyTooLarge")["MaxLimit"]
        else:
            refused(reply, 400, "InvalidXmlDocument")
            assert place_of(reply) or "character" in reply.text("Message"), reply


@pytest.mark.parametrize("body", [b"\xef\xbb\xbf" + TEXT % b"x", TEXT % b"<![CDATA[x]]>", b"<?a b?><!-- c -->" + TEXT % b"x"])
def test_unusual_documents_are_read(client, orders, body):
    assert client.request("POST", "/orders/messages", body=body).status == 201
    assert [message.text for message in queue_storage.peek(orders)] == ["x"]


def chunked(client, body, size):
    path, headers = f"/{client.account}/orders/messages", [("Host", "127.0.0.1"), ("Transfer-Encoding", "chunked")]
    headers.append(("x-ms-date", write_rfc1123(datetime.now(UTC))))
    headers.append(("Authorization", client.authorization("POST", path, "", headers)))
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    encoded = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return client.send("POST", path, headers, encoded)


def test_a_chunked_body_has_the_same_limits(client, orders):
    assert chunked(client, TEXT % b"x", 1).status == 201
    refused(chunked(client, TEXT % (b"x" * 65_537), 4096), 413, "RequestBodyTooLarge")
    refused(chunked(client, TEXT % (b"x" * MEGABYTE), 65_536), 413, "RequestBodyTooLarge")
    refused(chunked(client, b"<a>" * 100_000, 65_536), 400, "InvalidXmlDocument")
    assert client.request("GET", "/orders", "comp=metadata").status == 200


def test_a_body_far_beyond_the_limit_is_refused_before_it_is_read(client, orders):
    """What the client still sends is discarded, and the connection stays."""
    reply = client.request("POST", "/orders/messages", body=TEXT % (b"x" * 20 * MEGABYTE))
    assert refused(reply, 413, "RequestBodyTooLarge")["MaxLimit"]
    assert client.request("POST", "/orders/messages", body=TEXT % b"next").status == 201


def test_a_body_that_ends_early_changes_nothing(client, orders, second):
    path, body = f"/{client.account}/orders/messages", TEXT % b"x"
    headers = [("Host", "127.0.0.1"), ("Content-Length", str(len(body) + 1)), ("x-ms-date", write_rfc1123(datetime.now(UTC)))]
    headers.append(("Authorization", client.authorization("POST", path, "", headers)))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    client.send_bytes(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    client.close()
    assert second.request("GET", "/orders", "comp=metadata").headers["x-ms-approximate-messages-count"] == "0"


def resident(pid):
    """Bytes of a process in memory."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_hostile_bodies_leave_memory_flat(listener_process):
    queue_storage.create_account("flat")
    key = accounts.get_keys("flat").primary_key
    bodies = [
        b"<a>" * 300_000,
        b"<a>" + b"<b/>" * 250_000,
        b"<a>" + b"<b/>" * 1_000_000 + b"</a>",
        TEXT % (b"x" * 8 * MEGABYTE),
        b"<a b='" + b"x" * 1_000_000,
        b"<" + b"a" * 1_000_000,
    ]
    with closing(Client(listener_process.port(), "flat", key)) as client:

        def attack(rounds):
            for body in bodies * rounds:
                assert client.request("POST", "/orders/messages", body=body).status in (400, 413)

        attack(3)
        before = resident(listener_process.pid)
        attack(5)
        assert resident(listener_process.pid) - before < 16 * MEGABYTE


# Numbers

ODD_NUMBERS = [
    "1.0",
    "+5",
    "%EF%BC%95",
    "9223372036854775808",
    "-9223372036854775809",
    "-1",
    "5e3",
    "0x5",
    "5_0",
    "%205",
    "NaN",
    "%D9%A5",
]


@pytest.mark.parametrize(
    ("method", "path", "query", "name"),
    [
        ("GET", "/", "comp=list&maxresults=%s", "maxresults"),
        ("GET", "/orders/messages", "numofmessages=%s", "numofmessages"),
        ("GET", "/orders/messages", "peekonly=true&numofmessages=%s", "numofmessages"),
        ("GET", "/orders/messages", "visibilitytimeout=%s", "visibilitytimeout"),
        ("POST", "/orders/messages", "visibilitytimeout=%s", "visibilitytimeout"),
        ("PUT", "/orders/messages/1", "popreceipt=x&visibilitytimeout=%s", "visibilitytimeout"),
    ],
)
@pytest.mark.parametrize("value", ODD_NUMBERS)
def test_an_odd_number_is_refused_with_its_name_value_and_range(usable, method, path, query, name, value):
    reply = usable.request(method, path, query % value, TEXT % b"x" if method == "POST" else b"")
    code = reply.code
    details = refused(reply, 400, code)
    assert details["QueryParameterName"] == name and details["QueryParameterValue"]
    if code == "OutOfRangeQueryParameterValue":
        assert int(details["MinimumAllowed"]) < int(details["MaximumAllowed"])
    else:
        assert code == "InvalidQueryParameterValue" and details["Reason"].startswith("must be")


@pytest.mark.parametrize("value", [*ODD_NUMBERS[:3], *ODD_NUMBERS[4:], "0"])
def test_an_odd_timeout_is_refused(usable, value):
    """QS-918. It is not used, so a large one is one."""
    details = refused(usable.request("GET", "/orders/messages", f"timeout={value}"), 400, "InvalidQueryParameterValue")
    assert details["QueryParameterName"] == "timeout" and details["Reason"].startswith("must be")


# Races


def outcome(reply):
    return (reply.status, reply.code)


def test_of_two_creates_one_creates(client, second):
    for number in range(ROUNDS):
        for different, other in ((False, (204, "")), (True, (409, "QueueAlreadyExists"))):
            path = f"/q-{number}-{different}".lower()
            headers = [[("x-ms-meta-a", "1")], [("x-ms-meta-a", "2" if different else "1")]]
            found = at_once(
                *(lambda c=c, h=h: c.request("PUT", path, headers=h) for c, h in zip((client, second), headers, strict=True))
            )
            assert sorted(map(outcome, found)) == sorted([(201, ""), other])


def test_a_delete_against_a_put(client, second, orders):
    for _ in range(ROUNDS):
        put, deleted = at_once(
            lambda: client.request("POST", "/orders/messages", body=TEXT % b"x"), lambda: second.request("DELETE", "/orders")
        )
        assert outcome(put) in ((201, ""), (404, "QueueNotFound")) and outcome(deleted) == (204, "")
        assert client.request("PUT", "/orders").status == 201
        assert queue_storage.approximate_count(orders) == 0


def test_of_two_deletes_one_deletes(client, second, orders):
    for _ in range(ROUNDS):
        found = at_once(*(lambda c=c: c.request("DELETE", "/orders") for c in (client, second)))
        assert sorted(map(outcome, found)) == [(204, ""), (404, "QueueNotFound")]
        assert client.request("PUT", "/orders").status == 201


def test_of_two_updates_with_one_receipt_one_updates(client, second, orders):
    for _ in range(ROUNDS):
        put = client.request("POST", "/orders/messages", "visibilitytimeout=60", TEXT % b"x")
        path, receipt = (
            f"/orders/messages/{put.text('QueueMessage/MessageId')}",
            quote(put.text("QueueMessage/PopReceipt"), safe=""),
        )
        found = at_once(
            *(
                lambda c=c, text=text: c.request("PUT", path, f"popreceipt={receipt}&visibilitytimeout=0", TEXT % text)
                for c, text in ((client, b"first"), (second, b"second"))
            )
        )
        assert sorted(map(outcome, found)) == [(204, ""), (400, "PopReceiptMismatch")]
        [message] = queue_storage.get(orders, 5)
        assert message.text == ("first" if found[0].status == 204 else "second")
        queue_storage.delete(orders, message.message_id, message.pop_receipt)


def test_an_update_against_a_delete_of_the_message(client, second, orders):
    for _ in range(ROUNDS):
        put = client.request("POST", "/orders/messages", body=TEXT % b"x")
        path, receipt = (
            f"/orders/messages/{put.text('QueueMessage/MessageId')}",
            quote(put.text("QueueMessage/PopReceipt"), safe=""),
        )
        updated, deleted = at_once(
            lambda: client.request("PUT", path, f"popreceipt={receipt}&visibilitytimeout=0"),
            lambda: second.request("DELETE", path, f"popreceipt={receipt}"),
        )
        assert (outcome(updated), outcome(deleted)) in (
            ((204, ""), (400, "PopReceiptMismatch")),
            ((404, "MessageNotFound"), (204, "")),
        )
        queue_storage.clear(orders)


def test_a_message_is_got_by_one_of_two(client, second, orders):
    for _ in range(ROUNDS):
        queue_storage.put(orders, "x")
        found = at_once(*(lambda c=c: c.request("GET", "/orders/messages") for c in (client, second)))
        assert sorted(len(list(reply.root)) for reply in found) == [0, 1]


# Others beside an attacked connection


def test_a_connection_beside_attacked_ones_is_served(client, orders, port):
    """Unfinished heads and bodies, and answers that nobody reads, hold no other request."""
    path = f"/{client.account}/orders/messages"
    unread = f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 2000
    attacks = [
        b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n".encode() + b"<a>" * 100_000,
        f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n".encode() + b"x" * 1000,
        unread,
    ]
    attackers = [Client(port, client.account, client.key) for _ in attacks for _ in range(3)]
    with suppress(TimeoutError):
        for attacker, attack in zip(attackers, attacks * 3, strict=True):
            attacker._socket.settimeout(0.5)
            attacker.send_bytes(attack)
    for _ in range(20):
        assert client.request("POST", "/orders/messages", body=TEXT % b"x").status == 201
    for attacker in attackers:
        attacker.close()
    assert queue_storage.approximate_count(orders) == 20
