"""What people changed that may show in a chart: settings, rules, policies, purges, pauses. From the audit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from explorer import audit
from explorer.models import AuditRecord

from .traffic import MOST_MARKS

DEPLOY = "mark deploy"  # in charts: "deploy"
LONGEST_NAME = 100  # of a deploy
ACTIONS = (
    DEPLOY,
    *(f"{verb} {kind}" for verb in ("create", "delete") for kind in ("queue", "topic", "subscription")),
    *(f"{verb} {kind}policy" for verb in ("set", "delete") for kind in ("", "operator ")),
    *(f"{verb} {kind}" for verb in ("create", "change") for kind in ("policy", "operator policy", "exchange", "binding")),
    *(f"{verb}{noun}" for verb in ("pause", "resume") for noun in ("", " clock", " demonstration")),
    "declare queue", "declare exchange", "delete exchange", "bind", "unbind", "import definitions", "import configuration",
    "change settings", "change queue options", "create rule", "change rule", "delete rule", "purge", "release locks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deploy:
    """A deploy that somebody marked. at: real time."""

    at: datetime
    name: str
    actor: str


def mark_deploy(name: str, namespaces: Iterable[str], *, actor: Actor, at: datetime | None = None) -> None:
    """Mark in the audit that something was deployed, now or in a generated past, which namespaces use. Raises as check_deploy."""
    check_deploy(name, actor=actor)
    for namespace in namespaces:
        audit.done(actor, DEPLOY, target=deploy_target(namespace, name), at=at)


def check_deploy(name: str, *, actor: Actor) -> None:
    """Raises NotAuthorized without Right.OPERATE, and InvalidArgument."""
    actor.require(Right.OPERATE, "the history")
    if not name.strip() or len(name.strip()) > LONGEST_NAME or not name.strip().isprintable():
        raise InvalidArgument("name", f"must be 1 to {LONGEST_NAME} characters of one line")


def deploy_target(namespace: str, name: str) -> str:
    """What the audit's record of a deploy is about, as `deploys` finds it."""
    return f"{namespace}: {name.strip()}"


def deploys(namespace: str, start: datetime, end: datetime) -> list[Deploy]:
    """The deploys that were marked in a range, oldest first."""
    marked = AuditRecord.objects.filter(
        action=DEPLOY,
        outcome=AuditRecord.Outcome.DONE,
        target__startswith=deploy_target(namespace, ""),
        at__gte=start,
        at__lt=end,
    )
    return [Deploy(record.at, record.target.removeprefix(f"{namespace}: "), record.actor) for record in marked.order_by("at")]


def latest(since: datetime, *, namespace: str | None = None, entity: EntityAddress | None = None) -> list[AuditRecord]:
    """The newest changes since then. Those of a namespace as a whole count for each of its entities, too."""
    records = AuditRecord.objects.filter(at__gte=since, action__in=ACTIONS, outcome=AuditRecord.Outcome.DONE)
    if namespace:
        of_all = Q(namespace="") & (Q(target=namespace) | Q(target__startswith=f"{namespace}: "))
        records = records.filter(Q(namespace=namespace) | of_all)
    if entity:
        records = records.filter(path__in=(entity.path, ""))
    return list(records.order_by("-at")[:MOST_MARKS])
