"""What the field of a filter suggests: first keys, then frequent values of the list's newest messages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress, Right
from broker_core.reads import MOST_SUGGESTED, EntityFilter, EventFilter, LockFilter, Tab, exactly, quoted_name
from broker_core.reads.conditions import State
from broker_core.reads.filters import AGES, NUMBERS, TEXTS, TIMES
from explorer import sandbox_names
from explorer.frames import vocabularies
from explorer.frames.family import installed
from explorer.frames.presenters import plural
from explorer.frames.shell import address_of, page
from explorer.frames.vocabulary import Kind, Vocabulary, condition
from explorer.models import AuditRecord

EXAMPLES = {"age": "age>1h", "dead-age": "dead-age<1h", "at": "at:09:00..09:30", "number": "number>700", "size": "size>10KB"}
LISTED = tuple(key for key in TEXTS if key not in ("id", "entity"))  # the keys whose values may be frequent

MOST_SHOWN = 40
MOST_READ = 300  # of which values are suggested
LONGEST_SUGGESTED = 200  # characters
LEAST_OF_MEANING = 3  # characters by which a key is found by what it means
_LAST_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+$')


class Suggestion(NamedTuple):
    """A condition, or the beginning of one, and what it means. applies: whether choosing it applies it, as it is complete."""

    text: str
    meaning: str
    applies: bool = False


def keys() -> list[Suggestion]:
    """The beginnings of all conditions, and examples."""
    key_suggestions = [Suggestion(f"{key}:", meaning) for key, meaning in TEXTS.items()]
    key_suggestions += [Suggestion("prop.", "application property or header"), Suggestion("body:", "text in the body")]
    key_suggestions += [Suggestion("$.", "value in a JSON body, as in $.order.id>4700"), Suggestion("state:", "state")]
    numeric = {**AGES, **TIMES, **NUMBERS}
    return key_suggestions + [Suggestion(EXAMPLES.get(key, f"{key}>"), meaning) for key, meaning in numeric.items()]


@page
@require_GET
def suggestions(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """Options for the condition that is typed. tab: a list of reads.Tab."""
    tab = Tab(request.GET["tab"]) if request.GET.get("tab") in list(Tab) else Tab.ACTIVE
    return _options(request, suggested(_typed(request), address_of(namespace, path), tab, request))


@page
@require_GET
def general(request: HttpRequest) -> HttpResponse:
    """Options where no list is given: keys and states."""
    typed = _typed(request)
    return _options(request, [*_states(typed), *matching_keys(typed)])


@page
@require_GET
def of_vocabulary(request: HttpRequest, name: str) -> HttpResponse:
    """Options for the conditions of a page that lists something else than messages."""
    of_families = {vocabulary.name: vocabulary for pages in installed() for vocabulary in pages.vocabularies}
    vocabulary = vocabularies.ALL.get(name) or of_families.get(name)
    if vocabulary is None:
        raise Http404
    request.actor.require(Right.BROWSE, "suggestions")
    return _options(request, suggested_of(_typed(request), vocabulary, request))


def _typed(request: HttpRequest) -> str:
    """The condition that is typed: the last word of the field."""
    texts = request.GET.getlist("q")
    match = _LAST_WORD.search(texts[-1]) if texts else None
    return match[0] if match else ""


def _options(request: HttpRequest, options: Iterable[Suggestion]) -> HttpResponse:
    return render(request, "explorer/_filter_suggestions.html", {"suggestions": list(options)[:MOST_SHOWN]})


def suggested_of(typed: str, vocabulary: Vocabulary, request: HttpRequest) -> list[Suggestion]:
    """The keys of a vocabulary that may be meant, or the values of the key that is typed."""
    name, sign, part = typed.partition(":")
    key = next((key for key in vocabulary.keys if sign and key.name == name.lower()), None)
    if key is None:
        of_keys = [Suggestion(key.example or f"{key.name}:", key.meaning) for key in vocabulary.keys]
        return [suggestion for suggestion in of_keys if not sign and _is_meant(typed, suggestion)]
    values = key.choices() if key.kind is Kind.CHOICE else dict.fromkeys(SOURCES[key.source](request), "") if key.source else {}
    found = [value for value in values if part.strip('"').lower() in value.lower()]
    return [Suggestion(condition(key.name, value), values[value], applies=True) for value in found]


def _is_meant(typed: str, suggestion: Suggestion) -> bool:
    """Whether a key, or a word of its meaning, begins with what is typed."""
    text = typed.lower()
    return suggestion.text.startswith(text) or (
        len(text) >= LEAST_OF_MEANING and any(word.startswith(text) for word in suggestion.meaning.lower().split())
    )


def _namespaces(request: HttpRequest) -> list[str]:
    namespaces = sandbox_names.without_of_others(request.user, reads.namespaces(actor=request.actor))
    return [namespace.name for namespace in namespaces if not namespace.is_system]


def _entities(request: HttpRequest) -> list[str]:
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=False)
    rows = reads.list_entities(EntityFilter(except_namespaces=hidden), limit=MOST_READ, actor=request.actor)
    return [str(row.address) for row in rows]


def _people(request: HttpRequest) -> list[str]:
    return _newest_values("actor", lambda actor: actor.removeprefix("user:"))


def _actions(request: HttpRequest) -> list[str]:
    return _newest_values("action", str)


def _newest_values(field: str, shown: Callable[[str], str]) -> list[str]:
    """What the newest records of the audit have in a field, each once."""
    values = AuditRecord.objects.order_by("-id").values_list(field, flat=True)[:MOST_READ]
    return list(dict.fromkeys(shown(value) for value in values if value))


def _actors(request: HttpRequest) -> list[str]:
    """Who caused the newest events."""
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=False)
    events = reads.events(EventFilter(except_namespaces=hidden), limit=MOST_READ, actor=request.actor).rows
    return list(dict.fromkeys(event.actor for event in events if event.actor))


def _holders(request: HttpRequest) -> list[str]:
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=False)
    entities = EntityFilter(include_hidden=True, except_namespaces=hidden)
    return [holder.name for holder in reads.locks(LockFilter(entities), limit=1, actor=request.actor).holders]


SOURCES: Mapping[str, Callable[[HttpRequest], list[str]]] = {
    "namespaces": _namespaces,
    "entities": _entities,
    "people": _people,
    "actions": _actions,
    "actors": _actors,
    "holders": _holders,
}


def suggested(typed: str, address: EntityAddress, tab: Tab, request: HttpRequest) -> list[Suggestion]:
    """The suggestions for a list. A list that cannot be read has only keys."""
    minus, text = ("-", typed[1:]) if typed.startswith("-") else ("", typed)
    options = _states(text)
    with contextlib.suppress(BrokerError):
        options += list(_values(text, address, tab, request))
    return [suggestion._replace(text=minus + suggestion.text) for suggestion in [*options, *matching_keys(text)]]


def matching_keys(typed: str) -> list[Suggestion]:
    return [suggestion for suggestion in keys() if _is_meant(typed, suggestion)]


def _states(typed: str) -> list[Suggestion]:
    states = [Suggestion(f"state:{state}", "state", applies=True) for state in State] if typed.startswith("state") else []
    return [suggestion for suggestion in states if suggestion.text.startswith(typed)]


def _values(typed: str, address: EntityAddress, tab: Tab, request: HttpRequest) -> Iterable[Suggestion]:
    if typed.startswith("prop.") and not any(sign in typed for sign in ":=<>"):
        names = reads.frequent_values(address, tab, "prop.", typed.removeprefix("prop."), actor=request.actor)
        return [Suggestion(f"prop.{quoted_name(name)}:", _counted(count)) for name, count in names]
    key, sign, part = typed.replace("=", ":").partition(":")
    if not sign or not (key in LISTED or (key.startswith("prop.") and len(key) > 5)):
        return []
    values = reads.frequent_values(address, tab, key.replace('"', ""), part.strip('"*'), actor=request.actor)
    short = [(value, count) for value, count in values if len(value) < LONGEST_SUGGESTED]
    return [Suggestion(exactly(key, value), _counted(count), applies=True) for value, count in short[:MOST_SUGGESTED]]


def _counted(count: int) -> str:
    return f"{plural(count, 'message')} of the newest {reads.SUGGEST_FROM:,}"
