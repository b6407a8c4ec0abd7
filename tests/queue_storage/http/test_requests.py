"""Each operation of the REST API as bytes: status, headers, and the elements of bodies in their order (QS, section 3)."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from broker_core import namespaces, queue_storage, reads
from broker_core.common.actors import parsed
from broker_core.common.types import EntityAddress, EntityStatus, EventKind
from broker_core.queue_storage import accounts, http
from broker_core.queue_storage.http.answers import read_receipt, receipt_text
from broker_core.queue_storage.rules import sas, shared_key
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import CorsRule
from broker_core.queue_storage.rules.shared_key import PUBLISHED_KEY
from broker_core.reads import EntityFilter, EventFilter, LockFilter
from broker_core.wire.failed_authentications import FailedAuthentications
from tests.fixtures import fresh_room_check  # noqa: F401 - a fixture

RECEIVED = EventKind.RECEIVED
TEXT = b"<QueueMessage><MessageText>%s</MessageText></QueueMessage>"
DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


@pytest.fixture
def orders(client, account):
    """The address of a queue."""
    assert client.request("PUT", "/orders").status == 201
    return EntityAddress(account, "orders")


def names(element):
    return [child.tag for child in element]


def refused(reply, status, code):
    """Check an error's form; returns its extra elements."""
    assert (reply.status, reply.code, reply.text("Code")) == (status, code, code), reply
    lines = reply.text("Message").split("\n")
    assert lines[-2] == f"RequestId:{reply.headers['x-ms-request-id']}"
    assert re.fullmatch(r"Time:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z", lines[-1])
    return {child.tag: child.text for child in reply.root if child.tag not in ("Code", "Message")}


# Queues


def test_create_delete_and_create_again(client):
    assert client.request("PUT", "/orders", headers=[("x-ms-meta-Team", "a")]).status == 201
    assert client.request("PUT", "/orders", headers=[("x-ms-meta-team", "a")]).status == 204
    refused(client.request("PUT", "/orders"), 409, "QueueAlreadyExists")
    assert client.request("DELETE", "/orders").status == 204
    refused(client.request("DELETE", "/orders"), 404, "QueueNotFound")
    assert client.request("PUT", "/orders").status == 201  # QS-907


def test_metadata_is_read_and_replaced(client, orders):
    meta = [("x-ms-meta-team", "a"), ("x-ms-meta", "{'team': 'a'}"), ("x-ms-meta-b_c", " d ")]
    assert client.request("PUT", "/orders", "comp=metadata", headers=meta).status == 204
    queue_storage.put(orders, "x")
    for method in ("GET", "HEAD"):
        reply = client.request(method, "/orders", "comp=metadata")
        assert reply.status == 200
        assert (reply.headers["x-ms-meta-team"], reply.headers["x-ms-meta-b_c"]) == ("a", "d")
        assert reply.headers["x-ms-approximate-messages-count"] == "1"
        assert reply.body == b""
    assert client.request("PUT", "/orders", "comp=metadata").status == 204
    assert not queue_storage.get_queue(orders).metadata


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([("x-ms-meta-1a", "x")], "InvalidMetadata"),
        ([("x-ms-meta-a", "x"), ("x-ms-meta-A", "y")], "InvalidMetadata"),
        ([("x-ms-meta-", "x")], "EmptyMetadataKey"),
        ([("x-ms-meta-a", "x" * 8_192)], "MetadataTooLarge"),
    ],
)
def test_metadata_that_is_refused(client, orders, headers, code):
    refused(client.request("PUT", "/orders", "comp=metadata", headers=headers), 400, code)
    refused(client.request("PUT", "/another", headers=headers), 400, code)


def test_access_policies_are_returned_as_they_were_set(client, orders):
    """QS-095."""
    body = (
        b"<?xml version='1.0' encoding='utf-8'?><SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy>"
        b"<Start>2026-11-21T02:55:46.1234567Z</Start><Expiry>2026-11-22</Expiry><Permission>r</Permission></AccessPolicy>"
        b"</SignedIdentifier><SignedIdentifier><Id>none</Id></SignedIdentifier></SignedIdentifiers>"
    )
    assert client.request("PUT", "/orders", "comp=acl", body).status == 204
    reply = client.request("GET", "/orders", "comp=acl")
    assert reply.body.partition(b"?>")[2] == body.partition(b"?>")[2]
    head = client.request("HEAD", "/orders", "comp=acl")
    assert (head.status, head.body, head.headers["content-type"]) == (200, b"", "application/xml")
    assert client.request("PUT", "/orders", "comp=acl", b"<SignedIdentifiers />").status == 204
    assert queue_storage.get_queue(orders).access_policies == ()


@pytest.mark.parametrize(
    "identifiers",
    [
        "<SignedIdentifier><Id>a</Id></SignedIdentifier>" * 2,
        "".join(f"<SignedIdentifier><Id>{i}</Id></SignedIdentifier>" for i in range(6)),
        "<SignedIdentifier><Id></Id></SignedIdentifier>",
        f"<SignedIdentifier><Id>{'a' * 65}</Id></SignedIdentifier>",
        "<SignedIdentifier></SignedIdentifier>",
        "<Identifier><Id>a</Id></Identifier>",
        "<SignedIdentifier><Id>a</Id><AccessPolicy><Permission>x</Permission></AccessPolicy></SignedIdentifier>",
        "<SignedIdentifier><Id>a</Id><AccessPolicy><Expiry>soon</Expiry></AccessPolicy></SignedIdentifier>",
    ],
)
def test_access_policies_that_a_queue_cannot_have(client, orders, identifiers):
    """QS-095."""
    body = f"<SignedIdentifiers>{identifiers}</SignedIdentifiers>".encode()
    refused(client.request("PUT", "/orders", "comp=acl", body), 400, "InvalidXmlDocument")


