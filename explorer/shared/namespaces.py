"""Create and delete a Service Bus namespace or a storage account. A virtual host has pages of its own, for it begins with
exchanges."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import namespaces, queue_storage, reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, Family, Right
from explorer.service_bus.forms.entity import TypedNameForm
from explorer.shared.forms.namespace import NamespaceForm

from .shell import Act, May, act, page

_FIELDS = {"namespace": "name", "account": "name"}  # what a refusal names, where the form has another name for it


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """`?family=` chooses it."""
    request.actor.require(Right.MANAGE, "namespaces")
    chosen = request.GET.get("family", Family.SERVICE_BUS)
    form = NamespaceForm(request.POST if request.method == "POST" else None, initial={"family": chosen})
    if not form.is_valid():
        return _show(request, form, status=400 if form.is_bound else 200)
    given = form.cleaned_data
    kind = definition_of(given["family"]).container_noun
    done = act(
        request, f"create {kind}", None, lambda: _create(given, request.actor), target=given["name"],
        says=lambda made: f"Created the {kind} {made.name}.",
    )  # fmt: skip
    return _show(request, form, done) if done.error else HttpResponseRedirect(reverse("explorer:namespace", args=[given["name"]]))


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, namespace: str) -> HttpResponse:
    """Its name is typed, beside what goes with it. An account goes with its queues, a Service Bus namespace once it is empty."""
    here = namespaces.get_namespace(namespace, actor=request.actor)
    if here.family is Family.RABBITMQ:
        return HttpResponseRedirect(reverse("explorer:rabbitmq_vhost_delete", args=(here.name,)))
    request.actor.require(Right.MANAGE, here.name)
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=here.name)
    if not form.is_valid():
        return _ask(request, here, form, status=400 if form.is_bound else 200)
    done = act(
        request,
        f"delete {definition_of(here.family).container_noun}",
        None,
        lambda: _delete(here, request.actor),
        target=here.name,
        says=lambda said: said,
    )
    return _ask(request, here, form, done) if done.error else HttpResponseRedirect(reverse("explorer:overview"))


def _delete(here: namespaces.Namespace, actor: Actor) -> str:
    """What went, in words."""
    if here.family is Family.QUEUE_STORAGE:
        gone = queue_storage.delete_account(here.name, actor=actor)
        return f"Deleted the storage account {here.name}: {gone.queues:,} queues, {gone.messages:,} messages."
    namespaces.delete_namespace(here.name, actor=actor)
    return f"Deleted the namespace {here.name}."


def _ask(
    request: HttpRequest, here: namespaces.Namespace, form: TypedNameForm, done: Act = Act(), status: int | None = None
) -> HttpResponse:
    is_account = here.family is Family.QUEUE_STORAGE
    context = {
        "section": "overview",
        "here": here,
        "form": form,
        "error": done.error,
        "may": May(request.actor.rights),
        "contents": queue_storage.preview_delete_account(here.name, actor=request.actor) if is_account else None,
        "entities": 0 if is_account else _entities_in(here, request.actor),
    }
    return render(request, "explorer/namespace_delete.html", context, status=status or done.status)


def _entities_in(here: namespaces.Namespace, actor: Actor) -> int:
    return next((one.entities for one in reads.namespaces(actor=actor) if one.name == here.name), 0)


def _create(given: dict, actor: Actor) -> namespaces.Namespace:
    if given["family"] == Family.QUEUE_STORAGE:
        return queue_storage.create_account(given["name"], given["description"], actor=actor)
    return namespaces.create_namespace(given["name"], given["description"], tier=given["tier"], actor=actor)


def _show(request: HttpRequest, form: NamespaceForm, done: Act = Act(), status: int | None = None) -> HttpResponse:
    if isinstance(done.error, InvalidArgument):
        field = _FIELDS.get(done.error.name, done.error.name)
        form.add_error(field if field in form.fields else None, done.error.problem)
    context = {"section": "overview", "form": form, "error": done.error, "may": May(request.actor.rights)}
    return render(request, "explorer/namespace_new.html", context, status=status or done.status)
