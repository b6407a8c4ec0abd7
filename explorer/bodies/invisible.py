"""Shows texts of messages so that nothing in them is invisible. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

_CATEGORIES = ("Cc", "Cf", "Zl", "Zp")  # controls, formats, such as those that change the direction, and separators of lines


def visible(text: Any) -> SafeString:
    """A text in which each invisible character, and each that changes the direction, is shown as "U+202E"; "(empty)" for none."""
    if text == "":
        return format_html('<span class="{}">(empty)</span>', "quiet")
    return format_html_join("", "{}", ((part,) for part in _parts(str(text))))


def _parts(text: str) -> Iterator[str]:
    for is_hidden, characters in groupby(text, _is_invisible):
        if is_hidden:
            yield from (format_html('<span class="code-point">U+{}</span>', f"{ord(character):04X}") for character in characters)
        else:
            yield "".join(characters)


def _is_invisible(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in _CATEGORIES
