"""The tables that a report's job made (explorer.analysis.jobs.reports), as stored with its result."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import msgpack
import pyarrow as pa
from pyarrow import ipc


class Tables:
    """Rows by the name of their table, each a named tuple of the table's columns. Instants are aware UTC."""

    def __init__(self, tables: Mapping[str, pa.Table]):
        self._tables = tables
        self._rows: dict[str, list[Any]] = {}

    @classmethod
    def unpacked(cls, content: bytes) -> Tables:
        """From the bytes that jobs.reporting packs."""
        streams = msgpack.unpackb(content)
        return cls({name: ipc.open_stream(stream).read_all() for name, stream in streams.items()})

    def __getitem__(self, name: str) -> list[Any]:
        """Raises KeyError if the job made no such table."""
        if name not in self._rows:
            table = self._tables[name]
            row = namedtuple(name, table.column_names)  # type: ignore[misc]
            self._rows[name] = [row(*values) for values in zip(*(column.to_pylist() for column in table.columns), strict=True)]
        return self._rows[name]

    def only_row(self, name: str) -> Any:
        """The only row of a table."""
        [row] = self[name]
        return row
