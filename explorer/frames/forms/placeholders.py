"""Placeholders in a message that a form sends several copies of: each copy gets texts of its own."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable
from datetime import datetime

from django import forms

_PLACEHOLDER = re.compile(r"\{(n|uuid|now|random)\}")
HELP = "{n}: number of the copy, {uuid}: a random UUID, {now}: the time, {random}: 0 to 999. Other braces stay."


def fill_field() -> forms.BooleanField:
    """The check box that turns placeholders on; off, texts are sent as typed."""
    return forms.BooleanField(required=False, label="Fill in placeholders", help_text=HELP)


def filler(number: int, at: datetime, *, fills: bool = True) -> Callable[[str], str]:
    """A function that fills the placeholders in the texts of one copy. number: of the copy, from 1. fills: False keeps texts."""
    values: dict[str, Callable[[], str]] = {
        "n": lambda: str(number),
        "now": at.isoformat,
        "uuid": lambda: str(uuid.uuid4()),
        "random": lambda: str(random.randrange(1000)),
    }
    return (lambda text: _PLACEHOLDER.sub(lambda match: values[match[1]](), text)) if fills else str
