"""Show as code: an entity's or a message's operations as programs that run against this site."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from broker_core import namespaces, reads
from broker_core.common.errors import MessageNotFound
from explorer.frames.presenters import SUBQUEUES
from explorer.frames.shell import address_of, cleaned, page, show, site_url
from explorer.snippets import of
from explorer.snippets.of import NEW, Shown


class CodeQuery(forms.Form):
    op = forms.SlugField(required=False, max_length=40)
    new = forms.ChoiceField(required=False, choices=[(kind, kind) for kind in sorted(set(NEW.values()))])
    subqueue = forms.ChoiceField(required=False, choices=[(name, name) for name in SUBQUEUES])
    number = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


@page
@require_GET
def code(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """`?op=send`: an operation of an entity; with `number` and `subqueue`, of a message. `?new=queue`: the creation of one."""
    query = cleaned(CodeQuery(request.GET))
    shown = _shown(request, namespace, path, query)
    links = request.GET.copy()
    tabs = []
    for name, title in shown.names:
        links["op"] = name
        tabs.append((title, f"{request.path}?{links.urlencode()}", name == shown.name))
    at = address_of(namespace, path)
    back = (
        reverse("explorer:namespace", args=(namespace,)) if query["new"] else reverse("explorer:entity", args=(namespace, path))
    )
    context = {"section": "entities", "code": shown, "tabs": tabs, "place": str(at), "back": back}
    return show(request, "code", context)


def _shown(request: HttpRequest, namespace: str, path: str, query: dict) -> Shown:
    base = site_url(request)
    if query["new"]:
        family = namespaces.get_namespace(namespace, actor=request.actor).family
        return of.of_new(family, query["new"], address_of(namespace, path), base)
    at = address_of(namespace, path, query["subqueue"] or "main")
    entity = reads.entity(at.main, actor=request.actor)
    if query["number"] is None:
        place = at if query["subqueue"] else entity.address
        return of.of_entity(entity, place, query["op"], base)
    detail = reads.message(at.main, query["number"], actor=request.actor)
    if detail is None:
        raise MessageNotFound(str(at), [query["number"]], "message")
    return of.of_message(detail, query["op"], base, request.actor)
