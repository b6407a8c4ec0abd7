"""The named SQL statements, loaded at import from the `sql/` folders of `store` and of each family.

A file holds statements (`-- name: send`) and fragments (`-- fragment: entity`). A line `-- include: entity` is replaced by the
fragment's text, and a name such as `@EVENT_SENT` by the number of an enum's member (NAMED). SQL is assembled in no other way;
`manage.py show_sql NAME` prints a statement as it is run.

A statement that ends messages has a variant that keeps them for a while (docs/design.md D20): `complete_keeping`. Its text is
that of the statement, where `-- keeping: TEXT` becomes the text, and `-- kept from: CTE` the insert of the CTE's rows. In the
statement itself both are comments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import _queries

from broker_core.common.arguments import wrong_kind
from broker_core.common.types import (
    BodyKind,
    EventKind,
    HistoryLevel,
    HoldKind,
    LedgerState,
    MessageState,
    SubQueue,
    UseKind,
    WaitKind,
)

PACKAGE = Path(__file__).parents[1]
# The prefixes of names in statements, each with its enum: @STATE_ACTIVE is MessageState.ACTIVE.
NAMED: Mapping[str, type[IntEnum]] = MappingProxyType(
    {
        "SUBQUEUE": SubQueue,
        "STATE": MessageState,
        "LEDGER": LedgerState,  # values of the ledger's `state` beyond a message's
        "EVENT": EventKind,
        "OP": EventKind,  # the ledger's `op`: the kind of event that a row counts
        "HOLD": HoldKind,
        "HISTORY": HistoryLevel,
        "BODY": BodyKind,
        "WAIT": WaitKind,
        "USE": UseKind,
    }
)
_SECTION = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)[sb]::(\w+)(\[\])?")
_KIND: dict[str, Any] = {
    "text": str,
    **dict.fromkeys(("bool", "boolean"), bool),
    **dict.fromkeys(("bigint", "int", "int2", "int4", "int8", "smallint"), int),
    "float8": (float, int),
    "bytea": (bytes, bytearray, memoryview),
    "interval": timedelta,
    "timestamptz": datetime,
    "uuid": UUID,
}
RANDOM_PREFIXES = ("token_prefix", "id_prefix")  # of lock tokens and message ids (fragment lock_token)
_INCLUDE = re.compile(r"^[ \t]*-- include: (\w+)[ \t]*$", re.MULTILINE)
_KEEPING = re.compile(r"^[ \t]*-- (keeping|kept from): (.+)$", re.MULTILINE)
KEEPING = "_keeping"  # the end of a variant's name
_NAME = re.compile(r"@([A-Z]+)_([A-Z_]+)\b")


class Statement(NamedTuple):
    """A named statement and its parameters. Use cases yield it, drivers run it."""

    name: str
    params: dict[str, Any]

    @property
    def sql(self) -> str:
        return SQL[self.name]


def call(name: str, /, **params: Any) -> Statement:
    """The named statement with these parameters; those of RANDOM_PREFIXES are made here. Raises KeyError for an unknown name."""
    if name not in SQL:
        raise KeyError(f"no statement {name!r} in {PACKAGE}/*/sql")
    for parameter in _PREFIXES.get(name, ()):
        params[parameter] = _random_prefix()
    return Statement(name, params)


def check(statement: Statement) -> None:
    """Raise InvalidArgument for a parameter whose type differs from the cast in the statement. Cursors need this check: they and
    PostgreSQL accept 'yesterday' as a timestamp, 'yes' as a boolean, and a naive datetime as one in the server's time zone. The
    direct path writes no such value (store/direct.py).
    """
    for parameter, (is_list, kind, classes) in _KINDS[statement.name].items():
        value = statement.params.get(parameter)
        if value is None:
            continue
        if not is_list:
            if value.__class__ not in classes:
                _require(parameter, value, kind)
        elif not isinstance(value, list | tuple):
            raise wrong_kind(parameter, value, list)
        elif not classes.issuperset(map(type, value)):
            for item in value:
                if item is not None:
                    _require(parameter, item, kind)


def _random_prefix() -> str:
    """The first 17 hexadecimal digits of a UUID: 60 random bits, and an 8 for its version and for its variant."""
    digits = os.urandom(8).hex()
    return f"{digits[:12]}8{digits[12:15]}8"


def _require(parameter: str, value: Any, kind: Any) -> None:
    is_wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    if is_wrong or (isinstance(value, datetime) and value.tzinfo is None):
        raise wrong_kind(parameter, value, kind[0] if isinstance(kind, tuple) else kind)


def load(files: Iterable[Path]) -> dict[str, str]:
    """The statements of these files by name, with comments; fragments are included and enum names replaced by numbers.

    Raises ValueError for an unknown enum name (with file and line), a missing fragment, and a duplicate definition.
    """
    statements: dict[str, str] = {}
    fragments: dict[str, str] = {}
    for file in sorted(files):
        parts = _SECTION.split(_with_numbers(file.read_text(), file))[1:]
        for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            texts = statements if kind == "name" else fragments
            if name in texts:
                raise ValueError(f"{kind} {name!r} is defined twice, the second time in {file}")
            texts[name] = text.strip().removesuffix(";").rstrip()
    whole = {name: _with_fragments(name, text, fragments) for name, text in statements.items()}
    return whole | {name + KEEPING: _keeping(text, fragments) for name, text in whole.items() if _KEEPING.search(text)}


def _keeping(text: str, fragments: dict[str, str]) -> str:
    """The variant of a statement that keeps the messages which it ends."""

    def added(match: re.Match[str]) -> str:
        what, rest = match.groups()
        return rest if what == "keeping" else f"kept_messages AS (\n{fragments['kept']}\n      FROM {rest}),"

    return _KEEPING.sub(added, text)


def _with_numbers(text: str, file: Path) -> str:
    def number(match: re.Match[str]) -> str:
        enum, member = NAMED.get(match[1]), match[2]
        if enum is not None and member in enum.__members__:
            return str(int(enum[member]))
        line = text.count("\n", 0, match.start()) + 1
        known = (
            [f"@{match[1]}_{known_name}" for known_name in enum.__members__]
            if enum
            else [f"@{known_name}_..." for known_name in NAMED]
        )
        raise ValueError(f"{file}:{line}: unknown name {match[0]}; the known ones are {', '.join(known)}")

    return _NAME.sub(number, text)


def _with_fragments(name: str, text: str, fragments: dict[str, str]) -> str:
    while missing := _INCLUDE.search(text):
        if missing[1] not in fragments:
            raise ValueError(f"statement {name!r} includes {missing[1]!r}, and there is no such fragment")
        text = _INCLUDE.sub(lambda match: fragments.get(match[1], match[0]), text)
    return text


def _bare(text: str) -> str:
    """The text without comments and indentation, so that the server parses less. No literal contains two dashes."""
    lines = (line.partition("--")[0].strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _kinds_in(text: str) -> dict[str, tuple[bool, Any, frozenset]]:
    """For each parameter with a cast: whether it is a list, its type, and the classes that need no further check."""
    kinds: dict[str, tuple[bool, Any, frozenset]] = {}
    for name, type_name, brackets in _PARAMETER.findall(text):
        kind: Any = _KIND.get(type_name)
        if kind:
            sure = {kind} - {datetime} if isinstance(kind, type) else set(kind)
            kinds[name] = (bool(brackets), kind, frozenset(sure | {type(None)} if brackets else sure))
    return kinds


SOURCE: dict[str, str] = load(PACKAGE.glob("*/sql/*.sql"))  # with comments, for readers
SQL: dict[str, str] = {name: _bare(text) for name, text in SOURCE.items()}  # as run
ENDING = frozenset(name.removesuffix(KEEPING) for name in SQL if name.endswith(KEEPING))  # those with a variant that keeps
_KINDS = {name: _kinds_in(text) for name, text in SQL.items()}
_PREFIXES = {name: prefixes for name, text in SQL.items() if (prefixes := [p for p in RANDOM_PREFIXES if f"%({p})s" in text])}

# psycopg caches the parsed form of statements of at most 4,096 characters. Two dozen here are longer, and parsing one costs 30 to
# 50 µs of CPU per call (receive: 32 µs instead of 2). There is no public setting; without this, everything works but slower.
if hasattr(_queries, "MAX_CACHED_STATEMENT_LENGTH"):
    _queries.MAX_CACHED_STATEMENT_LENGTH = max(map(len, SQL.values()))
