"""Rules of subscriptions: create, change, delete; and test them with a message, which changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import reads, service_bus
from broker_core.common.errors import EntityNotFound, FilterEvaluationError, InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EntityKind, Message, Right
from broker_core.common.values import text_of
from broker_core.reads import EntityRow
from broker_core.service_bus import entities
from broker_core.service_bus.rules.filters import MessageView, Rule
from broker_core.service_bus.rules.matching import Copy, RuleIndex, SubscriptionRules
from explorer.service_bus.forms.rule import RuleForm, RuleTestForm
from explorer.shared.forms.queries import RULES
from explorer.shared.shell import about, act, address_of, page, show, show_form

_COPIED = ("subject", "correlation_id", "message_id", "session_id", "content_type", "to", "reply_to", "reply_to_session_id")


@page
@require_http_methods(["GET", "POST"])
def new_rule(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    subscription = _subscription(request, namespace, path)
    form = RuleForm(request.POST if request.method == "POST" else None)
    return _edit(request, subscription, form, "create rule", entities.create_rule)


@page
@require_http_methods(["GET", "POST"])
def rule(request: HttpRequest, rule: str, namespace: str, path: str) -> HttpResponse:
    """Change a rule by replacing it."""
    subscription = _subscription(request, namespace, path)
    current = _rule(request, subscription, rule)
    form = RuleForm(request.POST if request.method == "POST" else None, current=current)
    return _edit(request, subscription, form, "change rule", entities.update_rule, rule=current.name)


def _edit(request: HttpRequest, subscription: EntityRow, form: RuleForm, action: str, use_case, **context) -> HttpResponse:
    context |= {"entity": subscription, "address": subscription.address, "clock": subscription.clock}
    if not form.is_valid():
        return show_form(request, "service_bus/rule", form, **context)
    done = act(
        request, action, subscription.address, lambda: use_case(subscription.address, form.rule(), actor=request.actor),
        target=f"rule {form.rule().name}", says=lambda made: f"Saved rule {made.rule.name}. It applies to new messages.",
    )  # fmt: skip
    if done.error:
        return show_form(request, "service_bus/rule", form, done=done, **context)
    return HttpResponseRedirect(_rules_of(subscription.address))


@page
@require_http_methods(["GET", "POST"])
def delete_rule(request: HttpRequest, rule: str, namespace: str, path: str) -> HttpResponse:
    subscription = _subscription(request, namespace, path)
    current = _rule(request, subscription, rule)
    context: dict[str, Any] = {
        "entity": subscription, "address": subscription.address, "clock": subscription.clock, "rule": current,
        "is_last": subscription.rules == 1,
    }  # fmt: skip
    if request.method != "POST":
        return show_form(request, "service_bus/rule_delete", None, **context)
    done = act(
        request, "delete rule", subscription.address,
        lambda: entities.delete_rule(subscription.address, current.name, actor=request.actor),
        target=f"rule {current.name}", says=lambda _: f"Deleted rule {current.name}.",
    )  # fmt: skip
    if done.error:
        return show_form(request, "service_bus/rule_delete", None, done=done, **context)
    return HttpResponseRedirect(_rules_of(subscription.address))


def _subscription(request: HttpRequest, namespace: str, path: str) -> EntityRow:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    if entity.kind != EntityKind.SUBSCRIPTION:
        raise InvalidArgument("address", f"'{entity.address}' is a {entity.kind}; only subscriptions have rules")
    request.actor.require(Right.MANAGE, entity.address)
    return entity


def _rule(request: HttpRequest, subscription: EntityRow, name: str) -> Rule:
    rules = service_bus.rules_of([subscription.id], actor=request.actor).get(subscription.id, [])
    found = next((one.rule for one in rules if one.rule.name.lower() == name.lower()), None)
    if found is None:
        raise EntityNotFound(f"{subscription.address}/Rules/{name}")
    return found


def _rules_of(address: EntityAddress) -> str:
    return reverse("explorer:entity", args=(address.namespace, address.path)) + f"?tab={RULES}"


# Testing rules


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Whether one rule matches a message. matches: None if the evaluation failed; then `problem` says why."""

    rule: Rule
    matches: bool | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedCopy:
    """A copy that a subscription would receive. changes: differences from the message, as "name: before -> after"."""

    rule_name: str | None
    changes: list[str]
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a message in one subscription."""

    subscription: EntityAddress
    results: list[RuleResult]
    copies: list[ExpectedCopy]


@page
@require_GET
def test_rules(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """Which rules of a topic or subscription match a message. `?like=12` fills the form from message 12."""
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    if entity.kind == EntityKind.QUEUE:
        raise InvalidArgument("address", f"'{entity.address}' is a queue; topics and subscriptions have rules")
    like = request.GET.get("like")
    is_filled = set(request.GET) - {"like", "of"}
    query = request.GET if is_filled else None
    if like:
        query = _query_like(request, address_of(namespace, request.GET.get("of", path)), like)
    form = RuleTestForm(query)
    context = {**about(request, entity), "form": form, "is_tested": form.is_bound}
    if form.is_bound and form.is_valid():
        context["outcomes"] = outcomes(form.message(), entity, request.actor)
    return show(request, "service_bus/test_rules", context, status=400 if form.is_bound and not form.is_valid() else 200)


def outcomes(message: Message, entity: EntityRow, actor: Actor) -> list[Outcome]:
    """The results of a message for each rule and copy, from the broker's own matcher."""
    if entity.kind == EntityKind.SUBSCRIPTION:
        subscriptions = [entities.get_subscription(entity.address, actor=actor)]
    else:
        subscriptions = entities.list_subscriptions(entity.address, actor=actor)
    stored = service_bus.rules_of([one.id for one in subscriptions], actor=actor)
    rules = {one.id: [found.rule for found in stored.get(one.id, [])] for one in subscriptions}
    index = RuleIndex(
        SubscriptionRules(
            one.id, one.settings.requires_session, one.settings.dead_lettering_on_filter_evaluation_exceptions, rules[one.id]
        )
        for one in subscriptions
    )
    matched = index.match(message, enqueued_at=entity.clock.now, new_id=uuid4)
    view = MessageView.of(message, enqueued_at=entity.clock.now, new_id=uuid4)
    return [
        Outcome(one.address, [_evaluate(rule, view) for rule in rules[one.id]], _copies(one.id, matched, message))
        for one in subscriptions
    ]


