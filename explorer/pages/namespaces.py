"""Changes namespaces; creates and deletes those of families that do not have their own pages for this."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import namespaces, reads
from broker_core.common.durations import human
from broker_core.common.errors import BrokerError, InvalidArgument, PreviewOutdated
from broker_core.common.types import Actor, Right
from broker_core.namespaces import Limits
from explorer.frames.family import installed, pages_of
from explorer.frames.forms.namespace import NamespaceForm, NamespaceSettingsForm
from explorer.frames.forms.typed_name import TypedNameForm
from explorer.frames.shell import Act, act, page, show_form

_FIELDS = {"namespace": "name", "account": "name"}  # argument names of errors whose form field has another name


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """`?family=` preselects the family."""
    request.actor.require(Right.MANAGE, "namespaces")
    chosen = request.GET.get("family", installed()[0].family)
    form = NamespaceForm(request.POST if request.method == "POST" else None, initial={"family": chosen})
    if not form.is_valid():
        return show_form(request, "namespace_new", form)
    values = form.cleaned_data
    pages = pages_of(values["family"])
    kind, own = pages.container_noun, pages.namespaces
    if own is None:
        raise InvalidArgument("family", f"A {kind} has a page of its own.")
    done = act(
        request, f"create {kind}", None, lambda: own.create(values, request.actor), target=values["name"],
        says=lambda created: f"Created the {kind} {created.name}.",
    )  # fmt: skip
    if done.error:
        return show_form(request, "namespace_new", form, done=done, fields=_FIELDS)
    return HttpResponseRedirect(reverse("explorer:namespace", args=[values["name"]]))


@page
@require_http_methods(["GET", "POST"])
def change(request: HttpRequest, namespace: str) -> HttpResponse:
    """GET shows the settings, POST with `preview` the effect of a change; another POST saves it."""
    stored = namespaces.get_namespace(namespace, actor=request.actor)
    request.actor.require(Right.MANAGE, stored.name)
    initial = {"max_size_in_megabytes": stored.max_size_in_megabytes, "keep_messages_for": stored.keep_messages_for}
    form = NamespaceSettingsForm(request.POST if request.method == "POST" else None, initial=initial)
    if not form.is_valid():
        return _show_settings(request, stored, form)
    limits = Limits(form.cleaned_data["max_size_in_megabytes"] or 0, form.cleaned_data["keep_messages_for"])
    if "preview" in request.POST:
        return _show_settings(request, stored, form, limits=limits)
    token = request.POST.get("token") or None
    done = act(
        request, f"change {pages_of(stored.family).container_noun}", None,
        lambda: namespaces.change_limits(stored.name, *limits, token=token, actor=request.actor),
        target=stored.name,
        says=lambda effect: _changed(stored.name, effect.before, effect.after),
    )  # fmt: skip
    if done.error:
        anew = limits if isinstance(done.error, PreviewOutdated) else None
        return _show_settings(request, stored, form, done=done, limits=anew)
    return HttpResponseRedirect(reverse("explorer:namespace", args=[stored.name]))


def _show_settings(
    request: HttpRequest,
    stored: namespaces.Namespace,
    form: NamespaceSettingsForm,
    *,
    done: Act = Act(),
    limits: Limits | None = None,
) -> HttpResponse:
    """The form; limits: with the effect of these."""
    previewed = None
    if limits is not None:
        try:
            previewed = namespaces.preview_limits(stored.name, *limits, actor=request.actor)
        except BrokerError as exc:
            done = Act(error=exc)
    messages, size = reads.kept_in(stored.name, actor=request.actor)
    return show_form(
        request, "namespace_settings", form, done=done, current_namespace=stored, previewed=previewed, kept_messages=messages,
        kept_bytes=size,
    )  # fmt: skip


def _changed(name: str, before: Limits, after: Limits) -> str:
    changes = []
    if before.max_size_in_megabytes != after.max_size_in_megabytes:
        old, new = (_megabytes(limits.max_size_in_megabytes) for limits in (before, after))
        changes.append(f"Changed the maximum size of {name} from {old} to {new}.")
    if before.keep_messages_for != after.keep_messages_for:
        period = after.keep_messages_for
        changes.append(f"Ended messages of {name} are {f'kept for {human(period)}' if period else 'no longer kept'}.")
    return " ".join(changes) or "Nothing was changed."


def _megabytes(size: int) -> str:
    return f"{size:,} MB" if size else "unlimited"


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, namespace: str) -> HttpResponse:
    """The user types the name to confirm. The page shows the contents if the family deletes them with the namespace."""
    stored = namespaces.get_namespace(namespace, actor=request.actor)
    pages = pages_of(stored.family)
    own = pages.namespaces
    if own is None:
        return HttpResponseRedirect(reverse(f"explorer:{pages.namespace_urls['namespace_delete']}", args=(stored.name,)))
    request.actor.require(Right.MANAGE, stored.name)
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=stored.name)
    if not form.is_valid():
        return _ask(request, stored, form)
    done = act(
        request,
        f"delete {pages.container_noun}",
        None,
        lambda: own.delete(stored, request.actor),
        target=stored.name,
        says=lambda text: text,
    )
    return _ask(request, stored, form, done) if done.error else HttpResponseRedirect(reverse("explorer:entities"))


def _ask(request: HttpRequest, namespace: namespaces.Namespace, form: TypedNameForm, done: Act = Act()) -> HttpResponse:
    pages = pages_of(namespace.family).namespaces
    contents = pages.contents(namespace, request.actor) if pages else None
    entities = 0 if contents is not None else _entities_in(namespace, request.actor)
    return show_form(
        request, "namespace_delete", form, done=done, current_namespace=namespace, contents=contents, entities=entities
    )


def _entities_in(namespace: namespaces.Namespace, actor: Actor) -> int:
    return next((row.entities for row in reads.namespaces(actor=actor) if row.name == namespace.name), 0)
