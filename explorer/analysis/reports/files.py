"""A report's table as a file: CSV or Parquet, with all rows, times in UTC and durations in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.http import HttpResponse

from explorer.frames.csv_file import csv_file

from .report import KINDS, Table, plain

FORMATS = {"csv": "CSV", "parquet": "Parquet"}


def download(table: Table, name: str, file_format: str) -> HttpResponse:
    """The table in one of FORMATS, as a file called `name`."""
    if file_format == "csv":
        return csv_file(f"{name}.csv", csv_rows(table))
    headers = {"Content-Disposition": f'attachment; filename="{name}.parquet"'}
    return HttpResponse(parquet(table), content_type="application/vnd.apache.parquet", headers=headers)


def csv_rows(table: Table) -> Iterator[list[Any]]:
    yield [column.file_name for column in table.columns]
    for row in _values(table):
        yield ["" if value is None else value.isoformat() if hasattr(value, "isoformat") else value for value in row]


def parquet(table: Table) -> bytes:
    rows, file = list(_values(table)), BytesIO()
    arrays = [pa.array([row[i] for row in rows], KINDS[c.kind].arrow) for i, c in enumerate(table.columns)]
    pq.write_table(pa.table(arrays, names=[column.file_name for column in table.columns]), file)
    return file.getvalue()


def _values(table: Table) -> Iterator[list[Any]]:
    for row in table.rows:
        pairs = zip(table.columns, map(plain, row), strict=True)
        yield [None if value is None else KINDS[column.kind].plain(value) for column, value in pairs]
