"""Bodies as trees: JSON and XML in lines, each object, list and element a disclosure that works without JavaScript. Pure.

Every piece of text is escaped here, so that a hostile body stays text. What is too deep or too long for a tree is none (None);
it is shown as indented text instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.parsers.expat import ExpatError, ParserCreate

from django.utils import html
from django.utils.safestring import SafeString, mark_safe

MOST_LINES = 4_000
MOST_DEPTH = 48
OPEN_LINES = 150  # a body with more lines opens with its deeper parts folded
OPEN_DEPTH = 2
_SPACE = re.compile(r"\s+")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CLOSING = {"{": "}", "[": "]"}


@dataclass(slots=True)
class Line:
    """A line of a tree. end: of the disclosure that this line opens, empty if it opens none. closes: it ends one.

    count: the children of a disclosure. tail: a comma. noun: what the children are called, one and several.
    """

    html: str
    end: str = ""
    closes: bool = False
    count: int = 0
    tail: str = ""
    noun: tuple[str, str] = ("item", "items")


def _text(text: str) -> str:
    """Text between tags, where quotes need no escape."""
    return str(html.escape(text)).replace("&quot;", '"').replace("&#x27;", "'")


class TooLarge(Exception):
    """A body has more lines or levels than a tree may have."""


def tree(text: str) -> tuple[str, SafeString] | None:
    """The form of a text, JSON or XML, and its tree; None: it is neither, or too large for a tree."""
    for form, lines_of in (("JSON", json_lines), ("XML", xml_lines)):
        try:
            lines = lines_of(text)
        except TooLarge:
            return None
        if lines is not None:
            return form, rendered(lines)
    return None


def rendered(lines: list[Line]) -> SafeString:
    """The lines as HTML."""
    out: list[str] = []
    depth = 0
    for line in lines:
        if line.end:
            depth += 1
            is_open = " open" if len(lines) <= OPEN_LINES or depth <= OPEN_DEPTH else ""
            says = f"{line.count:,} {line.noun[line.count != 1]}"
            out.append(
                f'<details class="fold"{is_open}><summary>{line.html}<span class="folded"> {says} </span>'
                f'<span class="folded">{line.end}</span></summary><div class="inner">'
            )
        elif line.closes:
            depth -= 1
            out.append(f'</div></details><div class="line close">{line.html}{line.tail}</div>')
        else:
            out.append(f'<div class="line">{line.html}{line.tail}</div>')
    return mark_safe("".join(out))


def json_lines(text: str) -> list[Line] | None:
    """The lines of a JSON object or list, with every number, escape and repeated key as written. None: not JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    lines: list[Line] = []
    open_lines: list[Line] = []
    key = ""
    tokens = _with_next(_JSON_TOKEN.finditer(text))
    for token, following in tokens:
        if token == ",":
            lines[-1].tail = ","
            continue
        if following == ":":
            key = f'<span class="key">{_text(token)}</span>: '
            next(tokens)
            continue
        if token in "]}":
            open_lines.pop()
            lines.append(Line(token, closes=True))
            continue
        if open_lines:
            open_lines[-1].count += 1
        if token in "[{" and following in ("]", "}"):
            lines.append(Line(f"{key}{token}{following}"))
            next(tokens)
        elif token in "[{":
            noun = ("key", "keys") if token == "{" else ("item", "items")
            lines.append(Line(f"{key}{token}", end=_CLOSING[token], noun=noun))
            open_lines.append(lines[-1])
        else:
            lines.append(Line(f'{key}<span class="{_kind(token)}">{_text(token)}</span>'))
        key = ""
        _check(lines, open_lines)
    return lines


def _with_next(matches: Iterator[re.Match[str]]) -> Iterator[tuple[str, str]]:
    """Each token with the one after it, which is empty for the last."""
    token = next(matches).group()
    for match in matches:
        yield token, match.group()
        token = match.group()
    yield token, ""


def _kind(token: str) -> str:
    if token.startswith('"'):
        return "string"
    return "word" if token in ("true", "false", "null") else "number"


def xml_lines(text: str) -> list[Line] | None:
    """The lines of an XML document. None: not XML, or with a document type, whose entities may expand without limit."""
    if not text.lstrip().startswith("<") or "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    reader = _XmlReader()
    try:
        reader.parser.Parse(text.encode(), True)
    except (ExpatError, ValueError):
        return None
    return reader.lines


class _XmlReader:
    """Collects the lines of a document from the events of its parser."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._open: list[tuple[Line, str]] = []  # the elements around the current place, with their names
        self._text: list[str] = []
        parser = self.parser = ParserCreate()
        parser.buffer_text = True
        parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.CommentHandler = lambda text: self._add(f'<span class="comment">&lt;!--{_text(text)}--&gt;</span>')
        parser.ProcessingInstructionHandler = lambda target, data: self._add(
            f'<span class="comment">&lt;?{_text(target)} {_text(data)}?&gt;</span>'
        )

    def _add(self, html: str) -> Line:
        self._end_text()
        if self._open:
            self._open[-1][0].count += 1
        self.lines.append(Line(html))
        _check(self.lines, self._open)
        return self.lines[-1]

    def _end_text(self) -> None:
        text = _SPACE.sub(" ", "".join(self._text)).strip()
        self._text.clear()
        if text:
            self._open[-1][0].count += 1
            self.lines.append(Line(f'<span class="string">{_text(text)}</span>'))

    def _start(self, name: str, attributes: list[str]) -> None:
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        encoded = "".join(
            f' <span class="attribute">{_text(key)}</span>=<span class="string">"{_text(value)}"</span>' for key, value in pairs
        )
        line = self._add(f'&lt;<span class="key">{_text(name)}</span>{encoded}&gt;')
        self._open.append((line, name))

    def _end(self, name: str) -> None:
        line, _ = self._open.pop()
        end = f'&lt;/<span class="key">{_text(name)}</span>&gt;'
        if line is self.lines[-1]:  # it holds nothing but text: one line
            text = _text("".join(self._text).strip())
            self._text.clear()
            line.html += f'<span class="string">{text}</span>{end}' if text else end
            return
        self._open.append((line, name))
        self._end_text()
        self._open.pop()
        line.end, line.noun = end, ("node", "nodes")
        self.lines.append(Line(end, closes=True))


def _check(lines: list[Line], open_lines: list) -> None:
    if len(lines) > MOST_LINES or len(open_lines) > MOST_DEPTH:
        raise TooLarge
