"""Formats message bodies for display. The original bytes can be downloaded."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from xml.dom import minidom
from xml.parsers.expat import ExpatError

from django.conf import settings
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString

from broker_core import reads
from broker_core.common.types import Actor, BodyKind, EntityAddress, Right
from broker_core.reads import MessageRow

from . import tree
from .decoding import decoded, msgpack_as_json

log = logging.getLogger(__name__)

LOOKED_AT = 200  # messages of a list that are searched for those that an actor holds
PREVIEW_BYTES = 600
SHOWN_AT_ONCE = 16 * 1024  # bytes; larger bodies are shown on demand only
SHOWN_ON_DEMAND = 256 * 1024  # bytes; the rest is only in the download
INDENTED_AT_MOST = 2 * 1024 * 1024  # characters; deep nesting can multiply the size
HEX_BYTES = 4096

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


@dataclass(frozen=True, slots=True)
class Readable:
    """A formatted body. form: JSON, XML, text, bytes or nothing. note: what was changed or left out."""

    form: str
    text: str
    note: str = ""


# (body kind other than DATA, the whole body) -> its content, if its sections hold plain bytes or text, else their values.
ReadSections = Callable[[BodyKind, bytes], bytes | Readable]


@dataclass(frozen=True, slots=True)
class BodyView:
    """A body on the message page, in one of MODES.

    layers: what was decoded, outermost first. tree: with disclosures; None: `text` is shown. source: the text as sent, to copy.
    """

    mode: str
    form: str
    text: str
    note: str = ""
    layers: tuple[str, ...] = ()
    tree: SafeString | None = None
    source: str = ""

    @property
    def title(self) -> str:
        """The form with its layers: "JSON in gzip in base64"."""
        return " in ".join([self.form, *reversed(self.layers)])


MODES = {"": "Formatted", "raw": "As sent", "hex": "Hex"}


def view(body: reads.Body, mode: str = "", read_sections: ReadSections | None = None) -> BodyView:
    """A body as the page shows it: formatted, as sent, or as a hex dump. mode: one of MODES. read_sections: of the family."""
    body = by_setting(body, read_sections)
    content, total = body.content, body.total
    cut = "" if len(content) >= total else f"The first {len(content):,} of {total:,} bytes; the download has all of them."
    if total == 0:
        return BodyView(mode, "nothing", "", "The body is empty.")
    if mode == "hex":
        return _hex(content, total, mode)
    if mode == "raw":
        text = _as_text(content, is_cut=bool(cut))
        if text is not None:
            return BodyView(mode, "text", text, cut, source=text)
        replaced = _CONTROL.sub(lambda match: chr(0x2400 + ord(match.group())), content[:SHOWN_AT_ONCE].decode(errors="replace"))
        note = "Bytes that are not UTF-8 are shown as \ufffd. " + (cut or _first(SHOWN_AT_ONCE, total))
        return BodyView(mode, "text", replaced, note.strip())
    if cut or body.kind is not BodyKind.DATA:
        beginning = _readable(content, total, body.content_type, body.kind, read_sections)
        return _with_tree(BodyView(mode, beginning.form, beginning.text, cut or beginning.note, source=beginning.text))
    return _formatted(content, total, mode)


def by_setting(body: reads.Body, read_sections: ReadSections | None = None) -> reads.Body:
    """The body as the function named by the setting VITRINE_BODY_FORMATTER shows it, such as with parts masked. If it fails,
    nothing of the body is shown."""
    name = getattr(settings, "VITRINE_BODY_FORMATTER", "")
    if not name or body.total == 0:
        return body
    content = body.content
    if read_sections and body.kind is not BodyKind.DATA and body.is_complete:
        sections = read_sections(body.kind, content)
        content = sections if isinstance(sections, bytes) else sections.text.encode()
    try:
        formatted = bytes(import_string(name)(content, body.content_type))
    except Exception:  # the function is the site's own
        log.exception("VITRINE_BODY_FORMATTER failed")
        formatted = b"The formatter of bodies failed; see the log of the site."
        return reads.Body(formatted, 0, len(formatted), BodyKind.DATA, None)
    total = len(formatted) if body.is_complete else max(body.total, len(formatted) + 1)
    return reads.Body(formatted, body.offset, total, BodyKind.DATA, body.content_type)


def _formatted(content: bytes, total: int, mode: str) -> BodyView:
    """A complete body of plain bytes, decoded as far as its bytes say how."""
    inner = decoded(content, SHOWN_ON_DEMAND)
    source = _as_text(content, is_cut=False) or ""
    note = f"Decoded content is shown up to {SHOWN_ON_DEMAND:,} bytes." if inner.cut else ""
    text = _as_text(inner.content, is_cut=inner.cut)
    if text is None and not inner.cut and (packed := msgpack_as_json(inner.content)) is not None:
        note = "Shown as JSON; types that JSON lacks are named."
        return _with_tree(BodyView(mode, "MessagePack", packed, note, inner.layers, source=source or packed))
    if text is None:
        return _hex(inner.content, len(inner.content), mode, inner.layers)
    return _with_tree(BodyView(mode, "text", text, note, inner.layers, source=source or text))


def _with_tree(view: BodyView) -> BodyView:
    """The body as a tree, if its text is JSON or XML; too large for a tree, it is indented text."""
    if (folded := tree.tree(view.text)) is not None:
        return replace(view, form=folded[0] if view.form == "text" else view.form, tree=folded[1])
    for form, pretty in (("JSON", pretty_json), ("XML", pretty_xml)):
        if view.form == "text" and (text := pretty(view.text)) is not None:
            return replace(view, form=form, text=text, note=view.note or "Too large or too deep to fold; indented for reading.")
    return view


def _hex(content: bytes, total: int, mode: str, layers: tuple[str, ...] = ()) -> BodyView:
    return BodyView(mode, "bytes", hex_dump(content[:HEX_BYTES]), _first(HEX_BYTES, total), layers)


def _first(length: int, total: int) -> str:
    return f"The first {length:,} of {total:,} bytes; the download has all of them." if total > length else ""


def readable(body: reads.Body, read_sections: ReadSections | None = None) -> Readable:
    """The beginning of a body: indented JSON or XML, text, or a hex dump; of encoded sections, their values."""
    formatted = by_setting(body, read_sections)
    return _readable(formatted.content, formatted.total, body.content_type, formatted.kind, read_sections)


def _readable(
    content: bytes, total: int, content_type: str | None, kind: BodyKind, read_sections: ReadSections | None
) -> Readable:
    if total == 0:
        return Readable("nothing", "", "The body is empty.")
    if read_sections and kind is not BodyKind.DATA and len(content) >= total:
        sections = read_sections(kind, content)
        if isinstance(sections, Readable):
            return sections
        return _readable(sections, len(sections), content_type, BodyKind.DATA, None)
    cut = "" if len(content) >= total else f"The first {len(content):,} of {total:,} bytes."
    text = _as_text(content, is_cut=bool(cut))
    if text is None:
        note = f"The first {HEX_BYTES:,} of {total:,} bytes." if total > HEX_BYTES else ""
        return Readable("bytes", hex_dump(content[:HEX_BYTES]), note)
    if cut:
        return Readable("text", text, cut)
    if (pretty := pretty_json(text)) is not None:
        return Readable("JSON", pretty, "Indented for reading; numbers and texts are as sent.")
    if (pretty := pretty_xml(text)) is not None:
        return Readable("XML", pretty, "Indented for reading.")
    return Readable("text", text)


def pretty_json(text: str) -> str | None:
    """Indent JSON and keep every number, escape and repeated key as written; parsing would round or drop them.

    None: not a JSON object or array, or longer than INDENTED_AT_MOST when indented.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    out, depth, length, tokens = [], 0, len(text), _JSON_TOKEN.findall(text)
    for i, token in enumerate(tokens):
        length += len(_line(depth)) if token in "{}[]," else 0
        if length > INDENTED_AT_MOST:
            return None
        following = tokens[i + 1] if i + 1 < len(tokens) else ""
        if token in "{[":
            depth += 1
            out.append(token if following in ("}", "]") else token + _line(depth))
        elif token in "}]":
            depth -= 1
            opened = tokens[i - 1] in ("{", "[")
            out.append(token if opened else _line(depth) + token)
        elif token == ",":
            out.append("," + _line(depth))
        else:
            out.append(": " if token == ":" else token)
    return "".join(out)