def _evaluate(rule: Rule, view: MessageView) -> RuleResult:
    try:
        return RuleResult(rule, bool(rule.filter.matches(view)))
    except FilterEvaluationError as exc:
        return RuleResult(rule, None, str(exc))


def _copies(entity_id: int, matched: Any, message: Message) -> list[ExpectedCopy]:
    plain = [ExpectedCopy(None, [])] if entity_id in set(matched.plain) else []
    changed = [copy for copy in matched.changed if copy.entity_id == entity_id]
    return plain + [
        ExpectedCopy(copy.rule_name, changes(message, copy), copy.dead_letter_reason, copy.dead_letter_description)
        for copy in changed
    ]


def changes(message: Message, copy: Copy) -> list[str]:
    """What a rule's action changed, one line per property."""
    lines = [
        f"{name}: {_shown(getattr(message, name))} → {_shown(getattr(copy.message, name))}"
        for name in _COPIED
        if getattr(message, name) != getattr(copy.message, name)
    ]
    before, after = message.properties, copy.message.properties
    for name in [*before, *(n for n in after if n not in before)]:
        if name not in after:
            lines.append(f"{name}: removed")
        elif name not in before:
            lines.append(f"{name}: {_shown(after[name])} (new)")
        elif before[name] != after[name]:
            lines.append(f"{name}: {_shown(before[name])} → {_shown(after[name])}")
    return lines


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(getattr(value, "value", value))


def _query_like(request: HttpRequest, address: EntityAddress, number: str) -> QueryDict:
    """The form's query for an existing message."""
    detail = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        detail = reads.message(address, int(number), actor=request.actor)
    query = QueryDict(mutable=True)
    if detail is None:
        return query
    known = {"message_id": detail.row.message_id, "session_id": detail.row.session_id, **detail.broker_properties}
    query.update({name: known[name] for name in _COPIED if known.get(name)})
    for name, (kind, text) in detail.application_properties.items():
        query.appendlist("property_name", name)
        query.appendlist("property_type", kind)
        query.appendlist("property_value", text_of(text) or "")
    return query
