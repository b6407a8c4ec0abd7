"""Policies and operator policies: what each applies to; creating, changing and deleting one, with a preview."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import rabbitmq, reads
from broker_core.common.errors import BrokerError, EntityNotFound, PreviewOutdated
from broker_core.common.types import Right
from broker_core.rabbitmq import RoutingDraft
from broker_core.rabbitmq.policy_preview import PolicyPreview, QueueChange
from broker_core.rabbitmq.rules.errors import InvalidPolicy
from broker_core.rabbitmq.rules.policies import Policy
from explorer.frames.presenters import effects_text, plural
from explorer.frames.shell import Act, act, page
from explorer.rabbitmq.forms.keys import APPLY_TO, BY_EFFECTIVE, BY_POLICY, value_text
from explorer.rabbitmq.forms.policy import PolicyForm, initial_of

from . import presenters
from .policy_effects import Ruling, rulings, targets_of
from .routes import replay
from .shared import draw, link, vhost_of

LIMITS = ("consumer_timeout", "delivery_limit", "message_ttl")  # that analyses propose
MOST_SHOWN = 50  # changed queues and exchanges of a preview
KINDS = {"user": False, "operator": True}
_FIELDS = {"apply-to": "apply_to"}  # argument names of errors whose form field has another name


@dataclass(frozen=True, slots=True)
class ChangedKey:
    """A key whose value or source would change, in words."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Change:
    """A queue or exchange whose effective settings would change. messages: ready ones."""

    name: str
    is_queue: bool
    keys: list[ChangedKey]
    messages: int


@page
@require_GET
def policies(request: HttpRequest, namespace: str) -> HttpResponse:
    host = vhost_of(namespace, request.actor)
    judged = [(ruling, presenters.definition(ruling.policy.definition)) for ruling in current_rulings(request, host.name)]
    context = {
        "groups": [
            ("user", "Policies", [line for line in judged if not line[0].policy.is_operator]),
            ("operator", "Operator policies", [line for line in judged if line[0].policy.is_operator]),
        ],
        "apply_to": APPLY_TO,
    }
    return draw(request, "policies", host, context, place="policies")


def current_rulings(request: HttpRequest, vhost: str) -> list[Ruling]:
    """What each policy of the virtual host applies to now."""
    queues = reads.overview(vhost, include_hidden=True, actor=request.actor)
    exchanges = rabbitmq.list_exchanges(vhost, actor=request.actor)
    return rulings(rabbitmq.list_policies(vhost, actor=request.actor), targets_of(queues, exchanges))


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest, kind: str, namespace: str) -> HttpResponse:
    """`?pattern=` and `?name=`, and the keys of LIMITS, fill the form; a queue's page and analyses link here with them."""
    host, is_operator = _host_and_kind(request, kind, namespace)
    initial = {"pattern": request.GET.get("pattern", "")[:1024], "name": request.GET.get("name", "")[:255]}
    initial |= {name: request.GET[name][:20] for name in LIMITS if name in request.GET}
    form = PolicyForm(request.POST if request.method == "POST" else None, is_operator=is_operator, initial=initial)
    return _edit(request, host, form, kind)


@page
@require_http_methods(["GET", "POST"])
def change(request: HttpRequest, kind: str, namespace: str, name: str) -> HttpResponse:
    host, is_operator = _host_and_kind(request, kind, namespace)
    policy = _policy(request, host.name, name, is_operator)
    data = request.POST if request.method == "POST" else None
    form = PolicyForm(data, is_operator=is_operator, fixed_name=policy.name, initial=initial_of(policy))
    return _edit(request, host, form, kind, policy)


