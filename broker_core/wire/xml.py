"""Read and write the XML of HTTP front ends: small documents in UTF-8, without a DOCTYPE."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from broker_core.common.errors import BrokerError

DEEPEST = 32  # elements within each other
MOST_ELEMENTS = 10_000
DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'
_NOT_IN_XML = (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)  # also not as references
_ESCAPES = dict.fromkeys(_NOT_IN_XML, "\ufffd") | str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;"}  # a parser would turn CR LF into LF
)
_IN_ATTRIBUTES = str.maketrans({'"': "&quot;", "\n": "&#xA;", "\t": "&#x9;"})
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"<\0", b"\0<")  # expat would read it, whatever it is told
_ENCODING = re.compile("utf-?8|us-ascii", re.IGNORECASE)


class InvalidXml(BrokerError):
    """A document that cannot be read. line: from 1. column: from 1."""

    def __init__(self, problem: str, line: int, column: int):
        super().__init__(f"The XML document is invalid at line {line}, column {column}: {problem}.")
        self.problem, self.line, self.column = problem, line, column


@dataclass(slots=True)
class Element:
    """An element. name: without its prefix. namespace: its URI; empty: none. text: what is directly in it, as it was sent.
    attributes: by their names, before which stand the URI of their namespace, if they have one, and a space."""

    name: str
    line: int = 1
    column: int = 1
    text: str = ""
    children: list[Element] = field(default_factory=list)
    namespace: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Element | None:
        """The first child of this name; case does not matter (QS-013)."""
        return next((child for child in self.children if child.name.lower() == name.lower()), None)

    def refuse(self, problem: str) -> NoReturn:
        raise InvalidXml(problem, self.line, self.column)


def read(document: bytes) -> Element:
    """The root element. Raises InvalidXml for a document that is malformed, not in UTF-8, or nested or long beyond the limits."""
    return _Reader().read(document)


class _Reader:
    """One document."""

    def __init__(self) -> None:
        self._parser = parser = expat.ParserCreate("utf-8", " ")  # with a space, namespaces are read
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype
        parser.XmlDeclHandler = self._declaration
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._count = 0
        self._root: Element | None = None

    def read(self, document: bytes) -> Element:
        if document.startswith(_UTF_16):
            raise InvalidXml("it is in UTF-16; it must be in UTF-8", 1, 1)
        try:
            self._parser.Parse(document, True)
        except expat.ExpatError as exc:
            raise InvalidXml(expat.ErrorString(exc.code), exc.lineno, exc.offset + 1) from None
        finally:
            del self._parser  # without this circle of references, its memory is free at once
        assert self._root is not None  # a document without an element is malformed
        return self._root

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidXml(problem, self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MOST_ELEMENTS:
            self._refuse(f"it has more than {MOST_ELEMENTS:,} elements")
        if len(self._open) >= DEEPEST:
            self._refuse(f"elements are nested more than {DEEPEST} deep")
        namespace, _, local = name.rpartition(" ")
        line, column = self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1
        element = Element(local, line, column, namespace=namespace, attributes=attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)
        self._texts.append([])

    def _end(self, name: str) -> None:
        self._open.pop().text = "".join(self._texts.pop())

    def _text(self, text: str) -> None:
        self._texts[-1].append(text)

    def _doctype(self, *declaration: object) -> None:
        self._refuse("a DOCTYPE is not allowed")

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and not _ENCODING.fullmatch(encoding):
            self._refuse(f"its encoding is {encoding[:40]}; it must be UTF-8")


def element(name: str, content: str | Iterable[str] | None, **attributes: str) -> str:
    """One element as text. content: text, which is escaped here; or elements, as text; None or "": an empty element. Characters
    that XML cannot hold become U+FFFD."""
    inner = content.translate(_ESCAPES) if isinstance(content, str) else "".join(content or ())
    given = "".join(f' {key}="{value.translate(_ESCAPES).translate(_IN_ATTRIBUTES)}"' for key, value in attributes.items())
    return f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given} />"


def document(root: str) -> bytes:
    """A document of one element."""
    return f"{DECLARATION}{root}".encode()
