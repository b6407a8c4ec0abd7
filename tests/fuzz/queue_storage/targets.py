"""The parsers of Queue Storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote_to_bytes
from xml.parsers import expat

from broker_core.queue_storage.http import answers, documents, parameters, paths, queues
from broker_core.queue_storage.http.request import Request
from broker_core.queue_storage.rules import messages, sas, service_properties, shared_key
from broker_core.queue_storage.rules.errors import AuthenticationFailed, AuthorizationMismatch, InvalidMetadata, StorageRefusal
from broker_core.queue_storage.rules.limits import LONGEST_VISIBILITY_TIMEOUT, METADATA_BYTES, TEXT_BYTES
from broker_core.queue_storage.rules.options import check_access_policies, check_metadata
from broker_core.wire import xml
from broker_core.wire.http.dates import read_rfc1123, write_rfc1123
from broker_core.wire.http.errors import UnknownResource
from broker_core.wire.xml import Element, InvalidXml

KEY, OTHER_KEY = "A" * 86 + "==", "B" * 86 + "=="
NOW = datetime(2026, 11, 21, tzinfo=UTC)
LATIN = "latin-1"


def fake_request(query: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None) -> Request:
    """A request without a connection."""

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": query, "headers": headers or []}
    return Request(scope, receive)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (part.partition("=") for part in text.split("&") if part)]


def shared_key_header(data: bytes) -> None:
    """The header, then method, path, query and headers in lines."""
    header, method, path, query, *lines = [*data.decode(LATIN).split("\n"), "", "", "", ""]
    with suppress(StorageRefusal):
        credential = shared_key.parse(header)
        assert len(credential.signature) == 44
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines if line)]
        parts = shared_key.SignedParts(method, path, pairs(query), headers)
        for text in shared_key.texts_to_sign(credential, parts):
            signed = shared_key.Credential(credential.scheme, credential.account, shared_key.sign(text, KEY))
            assert shared_key.check_signature(signed, parts, [OTHER_KEY, KEY]) == KEY
        with suppress(StorageRefusal):
            shared_key.check_date(parts, NOW)
        shared_key.check_signature(credential, parts, [KEY])
        raise AssertionError(f"{credential} is valid")


def shared_access_signature(data: bytes) -> None:
    """The query of a request."""
    with suppress(StorageRefusal):
        query = fake_request(data).query_pairs
        signature = sas.parse(query)
        policies = {"readers": sas.AccessPolicy("readers", expiry="2099-11-22", permission="raup")}
        for is_tls in (False, True):
            with suppress(AuthorizationMismatch):
                sas.check_use(signature, is_tls=is_tls, client_ip="127.0.0.1")
        with suppress(AuthenticationFailed):
            sas.permitted(signature, policies, NOW)
        queue = None if signature.is_for_account else "orders"
        signed = sas.signed(signature, KEY, account="fuzzed", queue=queue)
        assert sas.check_signature(signed, [OTHER_KEY, KEY], account="fuzzed", queue=queue) == KEY
        again = sas.parse(fake_request(sas.as_query(signed).encode()).query_pairs)
        assert sas.text_to_sign(again, account="fuzzed", queue=queue) == sas.text_to_sign(signed, account="fuzzed", queue=queue)
        sas.check_signature(signature, [KEY], account="fuzzed", queue=queue)
        raise AssertionError(f"{signature} is valid")


def path(data: bytes) -> None:
    """Host and raw path with a space between them. What is found are the segments, decoded once."""
    host, _, raw = data.decode(LATIN).partition(" ")
    with suppress(UnknownResource, StorageRefusal):
        target = paths.target_of(host, raw)
        segments = [unquote_to_bytes(segment).decode() for segment in raw.removesuffix("/").split("/")[1:]]
        account = target.account + ("-secondary" if target.is_secondary else "")
        found = [account] if target.is_path_style else []
        found += [target.queue] if target.queue else []
        found += ["messages"] if target.level in (paths.Level.MESSAGES, paths.Level.MESSAGE) else []
        found += [target.message_id] if target.level is paths.Level.MESSAGE else []
        assert found == segments
        assert "/" not in target.queue


def _depth(element: Element) -> int:
    return 1 + max(map(_depth, element.children), default=0)


def xml_document(data: bytes) -> None:
    """What is read is all that a parser without limits reads, and its text survives writing."""
    try:
        root = xml.read(data)
    except InvalidXml as refused:
        assert refused.line >= 1 <= refused.column
        assert str(refused.line) in str(refused)
        return
    assert _depth(root) <= xml.DEEPEST
    started: list[str] = []
    other = expat.ParserCreate()
    other.StartElementHandler = lambda name, attributes: started.append(name)
    other.Parse(data, True)
    assert len(started) == _count(root)
    again = xml.read(xml.document(xml.element("a", root.text, b=root.text)))
    assert again.text == root.text


def _count(element: Element) -> int:
    return 1 + sum(map(_count, element.children))


def numbers(data: bytes) -> None:
    """The parameters of a query, each within its range or refused with name, value and range."""
    request = fake_request(data)
    longest = LONGEST_VISIBILITY_TIMEOUT
    second = timedelta(seconds=1)
    checks: list[Callable[[], object]] = [
        lambda: 1 <= parameters.count(request) <= 32,
        lambda: timedelta(0) <= parameters.delay(request) <= longest,
        lambda: second <= parameters.lease(request) <= longest,
        lambda: timedelta(0) <= parameters.new_visibility(request) <= longest,
        lambda: (life := parameters.time_to_live(request)) is None or life >= second,
        lambda: 1 <= (parameters.whole(request, "maxresults", 1, 5000) or 1) <= 5000,
        lambda: parameters.check_timeout(request) is None,
        lambda: request.version,
    ]
    for check in checks:
        try:
            assert check()
        except StorageRefusal as refused:
            assert all(isinstance(value, str) for value in refused.details.values())


def text_document(data: bytes) -> None:
    with suppress(InvalidXml, StorageRefusal):
        text = documents.read_text(data)
        assert len(messages.encode_text(text)) <= TEXT_BYTES
        body = xml.document(xml.element("QueueMessage", [xml.element("MessageText", text)]))
        assert documents.read_text(body) == text


def policies_document(data: bytes) -> None:
    with suppress(InvalidXml, StorageRefusal):
        policies = check_access_policies(documents.read_policies(data))
        assert documents.read_policies(xml.document(documents.write_policies(policies))) == list(policies)


def properties_document(data: bytes) -> None:
    with suppress(InvalidXml, StorageRefusal):
        given = documents.read_properties(data)
        properties = service_properties.check(service_properties.ServiceProperties().replaced(**given))
        stored = service_properties.from_json(service_properties.as_json(properties))
        assert stored == properties
        again = documents.read_properties(xml.document(documents.write_properties(properties)))
        assert service_properties.ServiceProperties(**again) == properties


def receipt(data: bytes) -> None:
    found = answers.read_receipt(data.decode(LATIN))
    if not isinstance(found, str):
        assert answers.read_receipt(answers.receipt_text(found)) == found


def date(data: bytes) -> None:
    text = data.decode(LATIN)
    if (at := read_rfc1123(text)) is not None:
        assert write_rfc1123(at)[5:] == text[5:]
    if (at := sas.read_instant(text)) is not None:
        assert at.tzinfo is UTC


def metadata(data: bytes) -> None:
    """Headers in lines, of which those with the prefix are metadata."""
    lines = [line.partition(b": ") for line in data.split(b"\n")]
    request = fake_request(headers=[(b"x-ms-meta-" + name.lower(), value) for name, _, value in lines])
    with suppress(InvalidMetadata):
        checked = check_metadata(queues.metadata_of(request))
        assert check_metadata(checked) == checked
        assert sum(len(name) + len(value) for name, value in checked.items()) <= METADATA_BYTES
        assert all(name.isascii() and value.isascii() and "\n" not in value for name, value in checked.items())


TARGETS: dict[str, Callable[[bytes], None]] = {
    "shared_key": shared_key_header,
    "sas": shared_access_signature,
    "path": path,
    "xml": xml_document,
    "numbers": numbers,
    "text": text_document,
    "policies": policies_document,
    "properties": properties_document,
    "receipt": receipt,
    "date": date,
    "metadata": metadata,
}
