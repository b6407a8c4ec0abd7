"""A table as a CSV file. The only writer of CSV: names in it are chosen by people who are not those who open it."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any

from django.http import HttpResponse

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what spreadsheets take for the start of one


def csv_file(name: str, rows: Iterable[Iterable[Any]]) -> HttpResponse:
    """A download called `name`. A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay."""
    response = HttpResponse(
        content_type="text/csv; charset=utf-8", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
    csv.writer(response).writerows([_cell(value) for value in row] for row in rows)
    return response


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA) else value
