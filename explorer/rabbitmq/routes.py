"""The route of a publication and the replay of recent ones, as the RabbitMQ pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.urls import reverse
from django.utils.html import format_html

from broker_core import rabbitmq
from broker_core.common.routes import RouteStep, StepKind, Verdict
from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq import RoutingDraft
from explorer.frames.routes import ShownReplay, ShownStep, nested, replayed

from . import presenters
from .shared import exchange_slug, link


def shown_route(vhost: str, steps: Iterable[RouteStep]) -> list[ShownStep]:
    """The steps of a route as a tree, bindings with their keys and arguments."""
    return nested(steps, _detail, lambda step: _url(vhost, step))


def names_of_queues(steps: Sequence[ShownStep]) -> list[str]:
    """The queues in which the route stores the message."""
    names: set[str] = set()
    for step in steps:
        if step.step.kind is StepKind.QUEUE and step.step.verdict is Verdict.STORED:
            names.add(step.step.name)
        names.update(names_of_queues(step.steps))
    return sorted(names)


def replay(vhost: str, draft: RoutingDraft, actor: Actor) -> ShownReplay:
    """The publications of the last hour, routed as with the draft. Raises BrokerError."""
    outcome = rabbitmq.replay_routing(vhost, draft, actor=actor)
    return replayed(
        outcome.comparison, outcome.capped,
        name=str, address=lambda name: EntityAddress(vhost, name),
        message=lambda reference: (reference[1], _message_url(*reference)),
    )  # fmt: skip


def _message_url(queue: EntityAddress, number: int) -> str:
    return reverse("explorer:message", args=(queue.namespace, queue.path, number))


def _url(vhost: str, step: RouteStep) -> str:
    return link("exchange", vhost, exchange_slug(step.name)) if step.kind is StepKind.EXCHANGE else ""


def _detail(step: RouteStep) -> str:
    """A binding in words: its key, its arguments and its destination."""
    if step.subject is None:
        return ""
    binding = step.subject
    arguments = ", ".join(f"{argument.name} {argument.value}" for argument in presenters.arguments(binding.arguments))
    return format_html(
        "binding <code>{}</code>{} to {}", binding.routing_key or "(empty key)", f" with {arguments}" if arguments else "",
        binding.destination,
    )  # fmt: skip
