"""Random filters for properties: trees of tuples, the text of one, and what it should say, worked out without the product."""

import operator
from itertools import product

from hypothesis import strategies as st

NAMES = ("a", "b", "c")
OPERATORS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Failed(Exception):
    """The filter has no answer."""


VALUES = st.one_of(
    st.integers(-3, 3),
    st.sampled_from(["", "x", "X", "it's", "50%", "x_y"]),
    st.booleans(),
    st.floats(-2, 2).map(lambda f: round(f, 1)),
)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES), st.none() | VALUES)

_named = st.sampled_from(NAMES).map(lambda name: ("property", name))
_constants = st.one_of(VALUES, st.none()).map(lambda value: ("constant", value))
_values = st.recursive(
    _named | _constants,
    lambda inner: st.tuples(st.just("count"), st.sampled_from("+-*"), inner, inner),
    max_leaves=3,
)
_leaves = st.one_of(
    st.tuples(st.just("compare"), st.sampled_from(sorted(OPERATORS)), _values, _values),
    st.tuples(st.just("in"), _values, st.lists(_values, min_size=1, max_size=3)),
    st.tuples(st.just("like"), _named, st.sampled_from(["%", "x%", "%'s", "_", "x__", "50!%", ""])),
    st.tuples(st.just("null"), _named),
    st.tuples(st.just("exists"), _named),
)
PREDICATES = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)


def text_of(tree) -> str:
    match tree:
        case ("property", name):
            return name
        case ("constant", None):
            return "NULL"
        case ("constant", bool(value)):
            return str(value).upper()
        case ("constant", str(value)):
            return "'" + value.replace("'", "''") + "'"
        case ("constant", value):
            return repr(value)
        case ("count" | "compare", symbol, left, right):
            return f"({text_of(left)} {symbol} {text_of(right)})"
        case ("in", value, items):
            return f"{text_of(value)} in ({', '.join(map(text_of, items))})"
        case ("like", value, pattern):
            return f"{text_of(value)} Like {text_of(('constant', pattern))} escape '!'"
        case ("null", value):
            return f"{text_of(value)} IS NULL"
        case ("exists", value):
            return f"EXISTS({text_of(value)})"
        case ("not", term):
            return f"NOT ({text_of(term)})"
        case (word, terms):
            return "(" + f" {word} ".join(map(text_of, terms)) + ")"
    raise AssertionError(tree)


def answer(tree, properties):
    """True, False or None for Unknown; raises Failed. properties: plain values by name."""
    match tree:
        case ("property", name):
            return properties.get(name)
        case ("constant", value):
            return value
        case ("count", symbol, left, right):
            return _count(symbol, answer(left, properties), answer(right, properties))
        case ("compare", symbol, left, right):
            return _compare(symbol, answer(left, properties), answer(right, properties))
        case ("in", value, items):
            result = answer(value, properties)
            return None if result is None else _first(True, (_compare("=", result, answer(item, properties)) for item in items))
        case ("like", value, pattern):
            result = answer(value, properties)
            if result is not None and not isinstance(result, str):
                raise Failed
            return None if result is None else like(result, pattern, "!")
        case ("null", value):
            return answer(value, properties) is None
        case ("exists", (_, name)):
            return name in properties
        case ("not", term):
            result = answer(term, properties)
            return None if result is None else not result
        case ("and", terms):
            return _first(False, (answer(term, properties) for term in terms))
        case ("or", terms):
            return _first(True, (answer(term, properties) for term in terms))
    raise AssertionError(tree)


def _first(decisive, answers):
    unknown = False
    for answer in answers:
        if answer is decisive:
            return decisive
        unknown = unknown or answer is None
    return None if unknown else not decisive


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compare(symbol, left, right):
    if left is None or right is None:
        return None
    if not (_is_number(left) and _is_number(right)) and type(left) is not type(right):
        raise Failed
    if isinstance(left, bool) and symbol not in ("=", "<>"):
        raise Failed
    return OPERATORS[symbol](left, right)


def _count(symbol, left, right):
    if left is None or right is None:
        return None
    if symbol == "+" and (isinstance(left, str) or isinstance(right, str)):
        return _shown(left) + _shown(right)
    if not _is_number(left) or not _is_number(right):
        raise Failed
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol](left, right)


def _shown(value):
    return value if isinstance(value, str) else str(value)[:-2] if str(value).endswith(".0") else str(value)


def like(text, pattern, escape):
    """LIKE by a table: for each beginning of the pattern and of the text whether they match."""
    parts, characters = [], iter(pattern)
    for character in characters:
        parts.append(
            ("plain", next(characters))
            if character == escape
            else ("any", character)
            if character in "%_"
            else ("plain", character)
        )
    matches = {(0, 0): True}
    for p, t in product(range(len(parts) + 1), range(len(text) + 1)):
        if p == 0:
            matches[p, t] = t == 0
        elif parts[p - 1] == ("any", "%"):
            matches[p, t] = matches[p - 1, t] or (t > 0 and matches[p, t - 1])
        else:
            fits = t > 0 and parts[p - 1] in (("any", "_"), ("plain", text[t - 1]))
            matches[p, t] = fits and matches[p - 1, t - 1]
    return matches[len(parts), len(text)]
