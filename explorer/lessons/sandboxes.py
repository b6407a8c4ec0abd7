"""Sandboxes: namespaces that belong to one person, who has all rights in them (explorer/people/roles.py).

A sweep removes them after a day. People do not disturb each other, because each has a namespace and a clock of its own."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from broker_core import namespaces, reads
from broker_core.common.errors import BrokerError, EntityExists, EntityNotFound, NotAllowed
from broker_core.common.family import definition_of
from broker_core.common.sweep_refusals import Refusals
from broker_core.common.types import Actor, EntityKind, Family, Right, Tier
from broker_core.store import connections
from explorer.models import Load, Sandbox
from explorer.people.roles import actor_for
from explorer.sandbox_names import PREFIX, may_be_one

from . import catalog
from .lesson import Do, Lesson

LIFETIME = timedelta(days=1)
KEPT_FOR = timedelta(hours=1)  # messages that ended, by the clock of the sandbox
MOST_OF_ONE = 5  # sandboxes of a person
MOST = 500  # of all
LONGEST_PART = 9  # of a person's name in that of a sandbox: a storage account's name has at most 24 letters and digits
_RANDOM = string.ascii_lowercase + string.digits
BUILDER = Actor("process", "lesson", Right.ALL)


def of(user: Any) -> list[Sandbox]:
    """The person's sandboxes, newest first."""
    return list(Sandbox.objects.filter(owner=user))


def owned(user: Any, namespace: str) -> Sandbox:
    """Raises EntityNotFound: there is none of this name, or it belongs to another user."""
    return _own_sandbox(Sandbox.objects, user, namespace)


@contextmanager
def changing(user: Any, namespace: str) -> Iterator[Sandbox]:
    """Like `owned`, for a change: another request that changes it waits for the end of the block, and then reads it."""
    with transaction.atomic():
        yield _own_sandbox(Sandbox.objects.select_for_update(), user, namespace)


def _own_sandbox(sandboxes: Any, user: Any, namespace: str) -> Sandbox:
    sandbox = sandboxes.filter(owner=user, namespace=namespace.lower()).first() if may_be_one(namespace) else None
    if sandbox is None:
        raise EntityNotFound(namespace, "sandbox of yours")
    return sandbox


def start(user: Any, family: Family, lesson: Lesson | None = None, *, setup: Sequence[Do] | None = None) -> Sandbox:
    """Create a sandbox. With a lesson: with what its first step needs, or with `setup`. Raises NotAllowed, NotAuthorized."""
    actor_for(user).require(Right.BROWSE, "sandboxes")
    _check_limits(user)
    definition = definition_of(family)
    for _ in range(3):
        name = _new_name(user.get_username())
        try:
            definition.create_namespace(name, f"Sandbox of {user.get_username()}", Tier.STANDARD, BUILDER)
            break
        except EntityExists:
            continue
    else:
        raise NotAllowed("No free name for a sandbox was found. Try again.")
    sandbox = Sandbox.objects.create(namespace=name, owner=user, family=str(family), lesson=lesson.slug if lesson else "")
    _furnish(sandbox, lesson, setup)
    return sandbox


def _check_limits(user: Any) -> None:
    if Sandbox.objects.filter(owner=user).count() >= MOST_OF_ONE:
        raise NotAllowed(f"You have {MOST_OF_ONE} sandboxes, the maximum. Delete one of them first.")
    if Sandbox.objects.count() >= MOST:
        raise NotAllowed(f"This site has {MOST} sandboxes, the maximum. Try again later: each is removed after a day.")


def _new_name(username: str) -> str:
    part = re.sub(r"[^a-z0-9]", "", username.lower())[:LONGEST_PART]
    return f"{PREFIX}{part}" + "".join(secrets.choice(_RANDOM) for _ in range(6))


def _furnish(sandbox: Sandbox, lesson: Lesson | None, own_setup: Sequence[Do] | None) -> None:
    """Pause the clock and create what the lesson, or a sandbox without one, begins with."""
    with connections.of(sandbox.namespace):
        if not (lesson and lesson.load):
            namespaces.pause_clock(sandbox.namespace, actor=BUILDER)
        namespaces.update_namespace(sandbox.namespace, keep_messages_for=KEPT_FOR, actor=BUILDER)
        stage = catalog.stage(sandbox.namespace, Family(sandbox.family), BUILDER)
        start = stage.position().snapshot
        setup = lesson.setup if lesson else catalog.toolbox(Family(sandbox.family)).setup
        _, refusal = stage.perform(setup if own_setup is None else own_setup)
        if refusal:
            raise refusal
        sandbox.state = stage.beginning() | {"start": start, "log": stage.log}
        sandbox.save_step()


def reset(sandbox: Sandbox, *, setup: Sequence[Do] | None = None) -> None:
    """Begin anew: all entities and messages are removed, and a lesson starts at its first step. setup: as in `start`."""
    lesson = catalog.lesson(sandbox.lesson) if sandbox.lesson else None
    delete_namespace(sandbox.namespace, sandbox.family)
    definition_of(sandbox.family).create_namespace(
        sandbox.namespace, f"Sandbox of {sandbox.owner.get_username()}", Tier.STANDARD, BUILDER
    )
    sandbox.step = 0
    sandbox.answers.all().delete()
    Load.objects.filter(sandbox=sandbox).delete()
    _furnish(sandbox, lesson, setup)


def remove(sandbox: Sandbox) -> None:
    """Delete the sandbox with all that is in it."""
    delete_namespace(sandbox.namespace, sandbox.family)
    sandbox.delete()


def delete_namespace(name: str, family: str) -> None:
    """Delete a namespace with all its entities; without effect if it does not exist."""
    definition = definition_of(family)
    with connections.of(name):
        try:
            rows = reads.overview(namespace=name, include_hidden=True, actor=BUILDER)
            for row in sorted(rows, key=lambda row: row.kind is EntityKind.TOPIC):  # its subscriptions go with a topic
                if row.kind is not EntityKind.SUBSCRIPTION:
                    definition.delete_entity(row.address, actor=BUILDER)
            definition.delete_namespace(name, actor=BUILDER)
        except EntityNotFound:  # its owner deleted the namespace
            return


def remove_old() -> dict[str, int]:
    """Remove the sandboxes that are older than a day. One that cannot be removed now is counted, and left to the next run."""
    removed, refusals = 0, Refusals()
    for sandbox in Sandbox.objects.filter(created_at__lt=timezone.now() - LIFETIME):
        try:
            with transaction.atomic():
                locked = Sandbox.objects.select_for_update(skip_locked=True).filter(pk=sandbox.pk).first()
                if locked is None:
                    continue
                remove(locked)
        except BrokerError as refusal:
            refusals.add(sandbox.namespace, refusal)
            continue
        removed += 1
    return ({"removed": removed} if removed else {}) | refusals.outcome()


def title(user: Any, namespace: str) -> str:
    """A sandbox in words, since its name says nothing; empty: it is no sandbox."""
    sandbox = (
        Sandbox.objects.select_related("owner").filter(namespace=namespace.lower()).first() if may_be_one(namespace) else None
    )
    if sandbox is None:
        return ""
    of = "" if sandbox.owner_id == getattr(user, "pk", None) else f" of {sandbox.owner.get_username()}"
    return f"Sandbox{of}: {catalog.lesson(sandbox.lesson).title}" if sandbox.lesson else f"Sandbox{of}"