# The service


def test_queues_are_listed_by_page(client):
    """QS-091. The marker leads past what was listed, whatever was created or deleted before it."""
    for name in ("b-2", "a-1", "b-10", "b-1"):
        client.request("PUT", f"/{name}", headers=[("x-ms-meta-n", name)])
    reply = client.request("GET", "/", "comp=list&prefix=b&maxresults=2&include=metadata")
    assert names(reply.root) == ["Prefix", "MaxResults", "Queues", "NextMarker"]
    assert reply.root.get("ServiceEndpoint") == f"http://127.0.0.1:{client.port}/{client.account}/"
    assert [one.text for one in reply.root.iter("Name")] == ["b-1", "b-10"]
    assert [one.text for one in reply.root.iter("n")] == ["b-1", "b-10"]
    client.request("DELETE", "/b-1")
    rest = client.request("GET", "", f"comp=list&prefix=b&marker={reply.text('NextMarker')}")
    assert names(rest.root) == ["Prefix", "Marker", "MaxResults", "Queues", "NextMarker"]
    assert [one.text for one in rest.root.iter("Name")] == ["b-2"]
    assert not rest.text("NextMarker")
    assert not list(rest.root.iter("Metadata"))


def test_a_prefix_that_xml_cannot_hold_is_none_of_a_queue(client, orders):
    listed = client.request("GET", "/", "comp=list&prefix=%01%EF%BF%BF")
    assert (listed.status, listed.text("Prefix"), list(listed.root.iter("Queue"))) == (200, "\ufffd\ufffd", [])


def test_properties_replace_only_the_parts_that_are_sent(client):
    first = client.request("GET", "/", "restype=service&comp=properties")
    assert names(first.root) == ["Logging", "HourMetrics", "MinuteMetrics", "Cors"]
    cors = (
        b"<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>http://a, http://b</AllowedOrigins><AllowedMethods>GET"
        b"</AllowedMethods><AllowedHeaders /><ExposedHeaders>x-ms-*</ExposedHeaders><MaxAgeInSeconds>5</MaxAgeInSeconds>"
        b"</CorsRule></Cors></StorageServiceProperties>"
    )
    metrics = (
        b"<StorageServiceProperties><HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>false</IncludeAPIs>"
        b"<RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></HourMetrics></StorageServiceProperties>"
    )
    for body in (cors, metrics):
        assert client.request("PUT", "/", "restype=service&comp=properties", body).status == 202
    root = client.request("GET", "/", "restype=service&comp=properties").root
    assert names(root.find("Cors/CorsRule")) == [
        "AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposedHeaders", "MaxAgeInSeconds"
    ]  # fmt: skip
    assert root.findtext("Cors/CorsRule/AllowedOrigins") == "http://a,http://b"
    assert names(root.find("HourMetrics")) == ["Version", "Enabled", "IncludeAPIs", "RetentionPolicy"]
    assert root.findtext("HourMetrics/RetentionPolicy/Days") == "7"
    assert root.findtext("MinuteMetrics/Enabled") == "false"


@pytest.mark.parametrize(
    "part",
    [
        "<Speed />",
        "<Cors><CorsRule><AllowedMethods>GET</AllowedMethods><MaxAgeInSeconds>1</MaxAgeInSeconds></CorsRule></Cors>",
        "<Cors><CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>TRACE</AllowedMethods><MaxAgeInSeconds>1"
        "</MaxAgeInSeconds></CorsRule></Cors>",
        "<Cors>" + "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods><MaxAgeInSeconds>1"
        "</MaxAgeInSeconds></CorsRule>" * 6 + "</Cors>",
        "<Logging><Version>1.0</Version><Delete>yes</Delete><Read>true</Read><Write>true</Write></Logging>",
        "<Logging><Version>1.0</Version><Delete>true</Delete><Read>true</Read><Write>true</Write><RetentionPolicy><Enabled>true"
        "</Enabled><Days>366</Days></RetentionPolicy></Logging>",
        "<HourMetrics><Version>1.0</Version></HourMetrics>",
    ],
)
def test_properties_that_a_service_cannot_have(client, part):
    body = f"<StorageServiceProperties>{part}</StorageServiceProperties>".encode()
    refused(client.request("PUT", "/", "restype=service&comp=properties", body), 400, "InvalidXmlDocument")


def test_stats_are_only_at_the_secondary(client):
    reply = client.request("GET", query="restype=service&comp=stats", whole_path=f"/{client.account}-secondary/")
    assert reply.text("GeoReplication/Status") == "live"
    assert DATE.fullmatch(reply.text("GeoReplication/LastSyncTime"))
    details = refused(client.request("GET", "/", "restype=service&comp=stats"), 400, "InvalidQueryParameterValue")
    assert details["QueryParameterName"] == "comp"


