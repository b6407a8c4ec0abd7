"""The parser of filters and rule actions. Errors are InvalidFilter, with the column (SB-F01).

Precedence, highest first: a sign, then * / %, then + -, then comparisons, then NOT, AND, OR (SB-F02).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from broker_core.common.errors import FilterEvaluationError, InvalidFilter
from broker_core.service_bus.rules.limits import STRICT

from . import syntax
from .lexer import END, Token, tokens
from .like import compile_pattern
from .parameters import checked_parameters
from .view import SETTABLE, SYSTEM, split_scope

_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PREDICATES = get_args(syntax.Predicate)
_PROPERTIES = get_args(syntax.Property)
_A_VALUE = "a property, a constant or an expression"


def parse_filter(text: str, parameters: Mapping[str, Any] | None = None) -> syntax.Predicate:
    """Parse a filter. parameters: by name, with or without the @. Raises InvalidFilter."""
    parser = _Parser(text, "filter", parameters)
    tree = parser.predicate()
    parser.expect_end("AND, OR or the end")
    return tree


def parse_action(text: str, parameters: Mapping[str, Any] | None = None) -> tuple[syntax.Statement, ...]:
    """Parse an action into its statements, in order. Raises InvalidFilter."""
    parser = _Parser(text, "action", parameters)
    statements = [parser.statement()]
    while not parser.at(END):
        if len(statements) == STRICT.action_statements:
            raise parser.error(f"at most {STRICT.action_statements} statements (SB-265)")
        statements.append(parser.statement())
    return tuple(statements)


class _Parser:
    """A recursive-descent parser with one token of lookahead, and a method for each level of precedence."""

    def __init__(self, text: str, what: str, parameters: Mapping[str, Any] | None):
        self.text, self.what = text, what
        self.parameters = checked_parameters(parameters, what)
        self.tokens = tokens(text, what)
        self.index = self.depth = 0

    # One token at a time

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def at(self, *values: str) -> bool:
        """Whether the next token is one of these signs or reserved words (or the end)."""
        kind, value = self.token[:2]
        return (kind in ("sign", "reserved") and value in values) or (kind == END and END in values)

    def take(self, *values: str) -> Token | None:
        """Consume and return the next token if it is one of these; otherwise None."""
        return self.advance() if self.at(*values) else None

    def advance(self) -> Token:
        token = self.token
        self.index += 1
        return token

    def expect(self, value: str) -> Token:
        if not self.at(value):
            raise self.error(value)
        return self.advance()

    def expect_end(self, expected: str) -> None:
        if not self.at(END):
            raise self.error(expected)

    def error(self, expected: str, token: Token | None = None, found: str | None = None) -> InvalidFilter:
        token = token or self.token
        if found is None:
            found = f"the reserved word {token.source}" if token.kind == "reserved" else token.source[:40]
        return InvalidFilter(self.what, self.text, token.position, found, expected)

    def nested(self, read: Callable[[], Any]) -> Any:
        """Call `read` one level deeper. The depth is limited, so that no input can exhaust the stack."""
        if self.depth == STRICT.filter_nesting:
            raise self.error(f"at most {STRICT.filter_nesting} nested levels")
        self.depth += 1
        tree = read()
        self.depth -= 1
        return tree

    # Predicates

    def predicate(self, read: Callable[[], Any] | None = None) -> syntax.Predicate:
        """Call `read` (default: disjunction) and require its result to be a predicate."""
        start = self.token
        return self.as_predicate((read or self.disjunction)(), start)

    def as_predicate(self, tree: Any, start: Token) -> syntax.Predicate:
        if isinstance(tree, _PREDICATES):
            return tree
        if self.at(END, ")", "AND", "OR"):
            raise self.error("a comparison, such as color = 'red'", start)
        raise self.error("an operator, such as =, LIKE, IN or IS")

    def disjunction(self) -> Any:
        return self.chain("OR", self.conjunction, syntax.Or)

    def conjunction(self) -> Any:
        return self.chain("AND", self.negation, syntax.And)

    def chain(self, word: str, read: Callable[[], Any], node: type) -> Any:
        start = self.token
        first = read()
        if not self.at(word):
            return first
        terms = [self.as_predicate(first, start)]
        while self.take(word):
            terms.append(self.predicate(read))
        return node(tuple(terms), start.position)

    def negation(self) -> Any:
        word = self.take("NOT")
        if word is None:
            return self.comparison()
        term = self.nested(lambda: self.predicate(self.negation))
        return syntax.Not(term, word.position)

    def comparison(self) -> Any:
        """A comparison, or a value alone, which inside parentheses may be part of an expression; callers check for predicates."""
        start = self.token
        left = self.sum()
        word = self.token
        if not self.at(*_COMPARISONS, "IS", "NOT", "IN", "LIKE"):
            return left
        if isinstance(left, _PREDICATES):
            raise self.error("AND, OR or the end")
        self.advance()
        if word.value in _COMPARISONS:
            return syntax.Comparison(_COMPARISONS[word.value], left, self.value(), word.position)
        if word.value == "IS":
            return self.null_test(left, start, word)
        if word.value == "NOT":
            negated, word = word, self.token
            if not self.take("IN", "LIKE"):
                raise self.error("IN or LIKE")
            return syntax.Not(self.membership(left, word), negated.position)
        return self.membership(left, word)

    def membership(self, left: syntax.Value, word: Token) -> syntax.In | syntax.Like:
        if word.value == "LIKE":
            return self.like(left, word)
        self.expect("(")
        items = [self.value()]
        while self.take(","):
            items.append(self.value())
        self.expect(")")
        return syntax.In(left, tuple(items), word.position)

    def like(self, left: syntax.Value, word: Token) -> syntax.Like:
        start = self.token
        pattern = self.text_if_constant()
        escape = self.text_if_constant() if self.take("ESCAPE") else None
        constants = [part.value for part in (pattern, escape) if isinstance(part, syntax.Constant) and part.value is not None]
        if len(constants) == 1 + (escape is not None):
            if any(len(constant) > STRICT.filter_text for constant in constants):
                raise self.error(f"a pattern of at most {STRICT.filter_text:,} characters", start)
            try:
                compile_pattern(*constants)
            except FilterEvaluationError as exc:
                raise self.error(f"a valid pattern: {exc}", start) from exc
        return syntax.Like(left, pattern, escape, word.position)

    def text_if_constant(self) -> syntax.Value:
        start = self.token
        value = self.value()
        if isinstance(value, syntax.Constant) and not isinstance(value.value, str | None):
            raise self.error("a string", start)
        return value

    def null_test(self, left: syntax.Value, start: Token, word: Token) -> syntax.IsNull | syntax.Not:
        if not isinstance(left, _PROPERTIES):
            raise self.error("a property before IS", start)
        negated = self.take("NOT")
        self.expect("NULL")
        test = syntax.IsNull(left, word.position)
        return syntax.Not(test, negated.position) if negated else test

    # Values

    def value(self, read: Callable[[], Any] | None = None) -> syntax.Value:
        """Call `read` (default: sum) and require its result to be a value."""
        start = self.token
        tree = (read or self.sum)()
        if isinstance(tree, _PREDICATES):
            raise self.error(_A_VALUE, start, "a comparison")
        return tree

    def sum(self) -> Any:
        return self.arithmetic(("+", "-"), self.product)

    def product(self) -> Any:
        return self.arithmetic(("*", "/", "%"), self.signed)

    def arithmetic(self, signs: tuple[str, ...], read: Callable[[], Any]) -> Any:
        start = self.token
        first = read()
        if not self.at(*signs):
            return first
        if isinstance(first, _PREDICATES):
            raise self.error("AND, OR or the end")
        steps = []
        while sign := self.take(*signs):
            steps.append((sign.value, self.value(read), sign.position))
        return syntax.Arithmetic(first, tuple(steps), start.position)

    def signed(self) -> Any:
        sign = self.take("+", "-")
        if sign is None:
            return self.primary()
        if self.token.kind in ("integer", "double"):
            number = self.number(self.advance(), -1 if sign.value == "-" else 1)
            return syntax.Constant(number.value, sign.position)
        operand = self.nested(lambda: self.value(self.signed))
        return syntax.Sign(sign.value, operand, sign.position)

    def primary(self) -> Any:
        if self.take("("):
            inside = self.nested(self.disjunction)
            if not self.take(")"):
                raise self.error("AND, OR or )" if isinstance(inside, _PREDICATES) else "an operator or )")
            return inside
        token = self.token
        match token.kind:
            case "integer" | "double":
                return self.number(self.advance(), 1)
            case "text":
                return syntax.Constant(self.advance().value, token.position)
            case "parameter":
                return self.parameter(self.advance())
            case "name" | "word":
                return self.property_or_function()
            case "reserved":
                return self.reserved()
        raise self.error(_A_VALUE)

    def reserved(self) -> Any:
        token = self.token
        if self.take("EXISTS"):
            return self.existence(token)
        if self.take("TRUE", "FALSE", "NULL"):
            return syntax.Constant({"TRUE": True, "FALSE": False}.get(token.value), token.position)
        raise self.error(f"{_A_VALUE} (write a property of that name as [{token.source}])")

    def existence(self, word: Token) -> syntax.Exists:
        self.expect("(")
        start = self.token
        named = self.value()
        if not isinstance(named, _PROPERTIES):
            raise self.error("a property", start)
        self.expect(")")
        return syntax.Exists(named, word.position)

    def number(self, token: Token, sign: int) -> syntax.Constant:
        value = sign * token.number
        if token.kind == "integer" and value > 2**63 - 1:
            raise self.error("a number that a 64-bit integer can hold", token)
        return syntax.Constant(value, token.position)

    def parameter(self, token: Token) -> syntax.Constant:
        name = token.value.lower()
        if name not in self.parameters:
            names = ", ".join(f"@{name}" for name in sorted(self.parameters)[:10])
            raise self.error(f"a given parameter ({names or 'none'})", token)
        return syntax.Constant(self.parameters[name], token.position)

    def property_or_function(self) -> syntax.Value:
        token = self.token
        following = self.tokens[self.index + 1]
        if token.kind == "word" and following[:2] == ("sign", "("):
            return self.function()
        return self.property()

    def function(self) -> syntax.NewId | syntax.Property:
        token = self.advance()
        name = token.value.lower()
        if name not in ("newid", "property", "p"):
            raise self.error("one of the functions newid(), property(name) and p(name)", token)
        self.expect("(")
        if name == "newid":
            self.expect(")")
            return syntax.NewId(token.position)
        start = self.token
        argument = self.nested(self.value)
        self.expect(")")
        if not isinstance(argument, syntax.Constant):
            return syntax.NamedProperty(argument, token.position)
        if not isinstance(argument.value, str):
            raise self.error("a string: the name of a property", start)
        is_system, name = split_scope(argument.value)
        return self.system(name, start) if is_system else syntax.UserProperty(name, token.position)

    def property(self) -> syntax.UserProperty | syntax.SystemProperty:
        """[sys. | user.] name; without a scope, an application property (SB-F03)."""
        first = self.token
        if first.kind not in ("name", "word"):
            hint = f" (write a property of that name as [{first.source}])" if first.kind == "reserved" else ""
            raise self.error(f"the name of a property{hint}")
        self.advance()
        if not self.at("."):
            return syntax.UserProperty(first.value, first.position)
        scope = first.value.lower()
        if first.kind != "word" or scope not in ("sys", "user"):
            raise self.error("sys. or user. before the name of a property", first, f"{first.source}.")
        self.advance()
        name = self.token
        if name.kind not in ("name", "word"):
            raise self.error("the name of a property")
        self.advance()
        if scope == "user":
            return syntax.UserProperty(name.value, first.position)
        return self.system(name.value, first)

    def system(self, name: str, start: Token) -> syntax.SystemProperty:
        if name.lower() not in SYSTEM:
            known = ", ".join(dict.fromkeys(system.name for system in SYSTEM.values()))
            raise self.error(f"sys. with one of {known}", start, f"sys.{name[:40]}")
        return syntax.SystemProperty(name.lower(), start.position)

    # Actions

    def statement(self) -> syntax.Statement:
        word = self.take("SET", "REMOVE")
        if word is None:
            raise self.error("SET or REMOVE")
        target = self.target()
        statement: syntax.Statement = syntax.Remove(target)
        if word.value == "SET":
            self.expect("=")
            statement = syntax.Set(target, self.value())
        if not self.at(END, "SET", "REMOVE", ";"):
            raise self.error("SET, REMOVE, ; or the end")
        while self.take(";"):
            pass
        return statement

    def target(self) -> syntax.UserProperty | syntax.SystemProperty:
        """The property that a statement changes; of system properties, only those that senders can set (SB-263)."""
        start = self.token
        target = self.property()
        if isinstance(target, syntax.SystemProperty) and target.name not in SETTABLE:
            settable = ", ".join(dict.fromkeys(SYSTEM[name].name for name in SETTABLE))
            raise self.error(f"one of the changeable properties: {settable}", start, f"sys.{SYSTEM[target.name].name}")
        return target
