"""Writes all CSV files, safe against formula injection: names in them are chosen by other users than the reader."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO
from typing import Any

from django.http import HttpResponse

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # characters that start a formula in spreadsheets


def csv_file(name: str, rows: Iterable[Iterable[Any]]) -> HttpResponse:
    """A download with the file name `name`. Texts that a spreadsheet would run as formulas are prefixed with an apostrophe."""
    response = HttpResponse(
        content_type="text/csv; charset=utf-8", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
    csv.writer(response).writerows([_cell(value) for value in row] for row in rows)
    return response


def csv_line(row: Iterable[Any]) -> str:
    """A line of a file that is sent while it is read."""
    line = StringIO()
    csv.writer(line).writerow([_cell(value) for value in row])
    return line.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA) else value