def test_the_secondary_is_read_only(client, orders):
    secondary = f"/{client.account}-secondary/orders"
    assert client.request("GET", query="comp=metadata", whole_path=secondary).status == 200
    assert client.request("GET", query="peekonly=true", whole_path=f"{secondary}/messages").status == 200
    for method, path in (("PUT", "/new-queue"), ("GET", "/orders/messages")):
        reply = client.request(method, whole_path=f"/{client.account}-secondary{path}")
        refused(reply, 403, "InsufficientAccountPermissions")
        assert "Use the primary endpoint" in reply.text("Message")


# Messages


def test_a_message_is_put_received_updated_and_deleted(client, orders):
    put = client.request("POST", "/orders/messages", "visibilitytimeout=0&messagettl=60", TEXT % "h\u00e9 &lt;&#xD;".encode())
    assert put.status == 201
    fields = ["MessageId", "InsertionTime", "ExpirationTime", "PopReceipt", "TimeNextVisible"]
    assert names(put.root[0]) == fields
    peeked = client.request("GET", "/orders/messages", "peekonly=true")
    assert names(peeked.root[0]) == ["MessageId", "InsertionTime", "ExpirationTime", "DequeueCount", "MessageText"]
    got = client.request("GET", "/orders/messages", "numofmessages=32&visibilitytimeout=60")
    assert names(got.root[0]) == [*fields, "DequeueCount", "MessageText"]
    message = {child.tag: child.text for child in got.root[0]}
    assert (message["DequeueCount"], message["MessageText"]) == ("1", "h\u00e9 <\r")
    assert all(DATE.fullmatch(message[name]) for name in ("InsertionTime", "ExpirationTime", "TimeNextVisible"))
    path, receipt = f"/orders/messages/{message['MessageId']}", message["PopReceipt"]
    updated = client.request("PUT", path, f"popreceipt={quote(receipt)}&visibilitytimeout=0", TEXT % b"new")
    assert (updated.status, updated.body) == (204, b"")
    assert DATE.fullmatch(updated.headers["x-ms-time-next-visible"])
    refused(client.request("DELETE", path, f"popreceipt={quote(receipt)}"), 400, "PopReceiptMismatch")
    again = client.request("PUT", path, f"popreceipt={quote(updated.headers['x-ms-popreceipt'])}&visibilitytimeout=0")
    [only] = queue_storage.peek(orders)
    assert only.text == "new"  # without a body, the text stays (QS-047)
    assert client.request("DELETE", path, f"popreceipt={quote(again.headers['x-ms-popreceipt'])}").status == 204
    refused(client.request("DELETE", path, f"popreceipt={quote(receipt)}"), 404, "MessageNotFound")
    empty = client.request("GET", "/orders/messages")
    assert (empty.status, empty.body) == (200, b'<?xml version="1.0" encoding="utf-8"?><QueueMessagesList />')


def quote(receipt):
    from urllib.parse import quote

    return quote(receipt, safe="")


def test_a_message_may_live_for_ever(client, orders):
    for life in ("-1", "9223372036854775807"):
        put = client.request("POST", "/orders/messages", f"messagettl={life}", TEXT % b"x")
        assert put.text("QueueMessage/ExpirationTime") == "Fri, 31 Dec 9999 23:59:59 GMT"


def test_clear_removes_all_messages(client, orders):
    queue_storage.put_all(orders, ["a", "b"])
    queue_storage.get(orders)
    assert client.request("DELETE", "/orders/messages").status == 204
    assert queue_storage.approximate_count(orders) == 0


def test_text_that_other_front_ends_stored_is_readable_xml(client, orders):
    """QS-913."""
    from broker_core.store import connections

    queue_storage.put(orders, "ab")
    connections.current().execute("UPDATE vitrine_message SET body = %s", [b"a\x00\xffb"])
    assert client.request("GET", "/orders/messages", "peekonly=true").text("QueueMessage/MessageText") == "a\ufffd\ufffdb"


def test_a_paused_queue(client, orders):
    """QS-926."""
    queue_storage.set_status(orders, EntityStatus.DISABLED)
    refused(client.request("POST", "/orders/messages", body=TEXT % b"x"), 409, "QueueDisabled")
    refused(client.request("GET", "/orders/messages"), 409, "QueueDisabled")


def test_a_protected_queue_is_not_deleted(client, orders):
    namespaces.set_protected(orders, True)
    refused(client.request("DELETE", "/orders"), 409, "QueueProtected")
    assert client.request("DELETE", "/orders/messages").status == 204


@pytest.mark.usefixtures("fresh_room_check")
def test_a_full_account_refuses_puts(client, orders):
    queue_storage.put_all(orders, ["x" * 60_000] * 20)
    namespaces.update_namespace(client.account, max_size_in_megabytes=1)
    refused(client.request("POST", "/orders/messages", body=TEXT % b"x"), 403, "QuotaExceeded")
    assert client.request("GET", "/orders/messages").status == 200


def test_a_receipt_is_opaque_and_read_back():
    from uuid import uuid4

    receipt = uuid4()
    assert read_receipt(receipt_text(receipt)) == receipt
    assert read_receipt("no receipt") == "no receipt"
    assert read_receipt("\u00e9") == "\u00e9"


# Headers


