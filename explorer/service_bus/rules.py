"""Rules of subscriptions: create, change, delete; and test them with a message, which changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import reads, service_bus
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument
from broker_core.common.types import EntityAddress, EntityKind, Right
from broker_core.reads import EntityRow
from broker_core.service_bus import PublishedMessage, RuleDraft, entities
from broker_core.service_bus.routing import TEXTS
from broker_core.service_bus.rules.amqp.properties import encode_properties, text_of
from broker_core.service_bus.rules.filters import Rule
from broker_core.service_bus.rules.values import Message
from explorer.frames.forms.queries import RULES
from explorer.frames.routes import ShownReplay, nested, replayed
from explorer.frames.shell import Act, about, act, address_of, page, show, show_form
from explorer.service_bus.forms.rule import RuleForm, RuleTestForm
from explorer.templatetags.explorer import message_url

from .tags import rule_words

MOST_CHOSEN = 10  # messages of the last hour to choose from


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
    if "replay" in request.POST:
        return _replayed(
            request, "service_bus/rule", form, RuleDraft(subscription.address, context.get("rule"), form.rule()), context
        )
    done = act(
        request, action, subscription.address, lambda: use_case(subscription.address, form.rule(), actor=request.actor),
        target=f"rule {form.rule().name}", says=lambda saved: f"Saved rule {saved.rule.name}. It applies to new messages.",
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
    if "replay" in request.POST:
        return _replayed(request, "service_bus/rule_delete", None, RuleDraft(subscription.address, current.name, None), context)
    done = act(
        request, "delete rule", subscription.address,
        lambda: entities.delete_rule(subscription.address, current.name, actor=request.actor),
        target=f"rule {current.name}", says=lambda _: f"Deleted rule {current.name}.",
    )  # fmt: skip
    if done.error:
        return show_form(request, "service_bus/rule_delete", None, done=done, **context)
    return HttpResponseRedirect(_rules_of(subscription.address))


def _replayed(
    request: HttpRequest, template: str, form: RuleForm | None, draft: RuleDraft, context: dict[str, Any]
) -> HttpResponse:
    """The form, with the messages of the last hour routed as with the draft."""
    topic = draft.subscription.topic or draft.subscription
    try:
        outcome = service_bus.replay_rules(topic, draft, actor=request.actor)
    except BrokerError as exc:
        return show_form(request, template, form, done=Act(error=exc), **context)
    replay: ShownReplay = replayed(
        outcome.comparison, outcome.capped,
        name=lambda place: f"{place.subscription.name}{', dead-letter queue' if place.is_dead else ''}",
        address=lambda place: place.subscription,
        message=lambda number: (number, message_url(topic, number)),
    )  # fmt: skip
    return show_form(request, template, form, replay=replay, **context)


def _subscription(request: HttpRequest, namespace: str, path: str) -> EntityRow:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    if entity.kind != EntityKind.SUBSCRIPTION:
        raise InvalidArgument("address", f"'{entity.address}' is a {entity.kind}; only subscriptions have rules")
    request.actor.require(Right.MANAGE, entity.address)
    return entity


def _rule(request: HttpRequest, subscription: EntityRow, name: str) -> Rule:
    rules = service_bus.rules_of([subscription.id], actor=request.actor).get(subscription.id, [])
    rule = next((stored.rule for stored in rules if stored.rule.name.lower() == name.lower()), None)
    if rule is None:
        raise EntityNotFound(f"{subscription.address}/Rules/{name}")
    return rule


def _rules_of(address: EntityAddress) -> str:
    return reverse("explorer:entity", args=(address.namespace, address.path)) + f"?tab={RULES}"


# Testing rules


@page
@require_GET
def test_rules(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """The route of a message through the rules of a topic or subscription, and the messages of the last hour to choose from.

    `?like=12&of=queue` fills the form from message 12 of that queue, `?published=12` from message 12 of the topic.
    """
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    if entity.kind == EntityKind.QUEUE:
        raise InvalidArgument("address", f"'{entity.address}' is a queue; topics and subscriptions have rules")
    published = service_bus.published_messages(entity.address.topic or entity.address, limit=MOST_CHOSEN, actor=request.actor)
    form = RuleTestForm(_query(request, namespace, path, published))
    context = {**about(request, entity), "form": form, "published": published}
    if form.is_bound and form.is_valid():
        steps = service_bus.route(entity.address, form.message(), actor=request.actor)
        context["steps"] = nested(steps, lambda step: rule_words(step.subject) if step.subject else "")
    return show(request, "service_bus/test_rules", context, status=400 if form.is_bound and not form.is_valid() else 200)


def _query(request: HttpRequest, namespace: str, path: str, published: list[PublishedMessage]) -> QueryDict | None:
    """The form's query: as given, or from a message; None: the form is empty."""
    if like := request.GET.get("like"):
        return _query_like(request, address_of(namespace, request.GET.get("of", path)), like)
    if number := request.GET.get("published"):
        chosen = next((candidate.message for candidate in published if str(candidate.number) == number), None)
        return _query_of(chosen) if chosen else QueryDict()
    return request.GET if set(request.GET) - {"of"} else None


def _query_of(message: Message) -> QueryDict:
    query = QueryDict(mutable=True)
    query.update({name: text for name in TEXTS if (text := getattr(message, name))})
    _add_properties(query, encode_properties(message.properties))
    return query


def _add_properties(query: QueryDict, stored: Mapping[str, Sequence]) -> None:
    for name, (kind, text) in stored.items():
        query.appendlist("property_name", name)
        query.appendlist("property_type", kind)
        query.appendlist("property_value", text_of(text) or "")


def _query_like(request: HttpRequest, address: EntityAddress, number: str) -> QueryDict:
    """The form's query for an existing message."""
    detail = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        detail = reads.message(address, int(number), actor=request.actor)
    query = QueryDict(mutable=True)
    if detail is None:
        return query
    known = {"message_id": detail.row.message_id, "session_id": detail.row.session_id, **detail.broker_properties}
    query.update({name: known[name] for name in TEXTS if known.get(name)})
    _add_properties(query, detail.application_properties)
    return query
