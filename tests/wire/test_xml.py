"""XML of HTTP front ends: what is read, what is refused and where, and that what is written can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire import xml
from broker_core.wire.xml import InvalidXml, document, element, read

IN_XML = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff", min_codepoint=0x20))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<a>x</a>", "x"),
        (b"<a/>", ""),
        (b"<a>  x\n </a>", "  x\n "),
        (b"<a>x\r\ny&#xD;\nz</a>", "x\ny\r\nz"),
        (b"<a><![CDATA[<b>&]]> &lt;&#233;</a>", "<b>& <\u00e9"),
        (b"\xef\xbb\xbf<?xml version='1.0' encoding='UTF-8'?><a>x</a>", "x"),
        (b"<s:a xmlns:s='urn:x'>x</s:a>", "x"),
        (b"<?pi x?><!-- y --><a>x<!-- y -->z</a>", "xz"),
    ],
)
def test_a_document_is_read(body, text):
    root = read(body)
    assert (root.name, root.text) == ("a", text)


@pytest.mark.parametrize(
    ("body", "line", "column", "problem"),
    [
        (b"", 1, 1, "no element found"),
        (b"<a>\n<b></a>", 2, 6, "mismatched tag"),
        (b"<a/><b/>", 1, 5, "junk after document element"),
        (b"<a>\x00</a>", 1, 4, "not well-formed"),
        (b"<a>\x01</a>", 1, 4, "not well-formed"),
        ("<a>\ufffe</a>".encode(), 1, 4, "not well-formed"),
        (b"<a>&#0;</a>", 1, 4, "invalid character number"),
        (b"<a>\xff</a>", 1, 4, "not well-formed"),
        (b"<a>&b;</a>", 1, 4, "undefined entity"),
        ("<a>\u00e9</a>".encode("utf-16"), 1, 1, "UTF-8"),
        ("<a/>".encode("utf-16-le"), 1, 1, "UTF-8"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", 1, 13, "DOCTYPE"),
        (b"<?xml version='1.0' encoding='latin-1'?><a/>", 1, 1, "must be UTF-8"),
        (b"<a>" * 100_000, 1, 97, "nested more than 32 deep"),
        (b"<a>" + b"<b/>" * 1_000_000 + b"</a>", 1, 40_000, "more than 10,000 elements"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(body, line, column, problem):
    with pytest.raises(InvalidXml, match=problem) as refused:
        read(body)
    assert (refused.value.line, refused.value.column) == (line, column)


def test_children_are_found_by_name_without_case():
    root = read(b"<a><B>1</B>\n  <c>2</c><b>3</b></a>")
    assert [child.text for child in root.children] == ["1", "2", "3"]
    assert root.find("b").text == "1"
    assert root.find("d") is None
    with pytest.raises(InvalidXml, match="line 2, column 3: not a number"):
        root.find("c").refuse("not a number")


@given(IN_XML, IN_XML)
def test_what_is_written_is_read(text, value):
    root = read(document(element("a", [element("b", text), element("c", None)], key=value)))
    assert [child.text for child in root.children] == [text, ""]


def test_characters_that_xml_cannot_hold_are_replaced():
    written = document(element("a", "\x00b\x0b\ud800\uffff\t\n", key="\x01"))
    assert read(written).text == "\ufffdb\ufffd\ufffd\ufffd\t\n" and 'key="\ufffd"'.encode() in written


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body):
    try:
        assert read(body).name
    except InvalidXml as refused:
        assert refused.line >= 1 <= refused.column


def test_the_limits_are_those_of_the_documentation():
    assert read(b"<a>" * xml.DEEPEST + b"</a>" * xml.DEEPEST).children
    assert len(read(b"<a>" + b"<b/>" * (xml.MOST_ELEMENTS - 1) + b"</a>").children) == xml.MOST_ELEMENTS - 1
