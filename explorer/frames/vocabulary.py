"""The language of a page's field: a few keys, and words without a key. It is read by the lexer of message filters, so quotes,
ranges and times are written alike. All conditions must hold.

Addresses of earlier versions had a parameter for each field of a form; `canonical` leads them to the address with q.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import Enum, auto
from typing import Any

from django.http import HttpRequest, HttpResponseRedirect, QueryDict
from django.utils.timezone import now

from broker_core.common.errors import FilterError
from broker_core.reads import Token
from broker_core.reads.conditions import ANY, CONNECTIVES, Pattern, Text
from broker_core.reads.lexing import KEY, Lexer, Value
from broker_core.reads.ranges import numbers, times
from explorer import sandbox_names
from explorer.live.page import LiveRequest

from . import token_field
from .query import with_changes
from .token_field import TokenField


class Kind(Enum):
    TEXT = auto()  # anything
    CHOICE = auto()  # one of a few values
    NUMBER = auto()  # a range: (lowest, highest), each None without a bound
    TIME = auto()  # a range: (from, before), each None without a bound


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a page's conditions.

    meaning: what it finds. choices: of a CHOICE: value -> meaning; a value may be written in any case. source: which values are
    suggested for a TEXT (explorer.pages.suggestions). example: suggested for a NUMBER or a TIME. old: the parameter of earlier
    addresses; old_value: what it meant, if it was a checkbox. is_place: whether it names a namespace, or an entity as
    "namespace/path".
    """

    name: str
    meaning: str
    kind: Kind = Kind.TEXT
    choices: Callable[[], Mapping[str, str]] = dict
    source: str = ""
    example: str = ""
    old: str = ""
    old_value: str = ""
    is_place: bool = False


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The keys of a page. name: in the address of its suggestions. words: what a word without a key finds; label: of the field.
    old_words: a parameter of earlier addresses that contained words. example: shown in the empty field."""

    name: str
    label: str
    words: str
    keys: tuple[Key, ...]
    example: str = ""
    old_words: str = ""

    def without(self, *names: str) -> Vocabulary:
        keys = tuple(key for key in self.keys if key.name not in names)
        return Vocabulary(self.name, self.label, self.words, keys, self.example, self.old_words)


@dataclass(frozen=True, slots=True)
class Term:
    """A condition. key: empty for a word. value: as the key's kind says."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions of a page, all of which must hold. A key is given once at most."""

    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(term.value for term in self.terms if not term.key)

    def get(self, key: str) -> Any:
        """The value of a key; None: it is not given."""
        return next((term.value for term in self.terms if term.key == key), None)


@dataclass(frozen=True, slots=True)
class TermsField(TokenField):
    """The field of a page with a vocabulary."""

    vocabulary: Vocabulary = Vocabulary("", "", "", ())
    terms: Terms = Terms()

    def narrowed(self, query: QueryDict, key: str, value: str) -> str:
        """The link to this page with a value for a key, beside the conditions with other keys."""
        others = [chip.text for term, chip in zip(self.terms.terms, self.chips, strict=True) if term.key != key]
        return with_changes(query, q=" ".join([*others, condition(key, value)]))


def field_of(request: HttpRequest, vocabulary: Vocabulary) -> TermsField:
    """The conditions in the address of a page. Raises EntityNotFound if they name the sandbox of somebody else."""
    text = _text_of(request.GET, vocabulary)
    tokens, problem = token_field.read(text, lambda text: parse(text, vocabulary, now=now()))
    terms = Terms(tuple(token.condition for token in tokens))
    places = filter(None, (terms.get(key.name) for key in vocabulary.keys if key.is_place))
    sandbox_names.require_access(request.user, request.actor, (place.partition("/")[0] for place in places))
    return TermsField(**token_field.values(request.GET, text, tokens, problem), vocabulary=vocabulary, terms=terms)


def terms_in(query: QueryDict, vocabulary: Vocabulary) -> Terms | None:
    """The conditions in a query, for a page about one row of the list; None: they cannot be read."""
    tokens, problem = token_field.read(_text_of(query, vocabulary), lambda text: parse(text, vocabulary, now=now()))
    return None if problem else Terms(tuple(token.condition for token in tokens))


def parse(text: str, vocabulary: Vocabulary, *, now: datetime) -> list[Token[Term]]:
    """The conditions of a text. now: what times without a date refer to. Raises FilterError."""
    return _Parser(text, vocabulary, now).tokens()


def condition(key: str, value: str) -> str:
    """A condition as it is written; without a key, a word."""
    return f"{key}:{Pattern((value,))}" if key else str(Text(ANY, Pattern((value,))))