def propose(entity: Any, lock: timedelta | None, deliveries: int | None, time_to_live: timedelta | None) -> str:
    """The URL of a new policy for this queue with these limits. deliveries: the delivery limit."""
    texts = (_milliseconds(lock), deliveries, _milliseconds(time_to_live))
    query = {name: text for name, text in zip(LIMITS, texts, strict=True) if text is not None}
    attributes = {"name": f"{entity.path}-limits", "pattern": f"^{re.escape(entity.path)}$"}
    address = reverse("explorer:rabbitmq_policy_new", args=("user", entity.namespace.name))
    return f"{address}?{urlencode(attributes | query)}" if query else ""


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)


def _edit(
    request: HttpRequest, host: reads.NamespaceRow, form: PolicyForm, kind: str, policy: Policy | None = None
) -> HttpResponse:
    names = [exchange.name for exchange in rabbitmq.list_exchanges(host.name, actor=request.actor) if exchange.name]
    context = {"form": form, "kind": kind, "policy": policy, "exchange_names": names}
    if not form.is_valid():
        return draw(request, "policy", host, context, page_title=form.title, place="policies")
    new_policy = Policy(**form.values())
    if "preview" in request.POST:
        return _previewed(request, host, form, new_policy, context)
    done = act(
        request, _action("set", new_policy.is_operator), None, lambda: _set(request, host.name, new_policy),
        target=f"{host.name}: {new_policy.name}", says=was_set,
    )  # fmt: skip
    if isinstance(done.error, PreviewOutdated):
        return _previewed(request, host, form, new_policy, context, done)
    if done.error:
        return _refused(request, host, form, context, done)
    return HttpResponseRedirect(link("policies", host.name))


def _set(request: HttpRequest, vhost: str, policy: Policy) -> PolicyPreview:
    """Set the policy; with a preview's token only if the effect is still the same. Raises PreviewOutdated."""
    token = request.POST.get("token") or None
    return rabbitmq.change_policy(vhost, policy.name, policy.is_operator, policy, token=token, actor=request.actor)


def _previewed(
    request: HttpRequest, host, form: PolicyForm, policy: Policy, context: dict[str, Any], done: Act = Act()
) -> HttpResponse:
    try:
        preview = rabbitmq.preview_policy(host.name, policy, actor=request.actor)
        context |= _shown_preview(preview)
        if preview.exchanges:  # a policy changes the route of messages by an alternate exchange only
            context["replay"] = replay(host.name, RoutingDraft(policy=policy), request.actor)
    except BrokerError as exc:
        return _refused(request, host, form, context, Act(error=exc))
    return draw(request, "policy", host, context, page_title=form.title, place="policies", done=done)


def _shown_preview(previewed: PolicyPreview) -> dict[str, Any]:
    changed = [*previewed.queues, *previewed.exchanges]
    return {
        "previewed": previewed,
        "changes": [_change(change) for change in changed[:MOST_SHOWN]],
        "more_changes": max(0, len(changed) - MOST_SHOWN),
    }


def _change(change: Any) -> Change:
    is_queue = isinstance(change, QueueChange)
    keys = [
        ChangedKey(
            key.key.replace("_", "-"),
            _value_and_source(key.key, key.before, key.before_source),
            _value_and_source(key.key, key.after, key.after_source),
        )
        for key in change.keys
    ]
    ruled = [("policy", change.policy), ("operator policy", change.operator_policy)]
    names = [ChangedKey(kind, old or "none", new or "none") for kind, (old, new) in ruled if old != new]
    return Change(change.address.path if is_queue else change.name, is_queue, names + keys, change.messages if is_queue else 0)


def _value_and_source(key: str, value: Any, source: str | None) -> str:
    """A value and its source, in words."""
    if source is None:
        return "nothing"
    return f"{value_text(BY_EFFECTIVE.get(key.replace('-', '_')), value)}, from {source}"


def _refused(request: HttpRequest, host, form: PolicyForm, context: dict[str, Any], done: Act) -> HttpResponse:
    """Show the page with RabbitMQ's error text, also at the field that it is about."""
    if isinstance(done.error, InvalidPolicy):
        field = done.error.field
        name = BY_POLICY[field].name if field in BY_POLICY else _FIELDS.get(field, field)
        if name in form.fields:
            form.add_error(name, done.error.reason)
    return draw(request, "policy", host, context, page_title=form.title, place="policies", done=done)


