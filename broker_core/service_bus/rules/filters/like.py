"""LIKE: patterns as regular expressions without exponential backtracking (SB-F08)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from broker_core.common.errors import FilterEvaluationError


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, escape: str | None = None) -> Callable[[str], bool]:
    """A function that tests whether a string matches. % matches any characters, _ one; the escape makes the next character
    literal.

    The time is at most proportional to the product of the lengths of pattern and string: each % ends at the first match of the
    part after it, without backtracking. Raises FilterEvaluationError for an escape that is not one character, or that ends the
    pattern.
    """
    parts = _parts(pattern, escape)
    if len(parts) == 1:
        return _matcher(parts[0])
    first, *middle, last = parts
    source = first + "".join(f"(?>.*?{part})" for part in middle if part) + f".*{last}"
    return _matcher(source)


def _matcher(source: str) -> Callable[[str], bool]:
    matches = re.compile(source, re.DOTALL).fullmatch
    return lambda text: matches(text) is not None


def _parts(pattern: str, escape: str | None) -> list[str]:
    """The parts between the %, each as a regular expression of fixed length."""
    if escape is not None and len(escape) != 1:
        raise FilterEvaluationError(f"the escape of LIKE must be one character, not {escape[:20]!r}")
    parts, characters = [""], iter(pattern)
    for character in characters:
        if character == escape:
            plain = next(characters, None)
            if plain is None:
                raise FilterEvaluationError(f"the pattern of LIKE ends with its escape character {escape!r}")
            parts[-1] += re.escape(plain)
        elif character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    return parts