def _line(depth: int) -> str:
    return "\n" + "  " * depth


def pretty_xml(text: str) -> str | None:
    """Indent XML. None: not XML, longer than INDENTED_AT_MOST when indented, or with a document type, whose entities may expand
    without limit."""
    if not text.lstrip().startswith("<") or "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    try:
        document = minidom.parseString(text.encode())
        if _indentation_of(document) > INDENTED_AT_MOST:
            return None
        lines = document.toprettyxml(indent="  ").splitlines()
    except (ExpatError, ValueError, RecursionError):
        return None
    return "\n".join(line for line in lines[(0 if text.lstrip().startswith("<?xml") else 1) :] if line.strip())


def _indentation_of(document: minidom.Document) -> int:
    """An upper bound of the characters that indenting adds."""
    added = 0
    pending: list[tuple[Any, int]] = [(node, 0) for node in document.childNodes]
    while pending:
        node, depth = pending.pop()
        added += 2 * (1 + 2 * depth)  # an element's tags may have a line each
        pending += [(child, depth + 1) for child in node.childNodes]
    return added


def hex_dump(content: bytes) -> str:
    """A hex dump with 16 bytes per line: offset, hexadecimal values, printable characters."""
    lines = []
    for offset in range(0, len(content), 16):
        chunk = content[offset : offset + 16]
        pairs = " ".join(f"{b:02x}" for b in chunk)
        characters = "".join(chr(b) if 32 <= b < 127 else "." for b in chunk)
        lines.append(f"{offset:08x}  {pairs:<47}  {characters}")
    return "\n".join(lines)


def _as_text(content: bytes, *, is_cut: bool) -> str | None:
    """Decode UTF-8; None if it is not text or has control characters. is_cut: the last character may be incomplete."""
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        if not is_cut or exc.start < len(content) - 4:
            return None
        text = content[: exc.start].decode()
    return None if _CONTROL.search(text) else text


def preview_of(address: EntityAddress, row: MessageRow, actor: Actor, read_sections: ReadSections | None = None) -> str | None:
    """The beginning of a stored message's body; None without the right to see it, empty if the message has left."""
    if Right.SEE_BODIES not in actor.rights:
        return None
    body = reads.body(address, row.sequence_number, length=PREVIEW_BYTES, actor=actor)
    return preview(body, read_sections) if body else ""


def preview(body: reads.Body, read_sections: ReadSections | None = None) -> str:
    """The beginning of a body in a line of text."""
    beginning = readable(replace(body, content=body.content[:PREVIEW_BYTES]), read_sections)
    return beginning.text or beginning.note
