"""What the field of a filter suggests: first keys, then frequent values of the list's newest messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.reads import MOST_SUGGESTED, Tab, exactly, quoted_name
from broker_core.reads.conditions import State
from broker_core.reads.filters import AGES, NUMBERS, TEXTS, TIMES
from explorer.frames.presenters import plural
from explorer.frames.shell import address_of, page

EXAMPLES = {"age": "age>1h", "dead-age": "dead-age<1h", "at": "at:09:00..09:30", "number": "number>700", "size": "size>10KB"}
LISTED = tuple(key for key in TEXTS if key not in ("id", "entity"))  # the keys whose values may be frequent


class Suggestion(NamedTuple):
    """A condition, or the beginning of one, and what it means."""

    text: str
    meaning: str


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
    """Options for what was typed last. tab: a list of reads.Tab."""
    typed = request.GET.getlist("q")[-1].strip() if request.GET.getlist("q") else ""
    tab = Tab(request.GET["tab"]) if request.GET.get("tab") in list(Tab) else Tab.ACTIVE
    options = suggested(typed, address_of(namespace, path), tab, request)
    return render(request, "explorer/_filter_suggestions.html", {"suggestions": options})


@page
@require_GET
def general(request: HttpRequest) -> HttpResponse:
    """Options where no list is given: keys and states."""
    typed = request.GET.getlist("q")[-1].strip() if request.GET.getlist("q") else ""
    return render(request, "explorer/_filter_suggestions.html", {"suggestions": [*_states(typed), *matching_keys(typed)]})


def suggested(typed: str, address: EntityAddress, tab: Tab, request: HttpRequest) -> list[Suggestion]:
    """The suggestions for a list. A list that cannot be read has only keys."""
    minus, text = ("-", typed[1:]) if typed.startswith("-") else ("", typed)
    options = _states(text)
    with contextlib.suppress(BrokerError):
        options += list(_values(text, address, tab, request))
    return [Suggestion(minus + suggestion.text, suggestion.meaning) for suggestion in [*options, *matching_keys(text)]]


def matching_keys(typed: str) -> list[Suggestion]:
    return [suggestion for suggestion in keys() if typed.lower() in suggestion.text or typed.lower() in suggestion.meaning]


def _states(typed: str) -> list[Suggestion]:
    return [Suggestion(f"state:{state}", "state") for state in State] if typed.startswith("state") else []


def _values(typed: str, address: EntityAddress, tab: Tab, request: HttpRequest) -> Iterable[Suggestion]:
    if typed.startswith("prop.") and not any(sign in typed for sign in ":=<>"):
        names = reads.frequent_values(address, tab, "prop.", typed.removeprefix("prop."), actor=request.actor)
        return [Suggestion(f"prop.{quoted_name(name)}:", _counted(count)) for name, count in names]
    key, sign, part = typed.replace("=", ":").partition(":")
    if not sign or not (key in LISTED or (key.startswith("prop.") and len(key) > 5)):
        return []
    values = reads.frequent_values(address, tab, key.replace('"', ""), part.strip('"*'), actor=request.actor)
    return [Suggestion(exactly(key, value), _counted(count)) for value, count in values if len(value) < 200][:MOST_SUGGESTED]


def _counted(count: int) -> str:
    return f"{plural(count, 'message')} of the newest {reads.SUGGEST_FROM:,}"
