"""Snippets: one operation each, put together to the programs that a page prints. Pure."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from broker_core.common.types import EntityAddress, SubQueue

ADDRESS = "from broker_core.common.types import EntityAddress"  # imports of snippets
TIME = "from datetime import timedelta"
# Every way that a page can show; one without a program is not shown. The last three speak network protocols that Vitrine does not
# serve yet: a family gives programs for them once they run against this site.
LANGUAGES = {
    "python": "Python",
    "http": "HTTP",
    "azure-servicebus": "azure-servicebus",
    "azure-storage-queue": "azure-storage-queue",
    "pika": "pika",
}
_SHELL = "# .venv/bin/python manage.py shell"
Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Code:
    """What an operation is in code. lines: in Python, after its imports. requests: commands of curl, where $Q is the URL of
    http_at; empty: the HTTP API has no such operation."""

    imports: Sequence[str]
    lines: str
    requests: str = ""
    http_at: EntityAddress | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that can be shown. write: (address, arguments) -> its code. icon: of its tab."""

    title: str
    write: Callable[[EntityAddress, Args], Code]


@dataclass(frozen=True, slots=True)
class Program:
    """A program as it is printed. name, title: of its language."""

    name: str
    title: str
    text: str


def programs(codes: Sequence[Code], base: str) -> list[Program]:
    """The programs of operations in their order. base: the URL of the site."""
    texts = {"python": _python(codes), "http": _http(codes, base) if codes and all(code.requests for code in codes) else ""}
    return [Program(name, title, texts[name]) for name, title in LANGUAGES.items() if texts.get(name)]


def _python(codes: Sequence[Code]) -> str:
    imports = sorted({line for code in codes for line in code.imports}, key=lambda line: ("broker_core" in line, line))
    return "\n".join([_SHELL, *imports, "", *(code.lines.strip("\n") for code in codes), ""])


def _http(codes: Sequence[Code], base: str) -> str:
    lines, at = [], None
    for code in codes:
        if code.http_at != at and code.http_at is not None:
            at = code.http_at
            lines += [f"Q={shlex.quote(url(at, base))}", 'TOKEN=$(.venv/bin/python manage.py sas_token "$Q")']
        lines.append(code.requests.strip("\n"))
    return "\n".join([*lines, ""])


def url(at: EntityAddress, base: str) -> str:
    """The URL of an entity in the runtime REST API."""
    dead = {SubQueue.MAIN: "", SubQueue.DEAD_LETTER: "/$DeadLetterQueue"}.get(at.subqueue, "/$Transfer/$DeadLetterQueue")
    return f"{base.rstrip('/')}/servicebus/{quote(at.namespace)}/{quote(at.path)}{dead}"


def address(at: EntityAddress) -> str:
    """An address in Python."""
    suffix = {SubQueue.MAIN: "", SubQueue.DEAD_LETTER: ".dead_letter"}.get(at.subqueue, ".transfer_dead_letter")
    return f"EntityAddress({literal(at.namespace)}, {literal(at.path)}){suffix}"


def literal(value: Any) -> str:
    """A value in Python. Texts are in double quotes."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if text.isprintable() else repr(value)
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return f"timedelta(seconds={int(seconds) if seconds.is_integer() else seconds})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    return repr(value)


def advance(at: EntityAddress, args: Args) -> Code:
    """The clock of the namespace is advanced, in all families."""
    name, by = literal(at.namespace), literal(args.get("by", timedelta(minutes=1)))
    lines = f"namespaces.step_clock({name}, {by})\nsweeps.follow_clock({name})  # what is due happens now"
    return Code(["from broker_core import namespaces, sweeps", TIME], lines)


def calling(text: str, module: str) -> Callable[[EntityAddress, Args], Code]:
    """A call in Python. {at}: the address; {number}: of a message, or 1. module: the import that it needs."""
    return lambda at, args: Code([module, ADDRESS], text.format(at=address(at), number=args.get("number") or 1))


def editing(call: str, content: str, module: str) -> Callable[[EntityAddress, Args], Code]:
    """An edit of a message. call, content: the use case, and the argument with the new content. module: as in `calling`."""

    def write(at: EntityAddress, args: Args) -> Code:
        place, number = address(at), args.get("number") or 1
        lines = f"message = reads.message({place}, {number})\n{call}({place}, {number}, {content}, version=message.version)"
        return Code([module, ADDRESS, "from broker_core import reads"], lines)

    return write


def arguments(values: Mapping[str, Any]) -> str:
    """Named arguments of a call, those that are given, each after a comma."""
    return "".join(f", {name}={literal(value)}" for name, value in values.items() if value is not None)


def body_literal(body: bytes) -> str:
    """A body in Python, as text where it is one."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return repr(body)
    return f"{literal(text)}.encode()" if not text.isascii() else "b" + literal(text) if text.isprintable() else repr(body)


def curl_data(body: bytes) -> tuple[str, str]:
    """(what comes before curl, its argument) that sends this body, byte for byte."""
    try:
        text = body.decode()
        if "\x00" not in text and not text.startswith("@"):
            return "", f"--data-binary {shlex.quote(text)}"
    except UnicodeDecodeError:
        pass
    return f"printf %s {base64.b64encode(body).decode()} | base64 -d | ", "--data-binary @-"


def plain_properties(properties: Mapping[str, tuple[str, str | None]]) -> dict[str, Any]:
    """Application properties that a plain Python value says: texts, numbers and booleans. properties: name -> (type, text)."""
    return {name: _PLAIN[kind](text) for name, (kind, text) in properties.items() if kind in _PLAIN and text is not None}


_PLAIN: dict[str, Callable[[str], Any]] = {
    "string": str, "longstr": str, "int": int, "signedint": int, "double": float, "boolean": "true".__eq__, "bool": "true".__eq__,
}  # fmt: skip
