"""Compile syntax trees to functions that are called for each message, with three-valued logic (SB-F11).

A compiled predicate takes a MessageView and returns True, False, or None for Unknown; a compiled value returns the value or None.
Closures are used rather than generated code, which was faster by 0.05 µs of 0.17 for two comparisons but took 45 µs longer to
compile. The most common form, a property compared with a constant, has its own closures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.common.errors import FilterEvaluationError
from broker_core.service_bus.rules.limits import STRICT

from . import syntax
from .like import compile_pattern
from .operators import COMPARISONS, NUMBER, TEXT, calculate, compare, failure, kind_of, signed
from .view import SYSTEM, MessageView, split_scope

Evaluate = Callable[[MessageView], Any]
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compile_predicate(tree: syntax.Predicate) -> Evaluate:
    """A function of a MessageView that returns True, False or None, and may raise FilterEvaluationError."""
    return _PREDICATES[type(tree)](tree)


def compile_value(tree: syntax.Value) -> Evaluate:
    """A function of a MessageView that returns a value, or None for Unknown, and may raise FilterEvaluationError."""
    return _VALUES[type(tree)](tree)


# Values


def _constant(tree: syntax.Constant) -> Evaluate:
    value = tree.value
    return lambda view: value


def _user_property(tree: syntax.UserProperty) -> Evaluate:
    name = tree.name.lower()
    return lambda view: view.user.get(name)


def _system_property(tree: syntax.SystemProperty) -> Evaluate:
    return SYSTEM[tree.name].read


def _named_property(tree: syntax.NamedProperty) -> Evaluate:
    """property(x): a missing name is Unknown, like a missing property (SB-F13)."""
    name_of, position = compile_value(tree.name), tree.position

    def value(view: MessageView) -> Any:
        scoped = _scoped(name_of(view), position)
        if scoped is None:
            return None
        is_system, name = scoped
        return SYSTEM[name].read(view) if is_system else view.user.get(name)

    return value


def _scoped(name: Any, position: int) -> tuple[bool, str] | None:
    """Whether a name is a system property, and the name without scope, in lower case. None for an Unknown name."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise failure(position, f"the name of a property must be a string, not {kind_of(name)}")
    is_system, name = split_scope(name)
    if is_system and name.lower() not in SYSTEM:
        raise failure(position, f"unknown property sys.{name[:40]}")
    return is_system, name.lower()


def _new_id(tree: syntax.NewId) -> Evaluate:
    return lambda view: view.new_id() if view.new_id else None


def _sign(tree: syntax.Sign) -> Evaluate:
    operand, symbol, position = compile_value(tree.operand), tree.operator, tree.position
    return lambda view: signed(symbol, operand(view), position)


def _arithmetic(tree: syntax.Arithmetic) -> Evaluate:
    first = compile_value(tree.first)
    steps = [(symbol, compile_value(operand), position) for symbol, operand, position in tree.steps]

    def value(view: MessageView) -> Any:
        result = first(view)
        for symbol, operand, position in steps:
            result = calculate(symbol, result, operand(view), position)
        return result

    return value


# Comparisons


def _comparison(tree: syntax.Comparison) -> Evaluate:
    symbol, left, right, position = tree.operator, tree.left, tree.right, tree.position
    if isinstance(left, syntax.Constant) and isinstance(right, syntax.UserProperty):
        symbol, left, right = _MIRRORED[symbol], right, left
    if isinstance(left, syntax.UserProperty) and isinstance(right, syntax.Constant) and _is_direct(symbol, right.value):
        return _compare_user_property(symbol, left.name.lower(), right.value, position)
    value, other = compile_value(left), compile_value(right)
    return lambda view: compare(symbol, value(view), other(view), position)


def _is_direct(symbol: str, constant: Any) -> bool:
    """Whether Python's own comparison gives the right answer for a value of the same class."""
    return constant.__class__ in (str, int, float) or (constant.__class__ is bool and symbol in ("=", "<>"))


def _compare_user_property(symbol: str, name: str, constant: Any, position: int) -> Evaluate:
    test, direct = COMPARISONS[symbol], constant.__class__

    def matches(view: MessageView) -> bool | None:
        value = view.user.get(name)
        if value.__class__ is direct:
            return test(value, constant)
        return compare(symbol, value, constant, position)

    return matches


def _in(tree: syntax.In) -> Evaluate:
    """Evaluated as the OR of = comparisons from left to right; Unknown on the left is Unknown (SB-F09)."""
    value, items, position = compile_value(tree.value), [compile_value(item) for item in tree.items], tree.position

    def one_by_one(view: MessageView, left: Any) -> bool | None:
        result: bool | None = None if left is None else False
        for item in items if left is not None else ():
            match compare("=", left, item(view), position):
                case True:
                    return True
                case None:
                    result = None
        return result

    direct = _set_of_constants(tree.items)
    if direct is None:
        return lambda view: one_by_one(view, value(view))
    classes, members = direct

    def at_once(view: MessageView) -> bool | None:
        left = value(view)
        return left in members if left.__class__ in classes else one_by_one(view, left)

    return at_once