def was_set(effect: PolicyPreview) -> str:
    """The effect of setting a policy, in words."""
    queues, exchanges = effect.governed
    applies = f"It applies to {plural(queues, 'queue')} and {plural(exchanges, 'exchange')}."
    return f"{'Changed' if effect.before else 'Created'} the {_policy_name(effect)}. {applies} {_changes_text(effect)}"


def was_deleted(effect: PolicyPreview) -> str:
    name = _policy_name(effect)
    return f"Deleted the {name}. {_changes_text(effect)}" if effect.before else f"The {name} was already deleted."


def _policy_name(effect: PolicyPreview) -> str:
    return f"{'operator ' if effect.is_operator else ''}policy {effect.name}"


def _changes_text(effect: PolicyPreview) -> str:
    """What changed for queues, exchanges and existing messages."""
    queues, exchanges = len(effect.queues), len(effect.exchanges)
    if not queues and not exchanges:
        return "Effective settings did not change."
    text = f"Effective settings changed for {plural(queues, 'queue')} and {plural(exchanges, 'exchange')}."
    if effect.lives:
        lives = "The expiry of 1 ready message was" if effect.lives == 1 else f"The expiry of {effect.lives:,} ready messages was"
        text += f" {lives} recalculated."
    return f"{text} {effects_text(effect.effects)}" if queues else text


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, kind: str, namespace: str, name: str) -> HttpResponse:
    host, is_operator = _host_and_kind(request, kind, namespace)
    policy = _policy(request, host.name, name, is_operator)
    ruling = next(candidate for candidate in current_rulings(request, host.name) if candidate.policy == policy)
    context = {"policy": policy, "ruling": ruling, "definition": presenters.definition(policy.definition)}
    if request.method != "POST":
        return _ask(request, host, policy, context)
    done = act(
        request, _action("delete", is_operator), None, lambda: _delete(request, host.name, policy),
        target=f"{host.name}: {policy.name}",
        says=was_deleted,
    )  # fmt: skip
    return _ask(request, host, policy, context, done) if done.error else HttpResponseRedirect(link("policies", host.name))


def _delete(request: HttpRequest, vhost: str, policy: Policy) -> PolicyPreview:
    """Delete the policy if the effect is still the previewed one; with `anyway` whatever the effect is."""
    token = None if "anyway" in request.POST else request.POST.get("token", "")
    return rabbitmq.change_policy(vhost, policy.name, policy.is_operator, None, token=token, actor=request.actor)


def _ask(request: HttpRequest, host, policy: Policy, context: dict[str, Any], done: Act = Act()) -> HttpResponse:
    """Show the confirmation with a preview of the effect."""
    previewed = rabbitmq.preview_delete_policy(host.name, policy.name, policy.is_operator, actor=request.actor)
    context |= _shown_preview(previewed)
    return draw(request, "policy_delete", host, context, page_title=f"delete {policy.name}", place="policies", done=done)


def _host_and_kind(request: HttpRequest, kind: str, namespace: str) -> tuple[reads.NamespaceRow, bool]:
    if kind not in KINDS:
        raise Http404(f"{kind} is not a kind of policy")
    host = vhost_of(namespace, request.actor)
    request.actor.require(Right.MANAGE, host.name)
    return host, KINDS[kind]


def _policy(request: HttpRequest, vhost: str, name: str, is_operator: bool) -> Policy:
    policy = next(
        (candidate for candidate in rabbitmq.list_policies(vhost, is_operator, actor=request.actor) if candidate.name == name),
        None,
    )
    if policy is None:
        raise EntityNotFound(f"{vhost}: {name}", "policy")
    return policy


def _action(verb: str, is_operator: bool) -> str:
    return f"{verb} {'operator ' if is_operator else ''}policy"
