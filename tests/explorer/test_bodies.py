"""Bodies as the message page shows them: trees, decoded layers, and the bounds that keep a hostile body harmless. Pure."""

import base64
import gzip
import html
import json
import re

import msgpack
import pytest

from broker_core.common.types import BodyKind
from broker_core.reads import Body
from broker_core.service_bus.rules.amqp_messages import encode_body
from explorer.bodies import decoding, display, tree

ORDER = b'{"order": 12345678901234567890123, "lines": [{"sku": "a"}, {}], "note": null}'


def displayed(content, mode="", *, total=None, content_type=None):
    return display.view(Body(content, 0, len(content) if total is None else total, BodyKind.DATA, content_type), mode)


def plain(tree):
    """The text of a tree, in which what a closed part shows is left out."""
    without = re.sub('<span class="folded">.*?</span></summary>', "</summary>", tree)
    return html.unescape(re.sub("<[^>]*>", "", without))


def test_json_is_a_tree_with_every_number_and_key_as_sent():
    shown = displayed(ORDER)
    assert (shown.form, shown.layers, shown.source) == ("JSON", (), ORDER.decode())
    assert "12345678901234567890123" in shown.tree and shown.tree.count("<details") == 3
    assert json.loads(plain(shown.tree)) == json.loads(ORDER)
    assert "2 items" in shown.tree and "3 keys" in shown.tree


def test_repeated_keys_and_escapes_stay_as_they_were_written():
    assert plain(displayed(b'{"a":"\\u00e9","a":[]}').tree) == '{"a": "\\u00e9","a": []}'


def test_xml_is_a_tree_and_an_element_with_text_only_is_one_line():
    shown = displayed(b'<?xml version="1.0"?><o id="1"><a>1 &lt; 2</a><!-- why --><b><c/>tail</b></o>')
    assert shown.form == "XML"
    assert plain(shown.tree) == '<o id="1"><a>1 < 2</a><!-- why --><b><c></c>tail</b></o>'
    assert shown.tree.count("<details") == 2


