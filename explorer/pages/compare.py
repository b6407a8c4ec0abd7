"""Compares two messages: the properties in which they differ, and the lines of their bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_http_methods

from broker_core.common.types import EntityAddress
from broker_core.reads import EntityRow
from explorer.bodies import display
from explorer.frames import message_record
from explorer.frames.presenters import absolute
from explorer.frames.shell import BadQuery, address_of, page, show
from explorer.frames.split import chosen_message
from explorer.frames.values import Fact

MOST_LINES = 1_500  # of each body
CONTEXT = 3  # equal lines around a difference
SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Row:
    """A property of both messages; None: the message does not have it."""

    name: str
    a: str | None
    b: str | None

    @property
    def differs(self) -> bool:
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class Line:
    """A line of both bodies. kind: equal, changed, removed (only in the first), added; or a gap of `count` equal lines."""

    kind: str
    a: str = ""
    b: str = ""
    count: int = 0


@page
@require_http_methods(["GET", "POST"])
def compare(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET compares the messages `a` and `b`: numbers in this entity, or "namespace/path/number". POST takes the selection of a
    list and redirects to the GET, whose address can be shared."""
    address = address_of(namespace, path)
    if request.method == "POST":
        numbers = request.POST.getlist("numbers")
        if len(numbers) != len(SIDES):
            raise BadQuery([("numbers", f"Select two messages to compare, not {len(numbers)}.")])
        return HttpResponseRedirect(f"{request.path}?{urlencode(dict(zip(SIDES, numbers, strict=True)))}")
    sides = [_side(request, address, name) for name in SIDES]
    rows = list(differences(*(_properties(side) for side in sides)))
    first = sides[0]
    context = {
        **{name: first[name] for name in ("section", "entity", "address", "clock", "may")},
        "sides": sides,
        "different": [row for row in rows if row.differs],
        "same": [row for row in rows if not row.differs],
        **_bodies(sides),
    }
    return show(request, "compare", context)


def _side(request: HttpRequest, address: EntityAddress, name: str) -> dict[str, Any]:
    text = request.GET.get(name, "")
    if not text:
        raise BadQuery([(name, "Name two messages to compare, a and b.")])
    chosen, number = chosen_message(text, address, name)
    return message_record.context_of(request, chosen, number)


def _properties(side: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a message by name, as texts."""
    values = {"Entity": str(side["address"]), "Message ID": side["message_id"] or "", "State": side["state"].badge.word}
    values |= {fact.name: _text(fact) for fact in side["facts"]}
    values |= {f"{name} ({kind})": "" if text is None else str(text) for name, kind, text, _ in side["application_properties"]}
    return values


def _text(fact: Fact) -> str:
    return " ".join(filter(None, [absolute(fact.at) if fact.at else fact.text, fact.note]))


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Row]:
    """The properties of both, in the order of the first, then those that only the second has."""
    for name in [*a, *(name for name in b if name not in a)]:
        yield Row(name, a.get(name), b.get(name))


def _bodies(sides: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Context of the bodies: their lines, or why they are not compared."""
    views = [side.get("body") for side in sides]
    if not all(isinstance(view, display.BodyView) for view in views):
        any_gone = any(not isinstance(side["entity"], EntityRow) or side["detail"] is None for side in sides)
        large = any(side.get("body_is_large") for side in sides)
        why = "removed with its message" if any_gone else "larger than 16 KB" if large else "not visible to you"
        return {"no_bodies": f"The bodies are not compared: one is {why}."}
    texts = [_lines(view) for view in views if view is not None]
    cut = any(len(lines) > MOST_LINES for lines in texts)
    lines = list(compared(*(lines[:MOST_LINES] for lines in texts)))
    return {
        "lines": [] if all(line.kind in ("equal", "gap") for line in lines) else lines,
        "are_equal": texts[0] == texts[1],
        "cut": f"Only the first {MOST_LINES:,} lines are compared." if cut else "",
    }


def _lines(view: display.BodyView) -> list[str]:
    """The lines of a body; JSON and XML are indented, so that each value has a line of its own."""
    pretty = {"JSON": display.pretty_json, "XML": display.pretty_xml}.get(view.form)
    return ((pretty(view.text) if pretty else None) or view.text).splitlines()


def compared(a: Sequence[str], b: Sequence[str]) -> Iterator[Line]:
    """The lines of both texts beside each other, with CONTEXT equal lines around each difference."""
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    for kind, a1, a2, b1, b2 in blocks:
        if kind == "equal":
            before, after = (a1 > 0 or b1 > 0) * CONTEXT, (a2 < len(a) or b2 < len(b)) * CONTEXT
            hidden = a2 - a1 - before - after
            pairs = [Line("equal", x, y) for x, y in zip(a[a1:a2], b[b1:b2], strict=True)]
            if hidden > 1:
                yield from pairs[:before]
                yield Line("gap", count=hidden)
                yield from pairs[len(pairs) - after :]
            else:
                yield from pairs
            continue
        both = min(a2 - a1, b2 - b1)
        yield from (Line("changed", a[a1 + i], b[b1 + i]) for i in range(both))
        yield from (Line("removed", line) for line in a[a1 + both : a2])
        yield from (Line("added", b=line) for line in b[b1 + both : b2])
