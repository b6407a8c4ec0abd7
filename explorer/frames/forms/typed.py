"""Rows of a form, each with a name, a type and a text: properties, headers, arguments. A family says which types there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import QueryDict

from broker_core.common.errors import InvalidArgument

EMPTY_ROWS = 3
Row = tuple[str, str, str]  # name, type, text


class TypedRows:
    """The rows of a form with the fields prefix_name, prefix_type and prefix_value, each once per row.

    noun: for a row, for labels and errors. least: the minimum number of rows shown. kept: the values of rows that are left as
    they are, where the text does not say it all.
    """

    types: Sequence[str]

    def __init__(
        self,
        prefix: str,
        noun: str,
        data: QueryDict | None,
        initial: Sequence[Row] = (),
        *,
        least: int = EMPTY_ROWS,
        kept: Mapping[Row, Any] | None = None,
    ):
        self.prefix, self.noun, self._least, self._kept = prefix, noun, least, kept or {}
        self.entered = list(initial) if data is None else _entered(data, prefix)
        self.errors: list[str] = []

    @property
    def rows(self) -> list[Row]:
        """The rows as typed, followed by empty ones."""
        return self.entered + [("", "string", "")] * max(1, self._least - len(self.entered))

    def values(self) -> dict[str, Any]:
        """The values by name; those that are invalid are reported in `errors`."""
        self.errors = []
        values: dict[str, Any] = {}
        for name, kind, text in self.entered:
            try:
                self.check_name(name.strip(), values)
                row = (name, kind, text)
                values[name.strip()] = self._kept[row] if row in self._kept else self.value(name.strip(), kind, text)
            except InvalidArgument as exc:
                self.errors.append(str(exc))
        return values

    def check_name(self, name: str, values: dict[str, Any]) -> None:
        """Raise InvalidArgument if a row cannot have this name. values: those of the rows before."""

    def value(self, name: str, kind: str, text: str) -> Any:
        """The text as a value of the chosen type. Raises InvalidArgument."""
        raise NotImplementedError


def _entered(data: QueryDict, prefix: str) -> list[Row]:
    columns = (data.getlist(f"{prefix}_{part}") for part in ("name", "type", "value"))
    return [row for row in zip(*columns, strict=False) if row[0].strip() or row[2].strip()]
