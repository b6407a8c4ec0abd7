"""Patterns of policies: whether one is found in a name, in bounded time (RMQ-370, RMQ-377, RMQ-919).

RabbitMQ matches with PCRE. The library `regex` takes nearly all of its syntax, look-ahead and look-behind included, and stops
a search after a given time. `google-re2` needs no limit, but takes no look-ahead, and `^(?!amq\\.)` is a very common pattern.
What `regex` does not know, or reads in another way than PCRE, is refused: see docs/rabbitmq.md#patterns.
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
MAX_REPEATS = 100_000  # the counts of all repetitions, multiplied: they are worked out when a pattern is compiled
SECONDS = 0.05  # of the processor, for one name; PCRE has a limit of steps, after which nothing is found either

# How PCRE words what `regex` found, where clients may look for it, and whether it points at the end of the pattern.
_PCRE_SAYS = {
    "unterminated character set": ("missing terminating ] for character class", True),
    "unbalanced parenthesis": ("unmatched parentheses", False),
    "bad escape (end of pattern)": ("\\ at end of pattern", True),
}
# As much of a pattern as means the same to both. `regex` has fuzzy matching such as {e<=1}, counts such as {,3}, and flags and
# escapes of its own. Possessive, so that it cannot run away itself.
_SAME = re.compile(
    r"""(?: \\[pP]\{[^}]*\} | \\[^LMUVmuv] | \\\Z                                             # escapes
          | \[\^?\]? (?: [^\]\\\[] | \\. | \[(?::\^?\w+:\])? )*+ (?:\]|\Z)                    # sets of characters
          | \( (?: (?!\?) | \?(?: [imsx]*(?:-[imsx]+)?[:)] | [=!|>\#<&(] | P[<=>] | R\) | [+-]?\d+\) ))   # groups
          | \{\d+(?:,\d*)?\} | [^\\{\[(] )*+""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> regex.Pattern:
    """The pattern, ready to be searched for. Raises InvalidPolicy where it is none, or one that is refused."""
    if len(pattern) > MAX_PATTERN:
        raise _invalid(f"has {len(pattern)} characters; at most {MAX_PATTERN} are allowed", MAX_PATTERN)
    if pattern.count("(") > MAX_GROUPS:
        raise _invalid(f"has more than {MAX_GROUPS} groups", 0)
    if math.prod(max(int(count), 1) for count in re.findall(r"[{,](\d+)(?=\})", pattern)) > MAX_REPEATS:
        raise _invalid(f"repetitions have counts of more than {MAX_REPEATS:,} in all", 0)
    try:
        found = regex.compile(pattern, regex.ASCII)
    except regex.error as exc:
        text, at_end = _PCRE_SAYS.get(exc.msg, (exc.msg, False))
        raise _invalid(text, len(pattern) if at_end else exc.pos or 0) from exc
    except (ValueError, RecursionError, OverflowError) as exc:
        raise _invalid(str(exc), 0) from exc
    same = _SAME.match(pattern)
    if same is not None and same.end() < len(pattern):
        raise _invalid(f"{pattern[same.end() :][:8]} is not supported; write \\{{ for a brace", same.end())
    return found


def check(pattern: str) -> None:
    """Raise InvalidPolicy where it is no pattern, or one that is refused, or takes too long on a name made of its own letters."""
    search = compiled(pattern).search
    for letter in list(dict.fromkeys(filter(str.isalnum, f"a{pattern}")))[:8]:
        try:
            search(letter * 200 + "!", timeout=SECONDS)
        except TimeoutError as exc:
            raise _invalid(f"takes too long on a name such as {letter * 3}...; nest fewer repetitions", 0) from exc


@lru_cache(maxsize=16384)
def found(pattern: str, name: str) -> bool:
    """Whether the pattern is found anywhere in the name; one that is refused, or takes too long, is not."""
    try:
        return compiled(pattern).search(name, timeout=SECONDS) is not None
    except (errors.InvalidPolicy, TimeoutError):
        return False


def _invalid(problem: str, position: int) -> errors.InvalidPolicy:
    reason = f"pattern should be regular expression but is invalid: {term((Chars(problem), position))}"
    advice = "Correct the pattern; ^orders\\. matches names that begin with orders."
    return errors.InvalidPolicy("pattern", reason, advice=advice)