def test_each_answer_has_the_headers_of_the_service(client):
    given = [("x-ms-version", "2026-10-06"), ("x-ms-client-request-id", "mine")]
    for reply in (
        client.request("PUT", "/orders", headers=given),
        client.request("GET", "/none", "comp=metadata", headers=given),
    ):
        assert re.fullmatch("[0-9a-f-]{36}", reply.headers["x-ms-request-id"])
        assert reply.headers["server"] == "Vitrine"
        assert (reply.headers["x-ms-version"], reply.headers["x-ms-client-request-id"]) == ("2026-10-06", "mine")
        assert DATE.fullmatch(reply.headers["date"])
    assert client.request("GET", "/", "comp=list").headers["x-ms-version"] == "2021-12-02"


def test_a_malformed_version_is_refused(client):
    """QS-906."""
    reply = client.request("GET", "/", "comp=list", headers=[("x-ms-version", "newest")])
    assert refused(reply, 400, "InvalidHeaderValue") == {"HeaderName": "x-ms-version", "HeaderValue": "newest"}
    assert "x-ms-version: 'newest' must be a date such as" in reply.text("Message")


# Bad input


@pytest.mark.parametrize(
    ("query", "code", "details"),
    [
        ("numofmessages=33", "OutOfRangeQueryParameterValue", {"MinimumAllowed": "1", "MaximumAllowed": "32"}),
        ("numofmessages=0", "OutOfRangeQueryParameterValue", {"QueryParameterName": "numofmessages", "QueryParameterValue": "0"}),
        ("numofmessages=-1", "OutOfRangeQueryParameterValue", {}),
        ("numofmessages=1.0", "InvalidQueryParameterValue", {"QueryParameterValue": "1.0"}),
        ("numofmessages=+5", "InvalidQueryParameterValue", {"QueryParameterValue": "+5"}),
        ("numofmessages=%EF%BC%91", "InvalidQueryParameterValue", {}),
        ("numofmessages=9223372036854775808", "OutOfRangeQueryParameterValue", {}),
        (f"numofmessages={'9' * 5000}", "InvalidQueryParameterValue", {}),
        ("numofmessages=%ff", "InvalidQueryParameterValue", {"Reason": "is not UTF-8"}),
        ("visibilitytimeout=0", "OutOfRangeQueryParameterValue", {"MinimumAllowed": "1", "MaximumAllowed": "604800"}),
        ("visibilitytimeout=604801", "OutOfRangeQueryParameterValue", {}),
        ("peekonly=maybe", "InvalidQueryParameterValue", {"QueryParameterName": "peekonly"}),
        ("timeout=0", "InvalidQueryParameterValue", {"QueryParameterName": "timeout"}),
        ("comp=Metadata", "InvalidQueryParameterValue", {"QueryParameterName": "comp"}),
        ("restype=service", "InvalidQueryParameterValue", {"QueryParameterName": "restype"}),
    ],
)
def test_odd_parameters_are_refused(client, orders, query, code, details):
    queue_storage.put(orders, "x")
    given = refused(client.request("GET", "/orders/messages", query), 400, code)
    assert given.items() >= details.items()
    assert [message.dequeue_count for message in queue_storage.peek(orders)] == [0]


@pytest.mark.parametrize("query", ["PeekOnly=true", "PEEKONLY=TRUE&unknown=x", "peekonly=true&numofmessages="])
def test_names_of_parameters_have_no_case_and_unknown_ones_are_ignored(client, orders, query):
    queue_storage.put(orders, "x")
    assert client.request("GET", "/orders/messages", query).text("QueueMessage/DequeueCount") == "0"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("messagettl=0", "InvalidQueryParameterValue"),
        ("messagettl=-2", "InvalidQueryParameterValue"),
        ("messagettl=soon", "InvalidQueryParameterValue"),
        ("messagettl=5&visibilitytimeout=5", "InvalidQueryParameterValue"),
        ("visibilitytimeout=-1", "OutOfRangeQueryParameterValue"),
    ],
)
def test_odd_lives_are_refused(client, orders, query, code):
    refused(client.request("POST", "/orders/messages", query, TEXT % b"x"), 400, code)
    assert queue_storage.approximate_count(orders) == 0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "InvalidXmlDocument"),
        (b"<QueueMessage/>", 400, "InvalidXmlDocument"),
        (b"<QueueMessage><MessageText><b>x</b></MessageText></QueueMessage>", 400, "InvalidXmlDocument"),
        (TEXT % b"\x01", 400, "InvalidXmlDocument"),
        (TEXT % "\ufffe".encode(), 400, "InvalidXmlDocument"),
        (TEXT % b"&#0;", 400, "InvalidXmlDocument"),
        (b"<!DOCTYPE a>" + TEXT % b"x", 400, "InvalidXmlDocument"),
        (b"\x1f\x8b\x08\x00", 400, "InvalidXmlDocument"),
        (TEXT[:20], 400, "InvalidXmlDocument"),
        (b"<a>" * 100_000, 400, "InvalidXmlDocument"),
        (TEXT % (b"x" * 65_537), 413, "RequestBodyTooLarge"),
        (TEXT % (b"x" * 1_100_000), 413, "RequestBodyTooLarge"),
    ],
)
def test_odd_bodies_are_refused_and_the_connection_stays(client, orders, body, status, code):
    details = refused(client.request("POST", "/orders/messages", body=body), status, code)
    assert ("MaxLimit" in details) is (status == 413)
    assert client.request("POST", "/orders/messages", body=TEXT % b"next").status == 201
    assert [message.text for message in queue_storage.peek(orders, 5)] == ["next"]