def _set_of_constants(items: tuple[syntax.Value, ...]) -> tuple[tuple[type, ...], frozenset] | None:
    """The items as a set, with the classes of values that can be looked up in it, if all items are constants of one kind."""
    constants = [item.value for item in items if isinstance(item, syntax.Constant) and item.value is not None]
    if len(constants) < len(items):
        return None
    members = frozenset(constants)
    classes: dict[str, tuple[type, ...]] = {TEXT: (str,), NUMBER: (int, float)}
    kinds = {kind_of(constant) for constant in constants}
    return (classes[kind], members) if len(kinds) == 1 and (kind := kinds.pop()) in classes else None


def _like(tree: syntax.Like) -> Evaluate:
    """A constant pattern is compiled here; the parser has rejected invalid ones (SB-F08)."""
    text, position = compile_value(tree.text), tree.position
    pattern, escape = compile_value(tree.pattern), compile_value(tree.escape) if tree.escape is not None else None

    def matches(view: MessageView) -> bool | None:
        operands = [text(view), pattern(view)] if escape is None else [text(view), pattern(view), escape(view)]
        if any(operand is None for operand in operands):
            return None
        return _pattern(operands[1:], position)(_text(operands[0], position))

    parts = [tree.pattern] if tree.escape is None else [tree.pattern, tree.escape]
    constants = [part.value for part in parts if isinstance(part, syntax.Constant) and isinstance(part.value, str)]
    if len(constants) < len(parts):
        return matches
    ready = _pattern(constants, position)

    def matches_constant(view: MessageView) -> bool | None:
        subject = text(view)
        return None if subject is None else ready(_text(subject, position))

    return matches_constant


def _pattern(operands: list[Any], position: int) -> Callable[[str], bool]:
    for operand in operands:
        if len(_text(operand, position)) > STRICT.filter_text:
            raise failure(position, f"a pattern of LIKE has at most {STRICT.filter_text:,} characters")
    try:
        return compile_pattern(*operands)
    except FilterEvaluationError as exc:
        raise failure(position, str(exc)) from exc


def _text(value: Any, position: int) -> str:
    if not isinstance(value, str):
        raise failure(position, f"LIKE compares strings, not {kind_of(value)}")
    return value


def _is_null(tree: syntax.IsNull) -> Evaluate:
    value = compile_value(tree.property)
    return lambda view: value(view) is None


def _exists(tree: syntax.Exists) -> Evaluate:
    """Whether a property is present, even if null; a system property is present if it has a value (SB-F10)."""
    match tree.property:
        case syntax.UserProperty(name=name):
            key = name.lower()
            return lambda view: key in view.user
        case syntax.NamedProperty(name=name, position=position):
            name_of, read = compile_value(name), compile_value(tree.property)

            def exists(view: MessageView) -> bool:
                scoped = _scoped(name_of(view), position)
                if scoped is None:
                    return False
                is_system, key = scoped
                return read(view) is not None if is_system else key in view.user

            return exists
    value = compile_value(tree.property)
    return lambda view: value(view) is not None


# Logic (SB-F11)


def _not(tree: syntax.Not) -> Evaluate:
    term = compile_predicate(tree.term)

    def matches(view: MessageView) -> bool | None:
        result = term(view)
        return None if result is None else not result

    return matches


def _and(tree: syntax.And) -> Evaluate:
    """Evaluated from left to right up to the first False; later terms are not evaluated, so they cannot fail."""
    terms = [compile_predicate(term) for term in tree.terms]
    if len(terms) == 2:
        return _and_of_two(*terms)

    def matches(view: MessageView) -> bool | None:
        result: bool | None = True
        for term in terms:
            match term(view):
                case False:
                    return False
                case None:
                    result = None
        return result

    return matches


def _and_of_two(first: Evaluate, second: Evaluate) -> Evaluate:
    def matches(view: MessageView) -> bool | None:
        result = first(view)
        if result is False:
            return False
        other = second(view)
        return other if result else (False if other is False else None)

    return matches


def _or(tree: syntax.Or) -> Evaluate:
    """Evaluated from left to right up to the first True."""
    terms = [compile_predicate(term) for term in tree.terms]

    def matches(view: MessageView) -> bool | None:
        result: bool | None = False
        for term in terms:
            match term(view):
                case True:
                    return True
                case None:
                    result = None
        return result

    return matches


_VALUES: dict[type, Callable[[Any], Evaluate]] = {
    syntax.Constant: _constant,
    syntax.UserProperty: _user_property,
    syntax.SystemProperty: _system_property,
    syntax.NamedProperty: _named_property,
    syntax.NewId: _new_id,
    syntax.Sign: _sign,
    syntax.Arithmetic: _arithmetic,
}
_PREDICATES: dict[type, Callable[[Any], Evaluate]] = {
    syntax.Comparison: _comparison,
    syntax.Like: _like,
    syntax.In: _in,
    syntax.IsNull: _is_null,
    syntax.Exists: _exists,
    syntax.Not: _not,
    syntax.And: _and,
    syntax.Or: _or,
}