@pytest.mark.parametrize("body", [b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', b"<a", b"{", b"{} {}", b"plain"])
def test_bodies_that_are_neither_json_nor_xml_are_text(body):
    assert (displayed(body).form, displayed(body).tree) == ("text", None)


@pytest.mark.parametrize(
    "body", [b'{"<script>": "<img src=x onerror=alert(1)>"}', b"<a x='&quot;&gt;'>&lt;script&gt;</a>", b'["\'\\"<b>"]']
)
def test_text_in_a_tree_is_never_markup(body):
    tags = re.findall(r"<(/?\w+)([^>]*)>", displayed(body).tree)
    assert {tag for tag, _ in tags} <= {"details", "/details", "summary", "/summary", "div", "/div", "span", "/span"}
    assert {rest for _, rest in tags} <= {"", ' class="fold" open', ' class="inner"', ' class="line"', ' class="line close"'} | {
        f' class="{name}"' for name in ("key", "string", "number", "word", "folded", "attribute")
    }


@pytest.mark.parametrize(
    "body",
    [b"[" * 100 + b"]" * 100, b"[" + b"1," * 10_000 + b"1]", b"<a>" * 100 + b"</a>" * 100, b"[" * 100_000 + b"]" * 100_000],
)
def test_a_body_too_deep_or_too_long_for_a_tree_is_text(body):
    assert displayed(body).tree is None and displayed(body).text


def test_a_long_body_opens_with_its_deeper_parts_folded():
    tree = displayed(json.dumps([[[n] for n in range(80)]]).encode()).tree
    assert tree.count('<details class="fold" open>') == 2 and tree.count('<details class="fold">') == 80


@pytest.mark.parametrize(
    ("wrapped", "layers"),
    [
        (gzip.compress(ORDER, mtime=0), ("gzip",)),
        (base64.b64encode(ORDER), ("base64",)),
        (base64.urlsafe_b64encode(gzip.compress(ORDER, mtime=0)), ("base64", "gzip")),
    ],
)
def test_layers_are_removed_and_named(wrapped, layers):
    shown = displayed(wrapped)
    assert (shown.form, shown.layers) == ("JSON", layers) and "12345678901234567890123" in shown.tree
    assert displayed(wrapped, "hex").form == "bytes" and displayed(wrapped, "hex").text.startswith("00000000  ")


def test_the_title_names_the_layers_from_the_inside_out():
    assert displayed(base64.b64encode(gzip.compress(ORDER, mtime=0))).title == "JSON in gzip in base64"


@pytest.mark.parametrize(
    "text", [b"TestTestTestTest", b"confirmation", b"abcd", b"/////////////////w==", b"12345678901234567890"]
)
def test_words_that_could_be_base64_are_not_decoded(text):
    assert (displayed(text).layers, displayed(text).text) == ((), text.decode())


def test_messagepack_is_shown_as_json_that_names_what_json_lacks():
    packed = msgpack.packb(
        {"id": 7, 3: b"\x00\xff", "at": msgpack.Timestamp(0), "x": msgpack.ExtType(5, b"\x01"), "f": float("nan")}
    )
    shown = displayed(packed)
    assert shown.form == "MessagePack" and json.loads(shown.text) == {
        "id": 7, "3": "binary 0x00ff", "at": "timestamp 1970-01-01T00:00:00+00:00", "x": "extension 5 0x01", "f": "float nan",
    }  # fmt: skip
    assert displayed(base64.b64encode(packed)).title == "MessagePack in base64"


@pytest.mark.parametrize(
    "content", [b"\x91" * 3000 + b"\x01", b"\xdd\xff\xff\xff\xff", b"\x82\xa1a", b"\x81\x80\x01\xff", bytes(range(128, 256))]
)
def test_a_body_that_only_begins_like_messagepack_is_bytes(content):
    assert displayed(content).form == "bytes"


def test_a_compression_bomb_is_truncated_with_a_note():
    shown = displayed(gzip.compress(b"0" * 50_000_000))
    assert len(shown.text) <= display.SHOWN_ON_DEMAND and "262,144 bytes" in shown.note
    assert decoding.decoded(gzip.compress(gzip.compress(gzip.compress(gzip.compress(b"x")))), 1000).layers == ("gzip",) * 3


def test_only_the_first_part_of_a_huge_body_is_read_with_a_note():
    shown = displayed(b"x" * 1000, total=100_000_000)
    assert shown.note == "The first 1,000 of 100,000,000 bytes; the download has all of them."


def test_invalid_utf_8_is_shown_as_bytes_and_on_demand_as_text_with_replacement_characters():
    content = b"ok \xff\x00 end"
    assert displayed(content).form == "bytes"
    raw = displayed(content, "raw")
    assert raw.text == "ok \ufffd\u2400 end" and "not UTF-8" in raw.note and raw.source == ""


def test_each_limit_of_a_tree_is_independent():
    lines = tree.json_lines(json.dumps(list(range(tree.MOST_LINES - 2))))
    assert len(lines) == tree.MOST_LINES
    with pytest.raises(tree.TooLarge):
        tree.json_lines(json.dumps(list(range(tree.MOST_LINES))))


def masked(content: bytes, content_type: str | None) -> bytes:
    if b"fail" in content:
        raise ValueError(content)
    return content.replace(b"4711", b"****")


@pytest.mark.parametrize("mode", ["", "raw", "hex"])
def test_a_site_function_changes_the_displayed_body(settings, mode):
    settings.VITRINE_BODY_FORMATTER = f"{__name__}.masked"
    shown = display.view(Body(b'{"card": 4711}', 0, 14, BodyKind.DATA, None), mode)
    assert "4711" not in f"{shown.text}{shown.tree}{shown.source}" and "***" in f"{shown.text}{shown.tree}"
    value = encode_body(BodyKind.VALUE, {"card": "4711"})
    assert "4711" not in display.view(Body(value, 0, len(value), BodyKind.VALUE, None), mode).text
    assert "4711" not in display.preview(Body(b"4711", 0, 4, BodyKind.DATA, None))
    assert display.view(Body(b"4711 and mo", 0, 99, BodyKind.DATA, None), "raw").note.startswith("The first 11 of 99")


def test_a_failing_site_function_hides_the_body(settings):
    settings.VITRINE_BODY_FORMATTER = f"{__name__}.masked"
    shown = display.view(Body(b"secret fail", 0, 11, BodyKind.DATA, None))
    assert "secret" not in shown.text and shown.text.startswith("The formatter of bodies failed")
