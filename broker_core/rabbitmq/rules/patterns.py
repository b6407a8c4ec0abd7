"""Patterns of policies: what `re.search` says, in bounded time for any pattern and any name (RMQ-370, RMQ-377, RMQ-919).

Python's `re` tries one way after the other, so `(a+)+$` on thirty letters takes minutes, and so does `.*.*.*.*x` on a long
name. Here `re` only parses. Matching follows all ways at once: a set of positions in the name goes in at one end of the pattern,
and the positions where it may have ended come out at the other. The sets are the bits of a number. A repetition, and a look ahead
or behind, is worked out once for each position, so the time grows with the pattern's length times the name's, never with the
number of ways.

A pattern with at most one repetition or choice has no ways to multiply: `re` searches for that itself, which is quicker.

What has no meaning without an order of trying is refused: back references, conditions on groups, atomic groups and possessive
repetitions. So are repetitions in each other with counts of more than 1,000 in all, groups more than 50 deep, and POSIX classes,
which `re` misreads.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]  # the parser's names for what it found; the stubs hide them
from re import _parser as parser  # type: ignore[attr-defined]  # the stubs hide it
from typing import Any

from . import errors
from .erlang import Chars, term

MAX_PATTERN = 1000  # characters
MAX_REPEATS = 1000  # counts of repetitions in each other, multiplied
MAX_DEPTH = 50  # of groups, choices, repetitions and looks in each other; each takes some of the stack

_Step = Callable[["_Name", int], int]  # positions before -> positions after

# How PCRE words what `re` found, where clients may look for it, and whether it points at the end of the pattern.
_PCRE_SAYS = {
    "missing ), unterminated subpattern": ("missing )", True),
    "unterminated character set": ("missing terminating ] for character class", True),
    "unbalanced parenthesis": ("unmatched parentheses", False),
    "bad escape (end of pattern)": ("\\ at end of pattern", True),
}
_REFUSED = {
    op.GROUPREF: "back references are not supported",
    op.GROUPREF_EXISTS: "conditions on groups are not supported",
    op.ATOMIC_GROUP: "atomic groups are not supported",
    op.POSSESSIVE_REPEAT: "possessive repetitions are not supported",
}


class Pattern:
    """A pattern, ready to be searched for. Raises InvalidPolicy where it is none, or one that is refused."""

    def __init__(self, pattern: str):
        if len(pattern) > MAX_PATTERN:
            raise _invalid(f"has {len(pattern)} characters; at most {MAX_PATTERN} are allowed", MAX_PATTERN)
        if found := re.search(r"\[\^?\[?:\w+:\]", pattern):
            raise _invalid("POSIX named classes are not supported", found.start())
        expression, parsed = _parse(pattern)
        self._step = _Compiler(bool(parsed.state.flags & re.IGNORECASE)).sequence(parsed)
        self._search = expression.search if _ways(parsed) <= 1 else None

    def found_in(self, name: str) -> bool:
        """Whether the pattern is found anywhere in the name."""
        if self._search:
            return self._search(name) is not None
        return self.found_all_ways_at_once(name)

    def found_all_ways_at_once(self, name: str) -> bool:
        """The same, whatever the pattern."""
        subject = _Name(name)
        return bool(self._step(subject, subject.everywhere))


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Pattern:
    return Pattern(pattern)


def found(pattern: str, name: str) -> bool:
    """Whether the pattern is found in the name; one that is refused is found nowhere."""
    try:
        return compiled(pattern).found_in(name)
    except errors.InvalidPolicy:
        return False


def _ways(parsed: Any) -> int:
    """How many repetitions and choices there are in it: one makes as many ways as the name is long, more of them multiply."""
    count = 0
    for kind, detail in parsed:
        inside: list[Any] = []
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            inside, count = [detail[2]], count + 1
        elif kind is op.BRANCH:
            inside, count = detail[1], count + 1
        elif kind in (op.SUBPATTERN, op.ASSERT, op.ASSERT_NOT):
            inside = [detail[-1]]
        count += sum(_ways(each) for each in inside)
    return count


def _parse(pattern: str) -> tuple[re.Pattern, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expression = re.compile(pattern, re.ASCII)  # asks more than parsing: that what is looked back at has one width
            return expression, parser.parse(pattern, re.ASCII)
    except re.error as exc:
        text, at_end = _PCRE_SAYS.get(exc.msg, (exc.msg, False))
        raise _invalid(text, len(pattern) if at_end else exc.pos or 0) from exc
    except (RecursionError, OverflowError) as exc:
        raise _invalid("is nested too deeply, or has too large a count", 0) from exc


def _invalid(problem: str, position: int) -> errors.InvalidPolicy:
    reason = f"pattern should be regular expression but is invalid: {term((Chars(problem), position))}"
    return errors.InvalidPolicy("pattern", reason)


class _Name:
    """A name as sets of positions. Position 0 is before its first character; a set is a number with a bit for each.

    memo: what each repetition reaches from each position, where each character can be, and where each look ahead or behind was
    made, with where it held.
    """

    def __init__(self, text: str):
        self.length = len(text)
        self.text = text
        self.everywhere = (1 << self.length + 1) - 1
        self.before: dict[str, int] = {}  # the positions before each character
        for i, c in enumerate(text):
            self.before[c] = self.before.get(c, 0) | 1 << i
        self.memo: dict[int, Any] = {}

    def boundaries(self) -> int:
        inside = [False, *(_is_word(c) for c in self.text), False]
        return sum(1 << i for i in range(self.length + 1) if inside[i] != inside[i + 1])


class _Compiler:
    """Turns what `re` parsed into steps. repeats: how often what is compiled now can be repeated by counts around it. depth: in
    how much else it is."""

    def __init__(self, ignore_case: bool, repeats: int = 1, depth: int = 0):
        if depth > MAX_DEPTH:
            raise _invalid("is nested too deeply", 0)
        self.ignore_case, self.repeats, self.depth = ignore_case, repeats, depth

    def inside(self, items: Any) -> _Step:
        return _Compiler(self.ignore_case, self.repeats, self.depth + 1).sequence(items)

    def sequence(self, items: Any) -> _Step:
        steps = [self._one(kind, detail) for kind, detail in items]
        if len(steps) == 1:
            return steps[0]

        def go(name: _Name, at: int) -> int:
            for step in steps:
                if not at:
                    break
                at = step(name, at)
            return at

        return go

    def _one(self, kind: Any, detail: Any) -> _Step:
        if kind in _REFUSED:
            raise _invalid(_REFUSED[kind], 0)
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return self._character(_accepts(kind, detail, self.ignore_case))
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeat(*detail)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            return self._look(kind is op.ASSERT, *detail)
        if kind is op.SUBPATTERN:
            _, added, removed, inside = detail
            case = (self.ignore_case or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
            return _Compiler(case, self.repeats, self.depth).inside(inside)
        if kind is op.BRANCH:
            return _any_of([self.inside(branch) for branch in detail[1]])
        if kind is op.AT:
            return _PLACES[detail]
        raise _invalid(f"{str(kind).lower()} is not supported", 0)

    @staticmethod
    def _character(accepts: Callable[[str], bool]) -> _Step:
        def go(name: _Name, at: int) -> int:
            places = name.memo.get(id(go))
            if places is None:
                places = name.memo[id(go)] = sum(before for c, before in name.before.items() if accepts(c))
            return (at & places) << 1

        return go

    def _repeat(self, low: int, high: int, body: Any) -> _Step:
        count = low if high is op.MAXREPEAT else high
        repeats = self.repeats * max(count, 1)
        if repeats > MAX_REPEATS:
            raise _invalid(f"repetitions have counts of more than {MAX_REPEATS} in all", 0)
        step = _Compiler(self.ignore_case, repeats, self.depth).inside(body)
        again = _closure(step) if high is op.MAXREPEAT else _up_to(step, high - low)

        def go(name: _Name, at: int) -> int:
            for _ in range(low):
                after = step(name, at)
                if after == at:
                    break
                at = after
            return again(name, at)

        return go

    def _look(self, wanted: bool, direction: int, inside: Any) -> _Step:
        step = self.inside(inside)
        width = 0 if direction > 0 else inside.getwidth()[0]

        def holds(name: _Name, place: int) -> bool:
            if place < width:
                return not wanted
            ends = step(name, 1 << place - width)
            return bool(ends if direction > 0 else ends >> place & 1) == wanted

        def go(name: _Name, at: int) -> int:
            looked, found = name.memo.get(id(go), (0, 0))
            for place in _places(at & ~looked):
                found |= holds(name, place) << place
            name.memo[id(go)] = looked | at, found
            return at & found

        return go


def _any_of(steps: list[_Step]) -> _Step:
    def go(name: _Name, at: int) -> int:
        found = 0
        for step in steps:
            found |= step(name, at)
        return found

    return go


def _up_to(step: _Step, times: int) -> _Step:
    def go(name: _Name, at: int) -> int:
        new = at
        for _ in range(times):
            new = step(name, new) & ~at
            if not new:
                break
            at |= new
        return at

    return go


def _closure(step: _Step) -> _Step:
    """Any number of steps. What a position leads to includes all that those it leads to lead to; none leads back."""

    def reached(name: _Name) -> list[int]:
        reach = [0] * (name.length + 1)
        for place in range(name.length, -1, -1):
            reach[place] = 1 << place
            left = step(name, 1 << place) & ~reach[place]
            while left:
                further = reach[_lowest(left)]
                reach[place] |= further
                left &= ~further
        return reach

    def go(name: _Name, at: int) -> int:
        known = name.memo.get(id(go))
        if known is None:
            known = name.memo[id(go)] = reached(name)
        found = 0
        while at:
            further = known[_lowest(at)]
            found |= further
            at &= ~further
        return found

    return go


def _lowest(positions: int) -> int:
    return (positions & -positions).bit_length() - 1


def _places(positions: int) -> list[int]:
    found = []
    while positions:
        found.append(_lowest(positions))
        positions &= positions - 1
    return found


# One character


def _accepts(kind: Any, detail: Any, ignore_case: bool) -> Callable[[str], bool]:
    exactly = _accepts_as_it_is(kind, detail)
    if not ignore_case:
        return exactly
    if kind is op.NOT_LITERAL or kind is op.IN and detail[0][0] is op.NEGATE:
        return lambda c: all(exactly(variant) for variant in _variants(c))
    return lambda c: any(exactly(variant) for variant in _variants(c))


def _variants(c: str) -> set[str]:
    """As patterns are ASCII here, only letters without accents have two cases."""
    return {c, c.lower(), c.upper()} if c.isascii() else {c}


def _accepts_as_it_is(kind: Any, detail: Any) -> Callable[[str], bool]:
    if kind is op.LITERAL:
        return lambda c: ord(c) == detail
    if kind is op.NOT_LITERAL:
        return lambda c: ord(c) != detail
    if kind is op.ANY:
        return lambda c: c != "\n"
    negated = detail[0][0] is op.NEGATE
    tests = [_member(kind, content) for kind, content in detail if kind is not op.NEGATE]
    return lambda c: any(test(c) for test in tests) != negated


def _member(kind: Any, content: Any) -> Callable[[str], bool]:
    if kind is op.RANGE:
        low, high = content
        return lambda c: low <= ord(c) <= high
    if kind is op.CATEGORY:
        test, wanted = _CATEGORIES[content]
        return lambda c: test(c) == wanted
    return lambda c: ord(c) == content


def _is_word(c: str) -> bool:
    return c.isascii() and (c.isalnum() or c == "_")


def _is_digit(c: str) -> bool:
    return c.isascii() and c.isdigit()


def _is_space(c: str) -> bool:
    return c in " \t\n\r\f\v"


_CATEGORIES = {
    op.CATEGORY_WORD: (_is_word, True),
    op.CATEGORY_NOT_WORD: (_is_word, False),
    op.CATEGORY_DIGIT: (_is_digit, True),
    op.CATEGORY_NOT_DIGIT: (_is_digit, False),
    op.CATEGORY_SPACE: (_is_space, True),
    op.CATEGORY_NOT_SPACE: (_is_space, False),
}

# Places in a name, which has one line.
_PLACES: dict[Any, _Step] = {
    op.AT_BEGINNING: lambda name, at: at & 1,
    op.AT_BEGINNING_STRING: lambda name, at: at & 1,
    op.AT_END: lambda name, at: at & 1 << name.length,
    op.AT_END_STRING: lambda name, at: at & 1 << name.length,
    op.AT_BOUNDARY: lambda name, at: at & name.boundaries(),
    op.AT_NON_BOUNDARY: lambda name, at: at & ~name.boundaries(),
}