@pytest.mark.parametrize("text", [b"", b"  ", b"<![CDATA[<x>]]>", b"x" * 65_536, b"&lt;" * 65_536])
def test_bodies_at_the_limits_are_stored(client, orders, text):
    assert client.request("POST", "/orders/messages", body=TEXT % text).status == 201


@pytest.mark.parametrize(
    "body", [b"<a><MessageText>x</MessageText></a>", b"<QueueMessage><messagetext>x</messagetext></QueueMessage>"]
)
def test_names_in_the_document_of_a_message(client, orders, body):
    """QS-013."""
    assert client.request("POST", "/orders/messages", body=body).status == 201
    assert [message.text for message in queue_storage.peek(orders)] == ["x"]


def test_line_ends_are_read_as_xml_says(client, orders):
    """QS-F03: a carriage return is kept only as a reference, as which answers have it."""
    assert client.request("POST", "/orders/messages", body=TEXT % b"a\r\nb\rc&#13;&#xA;d").status == 201
    assert [message.text for message in queue_storage.peek(orders)] == ["a\nb\nc\r\nd"]
    assert b"c&#xD;\nd" in client.request("GET", "/orders/messages", "peekonly=true").body


def test_a_document_may_begin_with_a_byte_order_mark(client, orders):
    body = "<QueueMessage><MessageText>h\u00e9</MessageText></QueueMessage>".encode("utf-8-sig")
    assert client.request("POST", "/orders/messages", body=body).status == 201
    assert [message.text for message in queue_storage.peek(orders)] == ["h\u00e9"]


def test_a_peek_is_asked_for_by_a_parameter(client, orders):
    """QS-039."""
    queue_storage.put(orders, "x")
    counts = [
        client.request("GET", "/orders/messages", query).text("QueueMessage/DequeueCount")
        for query in ("peekonly=true", "peekonly=true", "peekonly=false")
    ]
    assert counts == ["0", "0", "1"]
    assert not list(client.request("GET", "/orders/messages").root)  # it is leased


def test_a_missing_queue_is_the_last_thing_that_is_refused(client):
    """QS-012."""
    refused(client.request("POST", "/none/messages", "messagettl=0", TEXT % b"x"), 400, "InvalidQueryParameterValue")
    refused(client.request("POST", "/none/messages", body=b"<a/>"), 400, "InvalidXmlDocument")
    refused(client.request("POST", "/none/messages", body=TEXT % b"x"), 404, "QueueNotFound")
    refused(client.request("GET", "/none/messages"), 404, "QueueNotFound")


def test_of_several_errors_that_of_the_text_is_reported_first(client, orders):
    """QS-F01: then the visibility timeout, then the rest."""
    large, message = TEXT % (b"x" * 65_537), queue_storage.put(orders, "x")
    refused(client.request("POST", "/orders/messages", "visibilitytimeout=-1&messagettl=0", large), 413, "RequestBodyTooLarge")
    path = f"/orders/messages/{message.message_id}"
    refused(client.request("PUT", path, "popreceipt=x&visibilitytimeout=-1", large), 413, "RequestBodyTooLarge")
    for method, query in (("POST", "messagettl=0&visibilitytimeout=-1"), ("GET", "numofmessages=0&visibilitytimeout=-1")):
        body = TEXT % b"x" if method == "POST" else b""
        details = refused(client.request(method, "/orders/messages", query, body), 400, "OutOfRangeQueryParameterValue")
        assert details["QueryParameterName"] == "visibilitytimeout"


def test_update_and_delete_need_their_parameters(client, orders):
    """QS-054."""
    put = queue_storage.put(orders, "x")
    path = f"/orders/messages/{put.message_id}"
    for method, query, missing in (
        ("PUT", "visibilitytimeout=0", "popreceipt"),
        ("PUT", "popreceipt=x", "visibilitytimeout"),
        ("DELETE", "", "popreceipt"),
    ):
        details = refused(client.request(method, path, query), 400, "MissingRequiredQueryParameter")
        assert details == {"QueryParameterName": missing}


@pytest.mark.parametrize(
    ("method", "path", "query", "status", "code"),
    [
        ("PATCH", "/orders", "", 405, "UnsupportedHttpVerb"),
        ("POST", "/orders", "", 405, "UnsupportedHttpVerb"),
        ("GET", "/orders", "", 405, "UnsupportedHttpVerb"),
        ("GET", "/", "", 400, "InvalidQueryParameterValue"),
        ("GET", "/orders", "comp=x", 400, "InvalidQueryParameterValue"),
        ("GET", "/orders/x/y", "", 404, "ResourceNotFound"),
        ("PUT", "/Orders", "", 400, "InvalidResourceName"),
        ("PUT", "/ab", "", 400, "OutOfRangeInput"),
        ("GET", "/", "comp=list&maxresults=0", 400, "OutOfRangeQueryParameterValue"),
        ("GET", "/", "comp=list&marker=!", 400, "InvalidMarker"),
        ("GET", "/", "comp=list&marker=AA==", 400, "InvalidMarker"),
        ("GET", "/", "comp=list&prefix=%00", 400, "InvalidQueryParameterValue"),
        ("GET", "/", "comp=list&include=x", 400, "InvalidQueryParameterValue"),
    ],
)
def test_odd_requests_are_refused(client, orders, method, path, query, status, code):
    refused(client.request(method, path, query), status, code)
    assert client.request("GET", "/orders", "comp=metadata").status == 200


