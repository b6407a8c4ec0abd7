"""Rows of a form that are forms themselves: those that are stored or were typed, then empty ones to add."""

from __future__ import annotations

from typing import Any

from django import forms


class RowSet(forms.BaseFormSet):
    """A set of rows. A row of which nothing is left, or that is to be removed, is none."""

    @property
    def filled(self) -> list[Any]:
        return [form for form in self.forms if form.initial or (form.is_bound and form.has_changed())]

    @property
    def empty(self) -> list[Any]:
        return [form for form in self.forms if form not in self.filled]


def row_set(form: type[forms.Form], rows: type[RowSet], most: int) -> type[Any]:
    """The class of a set of at most so many rows."""
    limits = {"extra": most, "max_num": most, "absolute_max": most}
    return forms.formset_factory(form, formset=rows, validate_max=True, can_delete=True, can_delete_extra=False, **limits)
