"""Policy patterns: matching a name in bounded time (RMQ-370, RMQ-377, RMQ-919).

RabbitMQ uses PCRE. The library `regex` supports nearly all of its syntax, including look-ahead and look-behind, and has a
timeout. `google-re2` needs no timeout, but does not support look-ahead, and `^(?!amq\\.)` is a very common pattern. Syntax
that `regex` does not support, or interprets differently from PCRE, is refused: see docs/rabbitmq.md#patterns.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import regex

from . import errors
from .erlang import Chars, term

MAX_PATTERN = 1000  # characters
MAX_GROUPS = 100
MAX_REPEATS = 100_000  # product of all repetition counts, which are expanded at compile time
SECONDS = 0.05  # CPU time for one name; PCRE similarly gives up after a number of steps

# PCRE's wording of errors of `regex` that clients may compare, and whether the position is the end of the pattern.
_PCRE_SAYS = {
    "unterminated character set": ("missing terminating ] for character class", True),
    "unbalanced parenthesis": ("unmatched parentheses", False),
    "bad escape (end of pattern)": ("\\ at end of pattern", True),
}
# Syntax with the same meaning in both. `regex` also has fuzzy matching such as {e<=1}, counts such as {,3}, and its own flags and
# escapes. Possessive, to prevent backtracking.
_SAME = regex.compile(  # by `regex`: possessive repetitions of `re` are wrong before Python 3.11.5
    r"""(?: \\[pP]\{[^}]*\} | \\[^LMUVmuv] | \\\Z                                             # escapes
          | \[\^?\]? (?: [^\]\\\[] | \\. | \[(?::\^?\w+:\])? )*+ (?:\]|\Z)                    # sets of characters
          | \( (?: (?!\?) | \?(?: [imsx]*(?:-[imsx]+)?[:)] | [=!|>\#<&(] | P[<=>] | R\) | [+-]?\d+\) ))   # groups
          | \{\d+(?:,\d*)?\} | [^\\{\[(] )*+""",
    regex.VERBOSE | regex.DOTALL,
)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> regex.Pattern:
    """The compiled pattern. Raises InvalidPolicy if it is invalid or refused."""
    if len(pattern) > MAX_PATTERN:
        raise _invalid(f"has {len(pattern)} characters; at most {MAX_PATTERN} are allowed", MAX_PATTERN)
    if pattern.count("(") > MAX_GROUPS:
        raise _invalid(f"has more than {MAX_GROUPS} groups", 0)
    if math.prod(max(int(count), 1) for count in re.findall(r"[{,](\d+)(?=\})", pattern)) > MAX_REPEATS:
        raise _invalid(f"repetitions have counts of more than {MAX_REPEATS:,} in all", 0)
    try:
        expression = regex.compile(pattern, regex.ASCII)
    except regex.error as exc:
        text, at_end = _PCRE_SAYS.get(exc.msg, (exc.msg, False))
        raise _invalid(text, len(pattern) if at_end else exc.pos or 0) from exc
    except (ValueError, RecursionError, OverflowError) as exc:
        raise _invalid(str(exc), 0) from exc
    supported = _SAME.match(pattern)
    if supported is not None and supported.end() < len(pattern):
        raise _invalid(f"{pattern[supported.end() :][:8]} is not supported; write \\{{ for a brace", supported.end())
    return expression


def check(pattern: str) -> None:
    """Raises InvalidPolicy if the pattern is invalid or refused, or takes too long on a name made of its own characters."""
    search = compiled(pattern).search
    for letter in list(dict.fromkeys(filter(str.isalnum, f"a{pattern}")))[:8]:
        try:
            search(letter * 200 + "!", timeout=SECONDS)
        except TimeoutError as exc:
            raise _invalid(f"takes too long on a name such as {letter * 3}...; nest fewer repetitions", 0) from exc


@lru_cache(maxsize=16384)
def matches(pattern: str, name: str) -> bool:
    """Whether the pattern matches anywhere in the name; a refused pattern or one that takes too long does not."""
    try:
        return compiled(pattern).search(name, timeout=SECONDS) is not None
    except (errors.InvalidPolicy, TimeoutError):
        return False


def _invalid(problem: str, position: int) -> errors.InvalidPolicy:
    reason = f"pattern should be regular expression but is invalid: {term((Chars(problem), position))}"
    advice = "Correct the pattern; ^orders\\. matches names that begin with orders."
    return errors.InvalidPolicy("pattern", reason, advice=advice)