def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(client, orders):
    assert client.request("POST", "/orders", "comp=acl").headers["allow"] == "GET, HEAD, PUT"
    assert client.request("PATCH", "/orders", "comp=x").headers["allow"] == "GET, HEAD, PUT, POST, DELETE, OPTIONS"


def test_a_refused_head_has_the_code_in_its_headers_only(client):
    reply = client.request("HEAD", "/none", "comp=metadata")
    assert (reply.status, reply.code, reply.body) == (404, "QueueNotFound", b"")
    assert client.request("GET", "/", "comp=list").status == 200


@pytest.mark.parametrize(
    ("method", "path", "query", "message"),
    [
        ("GET", "/orders/messages", "numofmessages=1.0", "numofmessages: '1.0' must be a whole number, of at most 20 digits"),
        ("GET", "/orders/messages", "numofmessages=33", "numofmessages: 33 is out of range: 1 to 32 are allowed"),
        ("GET", "/orders/messages", "peekonly=maybe", "peekonly: 'maybe' must be true or false"),
        ("GET", "/orders/messages", "timeout=%ff", "timeout: '%ff' is not UTF-8"),
        ("POST", "/orders/messages", "messagettl=0", "messagettl: '0' must be at least one second, or -1 for never"),
        ("POST", "/orders/messages", "messagettl=5&visibilitytimeout=5", "visibilitytimeout: 5 must be less than messagettl"),
        ("GET", "/orders", "comp=x", "comp: 'x' names no operation of this URL; use comp=acl or comp=metadata"),
        ("GET", "/orders/messages", "restype=service", "restype: 'service' names no operation of this URL; use neither comp"),
        ("GET", "/", "restype=service&comp=stats", "comp: 'stats' is served by the secondary endpoint only"),
        ("OPTIONS", "/orders", "", "origin: is required in a preflight request"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_which_value(client, orders, method, path, query, message):
    reply = client.request(method, path, query, TEXT % b"x" if method == "POST" else b"")
    assert reply.status == 400 and reply.text("Message").startswith(message), reply.text("Message")


def test_an_unknown_account(client):
    refused(client.request("GET", query="comp=list", whole_path="/nobody/"), 404, "ResourceNotFound")


# Authentication


def test_a_request_without_a_signature(client, orders):
    details = refused(client.request("GET", "/orders/messages", sign=False), 403, "AuthenticationFailed")
    assert "Authorization header" in details["AuthenticationErrorDetail"]
    bearer = [("Authorization", "Bearer abc")]
    refused(client.request("GET", "/orders/messages", headers=bearer, sign=False), 403, "AuthenticationFailed")
    malformed = [("Authorization", "SharedKey x")]
    refused(client.request("GET", "/orders/messages", headers=malformed, sign=False), 400, "InvalidAuthenticationInfo")


def test_there_is_no_entra_id(client, orders):
    query, body = "restype=service&comp=userdelegationkey", b"<KeyInfo><Expiry>2026-11-22</Expiry></KeyInfo>"
    bearer = [("Authorization", "Bearer abc")]
    for reply in (client.request("POST", "/", query, body), client.request("POST", "/", query, body, bearer, sign=False)):
        details = refused(reply, 403, "AuthenticationFailed")
        assert "account key" in details["AuthenticationErrorDetail"]
    delegated = "sv=2026-02-06&skoid=x&sp=r&se=2099-01-01&sig=x"
    details = refused(client.request("GET", "/orders/messages", delegated, sign=False), 403, "AuthenticationFailed")
    assert "User delegation" in details["AuthenticationErrorDetail"]


@pytest.mark.parametrize("scheme", ["SharedKey", "SharedKeyLite"])
def test_both_schemes_and_both_keys(client, orders, scheme):
    for key in accounts.get_keys(client.account).keys:
        client.key = key
        assert client.request("PUT", "/orders", "comp=metadata", scheme=scheme).status == 204


def test_a_request_of_sixteen_minutes_ago(client, orders):
    date = datetime.now(UTC) - timedelta(minutes=16)
    details = refused(client.request("GET", "/", "comp=list", date=date), 403, "AuthenticationFailed")
    assert "clock" in details["AuthenticationErrorDetail"]


def test_a_replaced_key_is_refused_within_a_second(client, orders):
    from tests.eventually import eventually

    accounts.regenerate_key(client.account)
    eventually(lambda: client.request("GET", "/", "comp=list").status == 403, 10)


def test_a_signature_for_another_account(client, port):
    queue_storage.create_account("other")
    refused(client.request("GET", query="comp=list", whole_path="/other/"), 403, "AuthenticationFailed")


# CORS


@pytest.fixture
def cors(client):
    rules = (
        CorsRule(("http://a.example",), ("GET",), ("x-ms-*", "content-type"), ("x-ms-*",), 60),
        CorsRule(("*",), ("PUT",), ("*",), (), 5),
    )
    accounts.set_service_properties(client.account, cors=rules)


def preflight(client, origin, method, headers=""):
    asked = [("Origin", origin), ("Access-Control-Request-Method", method)]
    asked = [pair for pair in asked if pair[1]]
    more = [("Access-Control-Request-Headers", headers)] if headers else []
    return client.request("OPTIONS", "/orders", headers=[*asked, *more], sign=False)


@pytest.mark.usefixtures("cors")
def test_a_preflight(client):
    reply = preflight(client, "http://A.example", "GET", "x-ms-date, Content-Type")
    assert reply.status == 200
    allowed = {name: value for name, value in reply.headers.items() if name.startswith("access-control")}
    assert allowed == {
        "access-control-allow-origin": "http://A.example",
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": "GET",
        "access-control-allow-headers": "x-ms-date, Content-Type",
        "access-control-max-age": "60",
    }
    assert preflight(client, "http://b.example", "PUT", "anything").headers["access-control-allow-origin"] == "*"


@pytest.mark.usefixtures("cors")
@pytest.mark.parametrize(
    ("origin", "method", "headers", "status", "code"),
    [
        ("http://b.example", "GET", "", 403, "CorsPreflightFailure"),
        ("http://a.example", "DELETE", "", 403, "CorsPreflightFailure"),
        ("http://a.example", "GET", "authorization", 403, "CorsPreflightFailure"),
        ("", "GET", "", 400, "InvalidHeaderValue"),
        ("http://a.example", "", "", 400, "InvalidHeaderValue"),
    ],
)
def test_a_preflight_that_no_rule_allows(client, origin, method, headers, status, code):
    refused(preflight(client, origin, method, headers), status, code)


def test_a_rule_applies_at_once(client):
    for rules, status in (
        (
            "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>"
            "<MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule>",
            200,
        ),
        ("", 403),
    ):
        body = f"<StorageServiceProperties><Cors>{rules}</Cors></StorageServiceProperties>".encode()
        assert client.request("PUT", "/", "restype=service&comp=properties", body).status == 202
        assert preflight(client, "http://a.example", "GET").status == status


@pytest.mark.usefixtures("cors")
def test_an_answer_can_be_read_by_a_page_that_a_rule_allows(client):
    reply = client.request("GET", "/", "comp=list", headers=[("Origin", "http://a.example")])
    assert (reply.headers["access-control-allow-origin"], reply.headers["vary"]) == ("http://a.example", "Origin")
    assert "x-ms-request-id" in reply.headers["access-control-expose-headers"].split(",")
    assert "date" not in reply.headers["access-control-expose-headers"]
    other = client.request("GET", "/", "comp=list", headers=[("Origin", "http://b.example")])
    assert (other.status, other.headers["vary"]) == (200, "Origin")
    assert "access-control-allow-origin" not in other.headers


# Published keys, and failed authentications


@pytest.fixture
def developer(client, orders):
    """A client whose account has the key that everybody knows, beside one of its own."""
    accounts.set_keys(client.account, primary=PUBLISHED_KEY)
    http.authorization._cached.clear()  # instead of waiting for a second
    client.key = PUBLISHED_KEY
    return client


def signed_url(client, **changes: str) -> str:
    """The query of an account SAS for everything, made with the client's key. changes: fields that it has instead."""
    fields = {"sp": "rwdlacup", "ss": "q", "srt": "sco", "se": "2099-01-01T00:00:00Z", "sv": "2020-02-10"} | changes
    names = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv")
    lines = [client.account, *(fields.get(name, "") for name in names), ""]
    return urlencode({**fields, "sig": shared_key.sign("\n".join(lines), client.key)})


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ss": "b"}, "AuthorizationServiceMismatch"),
        ({"srt": "co"}, "AuthorizationResourceTypeMismatch"),
        ({"sp": "rwdacup"}, "AuthorizationPermissionMismatch"),
        ({"spr": "https"}, "AuthorizationProtocolMismatch"),
        ({"sip": "10.0.0.1-10.0.0.9"}, "AuthorizationSourceIPMismatch"),
        ({"ss": "bqft", "srt": "s", "sp": "l", "st": "2020-01-01", "sip": "127.0.0.0-127.0.0.9", "spr": "https,http"}, ""),
    ],
)
def test_a_signature_is_for_what_it_says(client, changes, code):
    reply = client.request("GET", "/", f"comp=list&{signed_url(client, **changes)}", sign=False)
    if code:
        refused(reply, 403, code)
    else:
        assert reply.status == 200


@pytest.mark.parametrize(
    ("limit", "code"),
    [({"sip": "10.0.0.1"}, "AuthorizationSourceIPMismatch"), ({"spr": "https"}, "AuthorizationProtocolMismatch")],
)
def test_what_a_client_says_of_its_connection_is_not_believed(client, limit, code):
    said = [("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "https")]
    refused(client.request("GET", "/", f"comp=list&{signed_url(client, **limit)}", headers=said, sign=False), 403, code)


def test_the_name_of_a_policy_is_told_from_its_client(client, orders):
    """Both are stored as one text, with an @ between them."""
    queue_storage.update_queue(orders, access_policies=(AccessPolicy("team@work 100%", None, "2099-01-01", "p"),))
    of_policy = sas.parse([("sv", "2020-02-10"), ("si", "team@work 100%"), ("sig", "-")])
    query = sas.as_query(sas.signed(of_policy, client.key, account=client.account, queue="orders"))
    queue_storage.put(orders, "x")
    assert client.request("GET", "/orders/messages", query, sign=False).status == 200
    [lock] = reads.locks(LockFilter(EntityFilter(namespace=client.account))).rows
    holder = parsed(lock.holder)
    assert (holder.name, holder.client, holder.protocol) == ("team%40work 100%25", "127.0.0.1", "http")
    received = [event.actor for event in reads.events(EventFilter()).rows if event.address == orders and event.kind is RECEIVED]
    assert [str(parsed(actor)) for actor in received] == [str(holder)]


def test_the_holder_of_a_message_is_the_account_or_its_policy_and_the_client(client, orders):
    """With an account key, an account SAS and a SAS of a stored access policy. Events and locks name the same actor."""
    queue_storage.update_queue(orders, access_policies=(AccessPolicy("workers", None, "2099-01-01", "p"),))
    of_policy = sas.parse([("sv", "2020-02-10"), ("si", "workers"), ("sig", "-")])
    of_policy = sas.as_query(sas.signed(of_policy, client.key, account=client.account, queue="orders"))
    for query in ("", signed_url(client), of_policy):
        client.request("POST", "/orders/messages", body=TEXT % b"x")
        assert client.request("GET", "/orders/messages", query, sign=not query).status == 200
    locks = reads.locks(LockFilter(EntityFilter(namespace=client.account))).rows
    names = [client.account, client.account, "workers"]
    assert sorted(lock.holder for lock in locks) == [f"http:{name}@127.0.0.1" for name in names]
    received = [event.actor for event in reads.events(EventFilter()).rows if event.address == orders and event.kind is RECEIVED]
    assert {str(parsed(actor)) for actor in received} == {f"key:{name}" for name in names}


def test_the_published_key_is_accepted_from_this_machine_without_a_date_of_now(developer):
    long_ago = datetime.now(UTC) - timedelta(days=400)
    assert developer.request("GET", "/", "comp=list", date=long_ago).status == 200  # QS-920
    assert developer.request("GET", "/", f"comp=list&{signed_url(developer)}", sign=False).status == 200


@pytest.mark.parametrize("sign", [True, False])
def test_the_published_key_is_refused_where_a_page_could_use_it(developer, sign):
    query = "comp=list" if sign else f"comp=list&{signed_url(developer)}"
    for options in ({"host": "evil.example"}, {"headers": [("Origin", "http://evil.example")]}):
        refused(developer.request("GET", "/", query, sign=sign, **options), 403, "AuthorizationFailure")
    image = [("Sec-Fetch-Site", "cross-site")]
    refused(developer.request("GET", "/orders/messages", query[10:], headers=image, sign=sign), 403, "AuthorizationFailure")
    assert developer.request("GET", "/", query, sign=sign).status == 200  # the connection and the key stay usable


def test_a_page_that_a_rule_allows_may_use_the_published_key(developer):
    accounts.set_service_properties(developer.account, cors=(CorsRule(("http://a.example",), ("GET",), ("*",), ("*",), 60),))
    http.authorization._cached.clear()
    assert developer.request("GET", "/", "comp=list", headers=[("Origin", "http://a.example")]).status == 200
    elsewhere = [("Origin", "http://b.example")]
    refused(developer.request("GET", "/", "comp=list", headers=elsewhere), 403, "AuthorizationFailure")


def test_a_key_of_the_accounts_own_has_no_such_limits(developer, settings):
    settings.WELL_KNOWN_KEYS = "off"
    refused(developer.request("GET", "/", "comp=list"), 403, "AuthorizationFailure")
    developer.key = accounts.get_keys(developer.account).secondary_key
    elsewhere = [("Origin", "http://evil.example")]
    assert developer.request("GET", "/", "comp=list", host="evil.example", headers=elsewhere).status == 200


@pytest.fixture
def counted(monkeypatch, settings):
    """Failed authentications are counted, by a clock that stands still; each waits for as many seconds as are in this list."""
    settings.FAILED_AUTHENTICATIONS, settings.FAILED_AUTHENTICATION_DELAY_SECONDS = 3, 1
    waits = []

    async def wait(seconds):
        waits.append(seconds)

    attempts = FailedAuthentications(lambda: 1000.0, wait)
    monkeypatch.setattr(http.authorization, "failed_authentications", attempts)
    return waits


def test_an_address_with_many_failed_authentications_is_refused_for_a_while(client, orders, counted):
    good, client.key = client.key, accounts.new_key()
    for _ in range(3):
        refused(client.request("GET", "/", "comp=list"), 403, "AuthenticationFailed")
    assert counted == [1, 1, 1]
    client.key = good
    reply = client.request("GET", "/", "comp=list")
    refused(reply, 503, "ServerBusy")
    assert reply.headers["retry-after"] == "60"
    assert client.request("GET", "/", "comp=list", sign=False).code == "AuthenticationFailed"  # nothing was tried


def test_what_is_no_guess_is_not_counted(client, orders, counted):
    for _ in range(5):
        refused(client.request("GET", "/", "comp=list", sign=False), 403, "AuthenticationFailed")
        refused(client.request("GET", query="comp=list", whole_path="/nobody/"), 404, "ResourceNotFound")
        refused(client.request("GET", "/none/messages"), 404, "QueueNotFound")
    assert counted == []


def test_a_page_cannot_have_the_programs_of_its_visitor_refused(client, orders, counted):
    wrong = signed_url(client).replace("sp=rwdlacup", "sp=rwdl")
    for _ in range(4):
        client.request("GET", "/", f"comp=list&{wrong}", headers=[("Sec-Fetch-Site", "cross-site")], sign=False)
    assert counted == [1, 1, 1]
    assert client.request("GET", "/", "comp=list").status == 200
