"""Valid inputs of each target, from which hostile ones are made, and the pieces that are put into them."""

from __future__ import annotations

from .queue_storage import seeds as _queue_storage
from .service_bus import seeds as _service_bus

ANYWHERE = [
    *(b"%00", b"%01", b"%2F", b"%2e%2e", b"..", b"//", b"%", b"%zz", b"%ff", b"%EF%BC%91", b"?", b"#", b"&", b"=", b"+", b"%2B"),
    *(b";", b"-1", b"0", b"1.0", b"+5", b"1e9", b"nan", b"9223372036854775808", b"\xef\xbc\x95", b"0x1", b"1_000", b" 1"),
    *(b"99999999999999999999999", b"\r\n", b"\n", b"\r", b"\x00", b"\t", b" ", b"\xff\xfe", b"\xef\xbb\xbf"),
    *(b"\xef\xbf\xbe", b"\xed\xa0\x80", b"\x80", b"\x01", b"\x7f", b"<", b">", b"</", b"/>", b"<a>", b"</a>", b"<a>" * 33),
    *(b"<a/>" * 50, b"<![CDATA[", b"]]>", b"<!--", b"-->", b"<?", b"?>", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&amp;"),
    *(b"&b;", b"&#0;", b"&#xD800;", b"&#x10FFFF;", b"xmlns='u'", b" a='b'", b"encoding='utf-16'", b"a" * 100, b"a" * 5000),
    *(b"-", b"--", b"_", b":", b",", b"'", b'"', b"*", b"|", b"\\", b"{}", b"$", b"GET", b"PUT", b"POST", b"HEAD"),
    *(b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b" HTTP/1.0", b"http://other/", b"Content-Length: 5\r\n"),
    *(b"Expect: 100-continue\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"Host: \r\n"),
    *(b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Authorization: Bearer x\r\n"),
    b"SIGNATURE",
]

_FAMILIES = (_queue_storage, _service_bus)
SEEDS: dict[str, list[bytes]] = {target: seeds for family in _FAMILIES for target, seeds in family.SEEDS.items()}
PIECES: dict[str, list[bytes]] = {target: ANYWHERE + family.PIECES for family in _FAMILIES for target in family.SEEDS}
REQUESTS = ("queue_storage_request", "service_bus_request")  # whole ones, which need a database
