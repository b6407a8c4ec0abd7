"""The page of saved filters: applying, saving and deleting them. Each change is audited."""

from __future__ import annotations

from collections.abc import Mapping

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.timezone import now
from django.views.decorators.http import require_GET, require_POST

from broker_core import reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, Right
from explorer.frames.shell import act, notify_error, page, show
from explorer.models import SavedFilter

from .saved import delete_saved, may_change


class SaveForm(forms.Form):
    name = forms.CharField(max_length=80, label="Name")
    text = forms.CharField(max_length=2000, label="Filter")
    is_shared = forms.BooleanField(required=False)
    here_only = forms.BooleanField(required=False)
    namespace = forms.CharField(required=False, max_length=255)
    path = forms.CharField(required=False, max_length=260)
    tab = forms.CharField(required=False, max_length=40)


@page
@require_GET
def saved_filters(request: HttpRequest) -> HttpResponse:
    """The filters that the user may apply: with `path` those for that entity and for all lists, else all. With `text` also a form
    that saves this filter."""
    request.actor.require(Right.BROWSE, "saved filters")
    query = {name: request.GET.get(name, "") for name in ("text", "namespace", "path", "tab")}
    filters = SavedFilter.objects.visible_to(request.user).select_related("owner")
    if query["path"]:
        filters = filters.offered_at(query["namespace"], query["path"])
    lines = [(saved, _url(saved, query), may_change(request, saved)) for saved in filters]
    return show(request, "saved_filters", {"section": "messages", "lines": lines, **query})


@page
@require_POST
def save(request: HttpRequest) -> HttpResponse:
    request.actor.require(Right.BROWSE, "saved filters")
    form = SaveForm(request.POST)
    if not form.is_valid():
        notify_error(request, InvalidArgument("name", "Enter a name of at most 80 characters for the filter."))
        return redirect("explorer:saved_filters")
    cleaned = form.cleaned_data
    for_entity = cleaned["here_only"] and cleaned["path"]
    place = {"namespace": cleaned["namespace"], "path": cleaned["path"]} if for_entity else {"namespace": "", "path": ""}
    address = EntityAddress(cleaned["namespace"], cleaned["path"]) if for_entity else None

    def call() -> SavedFilter:
        reads.parse_filter(cleaned["text"], now=now())
        values = {"text": cleaned["text"], "is_shared": cleaned["is_shared"]}
        return SavedFilter.objects.update_or_create(owner=request.user, name=cleaned["name"], **place, defaults=values)[0]

    done = act(
        request, "save filter", address, call, target=cleaned["name"],
        says=lambda saved: f'Saved the filter "{saved.name}"{", shared with everybody" if saved.is_shared else ""}.',
    )  # fmt: skip
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(_list_url(cleaned["namespace"], cleaned["path"], cleaned["text"], cleaned["tab"]))


@page
@require_POST
def delete(request: HttpRequest, filter_id: int) -> HttpResponse:
    saved = SavedFilter.objects.visible_to(request.user).filter(pk=filter_id).first()
    delete_saved(request, saved, "filter")
    return redirect("explorer:saved_filters")


def _url(saved: SavedFilter, where: Mapping[str, str]) -> str:
    """The URL that applies a filter: to its entity, else to the list that the user came from, else to the search."""
    namespace, path = (saved.namespace, saved.path) if saved.path else (where["namespace"], where["path"])
    return _list_url(namespace, path, saved.text, where["tab"] if path == where["path"] else "")


def _list_url(namespace: str, path: str, text: str, tab: str) -> str:
    query = urlencode({"tab": tab, "q": text} if tab else {"q": text})
    return f"{reverse('explorer:entity', args=(namespace, path)) if namespace and path else reverse('explorer:messages')}?{query}"
