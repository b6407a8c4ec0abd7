"""The statements, read at import from the `sql/` folders of `store` and of each family, and known by name.

A file holds statements (`-- name: send`) and fragments (`-- fragment: entity`). A line `-- include: entity` in a statement stands
for the fragment's text, so that what several statements share is written once. Nothing else is ever put together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import _queries

PACKAGE = Path(__file__).parents[1]
_SECTION = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*-- include: (\w+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A named statement and its parameters; what use cases yield and drivers run."""

    name: str
    params: dict[str, Any]

    @property
    def sql(self) -> str:
        return SQL[self.name]


def call(name: str, /, **params: Any) -> Statement:
    """A statement to be run. KeyError for a name that no file has."""
    if name not in SQL:
        raise KeyError(f"no statement {name!r} in {PACKAGE}/*/sql")
    return Statement(name, params)


def _load() -> dict[str, str]:
    statements: dict[str, str] = {}
    fragments: dict[str, str] = {}
    for file in sorted(PACKAGE.glob("*/sql/*.sql")):
        parts = _SECTION.split(file.read_text())[1:]
        for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found = statements if kind == "name" else fragments
            if name in found:
                raise ValueError(f"{kind} {name!r} is defined twice, the second time in {file}")
            found[name] = text.strip().removesuffix(";")
    return {name: _bare(_with_fragments(text, fragments)) for name, text in statements.items()}


def _with_fragments(text: str, fragments: dict[str, str]) -> str:
    while _INCLUDE.search(text):
        text = _INCLUDE.sub(lambda found: fragments[found[1]], text)
    return text


def _bare(text: str) -> str:
    """Without comments and indentation (no literal of ours holds two dashes): the server reads less."""
    lines = (line.partition("--")[0].strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


SQL: dict[str, str] = _load()

# psycopg remembers how it read a statement of at most so many characters; ours are few and long, and reading one anew costs it
# 0.1 ms. It has no public setting for that; without this one everything works, slower.
_queries.MAX_CACHED_STATEMENT_LENGTH = max(map(len, SQL.values()))
