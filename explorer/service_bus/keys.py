"""Shared access policies: creating, showing and regenerating their keys, their rights, and deleting them.

A key is shown only on request, in an answer that is not stored, and is never written to the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.connection_strings import ConnectionString
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.service_bus.connection_strings import connection_strings
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.entities.shared_access import AccessPolicy, Scope
from explorer import sandbox_names
from explorer.frames import changes
from explorer.frames.family import KeyLine, KeyPages
from explorer.frames.shell import Act, act, page, show, show_form
from explorer.frames.well_known import used_first

RIGHTS = ("send", "listen", "manage")
KEYS = ("primary", "secondary")
_PLACE = {"section": "administration", "tab": "keys"}


class RightsForm(forms.Form):
    """The rights of a policy."""

    send = forms.BooleanField(required=False, label="Send messages")
    listen = forms.BooleanField(required=False, label="Listen: receive and browse messages")
    manage = forms.BooleanField(required=False, label="Manage: all of it, and create and change entities")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if not any(values.get(right) for right in RIGHTS):
            self.add_error("send", "Select at least one right.")
        return values

    @property
    def rights(self) -> dict[str, bool]:
        return {right: self.cleaned_data[right] for right in RIGHTS}


class NewPolicyForm(RightsForm):
    """A new policy of a namespace, or of a queue or topic in it."""

    namespace = forms.ChoiceField(label="Namespace")
    path = forms.CharField(
        required=False, max_length=260, label="Queue or topic", help_text="Leave empty for the whole namespace.",
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    name = forms.CharField(
        max_length=256, label="Name", help_text="Such as web-shop: the name of the program, or of its role.",
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip

    def __init__(self, *args: Any, namespaces: list[str], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["namespace"].choices = [(name, name) for name in namespaces]

    @property
    def scope(self) -> Scope:
        namespace, path = self.cleaned_data["namespace"], self.cleaned_data["path"]
        return EntityAddress(namespace, path) if path else namespace


class SharedAccess(KeyPages):
    """The shared access policies of namespaces, queues and topics, without those of sandboxes."""

    nouns = "Shared access policies"
    new_text = "New policy"
    new_url_name = "access_policy_new"
    none = ("No policies", "No program can sign in. Create a policy for a namespace.")

    def lines(self, actor: Actor) -> list[KeyLine]:
        sandboxes = sandbox_names.hidden_sandboxes(None, actor, own=False)
        return [
            KeyLine(policy.name, _scope_words(policy.scope), _rights_words(policy), _url(policy.scope, policy.name))
            for policy in shared_access.list_all_policies(actor=actor)
            if policy.namespace.lower() not in sandboxes
        ]


def _url(scope: Scope, name: str) -> str:
    if isinstance(scope, EntityAddress):
        return reverse("explorer:entity_access_policy", args=[name, scope.namespace, scope.path])
    return reverse("explorer:access_policy", args=[name, scope])


def _scope_words(scope: Scope) -> str:
    return str(scope) if isinstance(scope, EntityAddress) else f"all of {scope}"


def _rights_words(policy: AccessPolicy) -> str:
    granted = ["manage"] if policy.manage else [right for right in RIGHTS if getattr(policy, right)]
    return " and ".join(granted)


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    request.actor.require(Right.MANAGE, "keys")
    namespaces = used_first(sandbox_names.without(reads.namespaces(actor=request.actor)))
    of_service_bus = [row.name for row in namespaces if row.family is Family.SERVICE_BUS and not row.is_system]
    data = request.POST if request.method == "POST" else None
    form = NewPolicyForm(data, namespaces=of_service_bus, initial={"listen": True, "send": True})
    done = Act()
    if form.is_valid():
        scope, name = form.scope, form.cleaned_data["name"]
        done = act(
            request, "create access policy", _address(scope), lambda: _created(scope, name, form.rights, request.actor),
            target=_target(scope, name), says=lambda policy: f"Created the policy {policy.name} of {_scope_words(scope)}.",
        )  # fmt: skip
        if not done.error:
            return HttpResponseRedirect(_url(done.result.scope, done.result.name))
        if isinstance(done.error, EntityNotFound):
            form.add_error("path", f"There is no queue or topic {form.cleaned_data['path']} in {form.cleaned_data['namespace']}.")
            done = Act()
    context = {**_PLACE, "deeper": "New policy"}
    return show_form(request, "service_bus/access_policy_new", form, done=done, fields={"policy": "name"}, **context)


def _created(scope: Scope, name: str, rights: Mapping[str, Any], actor: Actor) -> AccessPolicy:
    return shared_access.create_policy(scope, name, actor=actor, **rights)


@never_cache
@page
@require_http_methods(["GET", "POST"])
def policy(request: HttpRequest, name: str, namespace: str, path: str | None = None) -> HttpResponse:
    """GET shows the policy without its keys. POST `do`: show, rights, regenerate-primary, regenerate-secondary, delete."""
    request.actor.require(Right.MANAGE, "keys")
    scope: Scope = EntityAddress(namespace, path) if path else namespace
    stored = shared_access.get_policy(scope, name, actor=request.actor)
    if request.method != "POST":
        return _show(request, stored)
    return changes.make(request, _CHANGES, stored)


def _reveal(request: HttpRequest, stored: AccessPolicy, data: QueryDict) -> HttpResponse:
    act(request, "show keys", _address(stored.scope), lambda: None, target=_target(stored.scope, stored.name))
    shown = [
        (which, key, f"{which.capitalize()} key", _strings(stored, key)) for which, key in zip(KEYS, stored.keys, strict=True)
    ]
    return _show(request, stored, shown=shown)


def _strings(stored: AccessPolicy, key: str) -> list[ConnectionString]:
    """Those that work now."""
    strings = connection_strings(stored.namespace, stored.path, stored.name, key)
    return [string for string in strings if not string.why_not]


def _change_rights(request: HttpRequest, stored: AccessPolicy, data: QueryDict) -> HttpResponse:
    form = RightsForm(data)
    if not form.is_valid():
        return _show(request, stored, form=form)
    before = {"do": "rights"} | {right: "on" for right in RIGHTS if getattr(stored, right)}
    done = act(
        request, "change access policy", _address(stored.scope),
        lambda: shared_access.update_policy(stored.scope, stored.name, actor=request.actor, **form.rights),
        target=_target(stored.scope, stored.name),
        says=lambda changed: f"{changed.name} may {_rights_words(changed)}.", undo=changes.undo_with(request, before),
    )  # fmt: skip
    return _show(request, stored, done=done) if done.error else HttpResponseRedirect(request.path)


def _regenerate(which: str) -> Callable[[HttpRequest, AccessPolicy, QueryDict], HttpResponse]:
    def change(request: HttpRequest, stored: AccessPolicy, data: QueryDict) -> HttpResponse:
        done = act(
            request, f"regenerate {which} key", _address(stored.scope),
            lambda: shared_access.regenerate_key(stored.scope, stored.name, which=which, actor=request.actor),
            target=_target(stored.scope, stored.name),
            says=lambda changed: f"{changed.name} has a new {which} key. The old one is refused.",
        )  # fmt: skip
        return _show(request, stored, done=done) if done.error else HttpResponseRedirect(request.path)

    return change


def _delete(request: HttpRequest, stored: AccessPolicy, data: QueryDict) -> HttpResponse:
    done = act(
        request, "delete access policy", _address(stored.scope),
        lambda: shared_access.delete_policy(stored.scope, stored.name, actor=request.actor),
        target=_target(stored.scope, stored.name),
        says=lambda _: f"Deleted the policy {stored.name} of {_scope_words(stored.scope)}. Its keys are refused.",
    )  # fmt: skip
    return _show(request, stored, done=done) if done.error else HttpResponseRedirect(reverse("explorer:access_keys"))


_CHANGES = {"show": _reveal, "rights": _change_rights, "delete": _delete} | {
    f"regenerate-{which}": _regenerate(which) for which in KEYS
}


def _show(request: HttpRequest, stored: AccessPolicy, *, done: Act = Act(), form: RightsForm | None = None, **context: Any):
    form = form or RightsForm(initial={right: getattr(stored, right) for right in RIGHTS})
    context |= {
        **_PLACE, "deeper": stored.name, "policy": stored, "scope": _scope_words(stored.scope), "form": form, "error": done.error,
        "which": KEYS,
    }  # fmt: skip
    status = done.status if done.error else 400 if form.errors else 200
    return show(request, "service_bus/access_policy", context, fragment="service_bus/access_policy", status=status)


def _address(scope: Scope) -> EntityAddress | None:
    return scope if isinstance(scope, EntityAddress) else None


def _target(scope: Scope, name: str) -> str:
    return name if isinstance(scope, EntityAddress) else f"{scope}: {name}"
