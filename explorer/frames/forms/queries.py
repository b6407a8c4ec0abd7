"""Validates the query strings of pages. An invalid value is a 400 with an explanation, never ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.reads import Tab
from explorer.frames import figures

HISTORY, SUBSCRIPTIONS, RULES, SESSIONS, RECEIVERS = "history", "subscriptions", "rules", "sessions", "receivers"
MESSAGE_TABS = tuple(str(tab) for tab in Tab if tab is not Tab.UNLOCKED)
TABS = (*MESSAGE_TABS, SUBSCRIPTIONS, RULES, SESSIONS, RECEIVERS, HISTORY)
MOST_NAMES = 100

ORDERS = [("", "newest first"), ("oldest", "oldest first")]


class ScopeQuery(forms.Form):
    """entity: an address. namespace: if no entity is given; empty: all of them."""

    namespace = forms.CharField(required=False, max_length=50)
    entity = forms.CharField(required=False, max_length=330)

    def clean_entity(self) -> EntityAddress | None:
        try:
            return EntityAddress.parse(self.cleaned_data["entity"]) if self.cleaned_data["entity"] else None
        except BrokerError as exc:
            raise forms.ValidationError(str(exc)) from exc


class NowQuery(forms.Form):
    """namespace: only its entities. list: "all": everything that needs a person, instead of the worst with charts."""

    namespace = forms.CharField(required=False, max_length=255)
    list = forms.ChoiceField(required=False, choices=[("", "the worst"), ("all", "all")])


class Names(forms.Field):
    """A parameter that may be given several times: a list of texts of at most max_length characters."""

    widget = forms.MultipleHiddenInput

    def __init__(self, *, max_length: int, **options: Any):
        super().__init__(**options)
        self._max_length = max_length

    def to_python(self, value: Any) -> list[str]:
        names = [name for name in value or () if name]
        if len(names) > MOST_NAMES or any(len(name) > self._max_length or "\x00" in name for name in names):
            raise forms.ValidationError(f"must be at most {MOST_NAMES} names of at most {self._max_length} characters.")
        return names


class PageQuery(forms.Form):
    """page: of a list, from 1."""

    page = forms.IntegerField(required=False, min_value=1, max_value=100_000)


class OverviewQuery(forms.Form):
    """sort: a column, with a minus for descending order, or "attention". all: also hidden and system entities. toggle: groups,
    "namespace/prefix", that are not as at first, open or closed. columns: those that are shown."""

    sort = forms.CharField(required=False)
    all = forms.BooleanField(required=False)
    toggle = Names(required=False, max_length=330)
    columns = Names(required=False, max_length=30)
    page = forms.IntegerField(required=False, min_value=1, max_value=100_000)

    def clean_sort(self) -> str:
        sort = self.cleaned_data["sort"]
        sorts = ("name", "attention", *figures.by_name(), "sent", "completed", "oldest")
        if sort and sort.removeprefix("-") not in sorts:
            raise forms.ValidationError(f"must be one of {', '.join(sorts)}; prefix it with - for descending order.")
        return sort


class EntityQuery(forms.Form):
    """An entity's list. cursor: from the previous page. tab: empty for the first one."""

    tab = forms.ChoiceField(required=False, choices=[(t, t) for t in TABS])
    cursor = forms.CharField(required=False, max_length=200)
    order = forms.ChoiceField(required=False, choices=[*ORDERS, ("newest", "last due first")])


class HistoryQuery(forms.Form):
    """The history of an entity, whatever its family."""

    cursor = forms.CharField(required=False, max_length=200)


class DeletedQuery(forms.Form):
    """The record of a deleted entity. of: its id; empty: the last one with its name. Links to lists it had are followed, too."""

    of = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)
    tab = forms.CharField(required=False)
    cursor = forms.CharField(required=False, max_length=200)


class StorageQuery(forms.Form):
    """A storage queue's list. tabs: the existing lists. tab: empty for the first one."""

    tab = forms.CharField(required=False)
    cursor = forms.CharField(required=False, max_length=200)
    order = forms.ChoiceField(required=False, choices=ORDERS)

    def __init__(self, *args, tabs: Sequence[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.tabs = tabs

    def clean_tab(self) -> str:
        tab = self.cleaned_data["tab"]
        if tab and tab not in self.tabs:
            raise forms.ValidationError(f"must be one of {', '.join(self.tabs)}.")
        return tab


class AuditQuery(forms.Form):
    """before: id of the last record of the previous page."""

    before = forms.IntegerField(required=False, min_value=1)


class LockQuery(forms.Form):
    """all: also system entities and sandboxes. cursor: from the previous page."""

    all = forms.BooleanField(required=False)
    cursor = forms.CharField(required=False, max_length=1_000)


class SearchQuery(forms.Form):
    """A search; its filter is in q. all: also system entities. cursor: of the slice. scanned, found: in the slices before it.
    rows: found since the user asked to go on, as go_on does. known: the parts of the search of which the messages with an id were
    found at first (reads.messages_with_id)."""

    all = forms.BooleanField(required=False)
    cursor = forms.CharField(required=False, max_length=120)
    scanned = forms.IntegerField(required=False, min_value=0)
    found = forms.IntegerField(required=False, min_value=0)
    rows = forms.IntegerField(required=False, min_value=0)
    known = forms.CharField(required=False, max_length=40)
    go_on = forms.BooleanField(required=False)