class _Parser(Lexer[Term]):
    def __init__(self, text: str, vocabulary: Vocabulary, now: datetime):
        super().__init__(text)
        self.vocabulary, self.now = vocabulary, now
        self.seen: set[str] = set()

    def condition(self, negated: bool) -> Term:
        if negated:
            raise FilterError(self.at - 1, "This list has no negated conditions. Remove the minus, or write the text in quotes.")
        start, match = self.at, KEY.match(self.text, self.at)
        if match is None or not self.vocabulary.keys:
            return Term("", self._word(self.value("")))
        key = next((key for key in self.vocabulary.keys if key.name == match[1].lower()), None)
        if key is None:
            raise FilterError(start, self._unknown(match[1]))
        if key.name in self.seen:
            raise FilterError(start, f"{key.name} can be given once. Remove one of them.")
        self.seen.add(key.name)
        self.at = match.end(1)
        at, operator, is_unequal = self.operator(False)
        if is_unequal or (key.kind in (Kind.TEXT, Kind.CHOICE) and operator not in ":="):
            raise FilterError(at, f"Write {key.name}: before the value.")
        value = self.value(f"Write a value after {key.name}{operator}, {_example(key)}")
        return Term(key.name, self._value(key, operator, value))

    def _value(self, key: Key, operator: str, value: Value) -> Any:
        match key.kind:
            case Kind.TEXT:
                return _plain(value)
            case Kind.CHOICE:
                return _choice(key, value)
            case Kind.NUMBER:
                return numbers(key.name, operator, value)
            case Kind.TIME:
                return times(key.name, operator, value, self.now)

    @staticmethod
    def _word(value: Value) -> str:
        if not value.is_quoted and value.text in CONNECTIVES:
            raise FilterError(
                value.start, f"All conditions must hold: there is no {value.text}. Remove it, or write the word in quotes."
            )
        return _plain(value)

    def _unknown(self, name: str) -> str:
        names = [key.name for key in self.vocabulary.keys]
        near = get_close_matches(name.lower(), names, 1, 0.7)
        meant = f"Write {near[0]}:, or put" if near else f"The keys of this list are {', '.join(names)}. Put"
        return f"There is no key {name} here. {meant} the text in quotes to search for it."


def _example(key: Key) -> str:
    if key.kind is Kind.CHOICE:
        return f"one of {', '.join(key.choices())}."
    return f"as in {key.example}." if key.example else f"the {key.meaning}."


def _plain(value: Value) -> str:
    if not value.pattern.is_plain:
        raise FilterError(value.start, 'Remove the *: a text is found wherever it stands. An asterisk itself is written "\\*".')
    return value.text


def _choice(key: Key, value: Value) -> str:
    choices = key.choices()
    wanted = normal(value.text)
    chosen = next((choice for choice in choices if choice == wanted), None)
    if chosen is None:
        raise FilterError(value.start, f"There is no {key.name} {value.text}. Write one of {', '.join(choices)}.")
    return chosen


def normal(text: str) -> str:
    """A choice as it is written: in lower case, with hyphens."""
    return text.strip().lower().replace("_", "-")


def canonical(request: HttpRequest, vocabulary: Vocabulary | None, *, old_filter: str = "") -> HttpResponseRedirect | None:
    """A redirect to the address of this page with all conditions in one q, and without empty parameters; None: it has that
    address. vocabulary: of the page; None: of messages, whose conditions earlier addresses had in `old_filter`."""
    if request.method != "GET" or isinstance(request, LiveRequest):
        return None
    text = _text_of(request.GET, vocabulary) if vocabulary else token_field.text_of(request.GET, old_filter)
    old = _old_parameters(request.GET, vocabulary) if vocabulary else [old_filter]
    query = QueryDict(mutable=True)
    for name, values in request.GET.lists():
        if name == "q" or name in old:
            continue
        query.setlist(name, [value for value in values if value.strip()])
        if not query.getlist(name):
            del query[name]
    if text:
        query["q"] = text
    if query == request.GET:
        return None
    return HttpResponseRedirect(f"{request.path}?{query.urlencode()}" if query else request.path)


def _text_of(query: QueryDict, vocabulary: Vocabulary) -> str:
    """The conditions in a query, also in one of earlier versions, whose q was a text and no conditions."""
    if not _old_parameters(query, vocabulary):
        return token_field.text_of(query)
    given = [(key, query.get(key.old, "").strip()) for key in vocabulary.keys if key.old]
    conditions = [condition(key.name, _new_value(key, value)) for key, value in given if value]
    words = [*query.getlist(vocabulary.old_words), *query.getlist("q")]
    return " ".join([*conditions, *(condition("", word.strip()) for word in words if word.strip())])


def _new_value(key: Key, value: str) -> str:
    return key.old_value or (normal(value) if key.kind is Kind.CHOICE else value)


def _old_parameters(query: QueryDict, vocabulary: Vocabulary) -> list[str]:
    """The parameters of earlier versions that a query has."""
    names = [name for name in (*(key.old for key in vocabulary.keys), vocabulary.old_words) if name]
    return [name for name in names if query.get(name, "").strip()]
