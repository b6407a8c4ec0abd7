"""Starts operations: small ones at once, larger ones by a worker."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kombu.exceptions import KombuError

from broker_core import operations as core
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.operations import Kind, Operation, Selection
from broker_core.reads import EntityRow

from . import runner
from .patching import check_patch
from .selecting import count, message_filter

DIRECT = 500  # messages at most of an operation that is carried out before it is answered
_log = logging.getLogger(__name__)


def start(
    kind: Kind,
    chosen: Selection,
    *,
    actor: Actor,
    options: Mapping[str, Any] | None = None,
    pace: float | None = None,
    up_to: int | None = None,
) -> Operation:
    """Start an operation on a selection. Returns it as it is then: over, if it concerns at most DIRECT messages and has no pace.

    options: "to" of a move; "merge_patch", "body" and "properties" of a repair. up_to: as counted before, so that messages that
    arrived since are left alone.
    Raises NotAuthorized without Right.OPERATE, InvalidArgument for options that the kind needs and for a pace of 0.
    """
    actor.require(rights_for(kind), chosen.address)
    core.check_pace(pace)
    if message_filter(chosen).needs_bodies:
        actor.require(Right.SEE_BODIES, chosen.address)
    counted = count(chosen, actor=actor, up_to=up_to)
    options = dict(options or {})
    _check(kind, options)
    operation = core.create(
        kind,
        counted.selection,
        counted=counted.count if counted.is_exact else None,
        entity_id=counted.entity_id,
        family=counted.family,
        pace=pace,
        options=options,
        actor=actor,
    )
    return _begun(operation, at_once=pace is None and counted.is_exact and counted.count <= DIRECT)


def start_import(entity: EntityRow, lines: Mapping[int, str], *, file: str, actor: Actor) -> Operation:
    """Start an operation that sends the messages of these lines to an entity. Returns it as it is then, see `start`."""
    actor.require(Right.OPERATE | Right.SEND, entity.address)
    operation = core.create(
        Kind.IMPORT, Selection(entity.address), counted=len(lines), entity_id=entity.id, family=entity.family,
        options={"file": file}, lines=lines, actor=actor,
    )  # fmt: skip
    return _begun(operation, at_once=len(lines) <= DIRECT)


def rights_for(kind: Kind) -> Right:
    """What an operation of this kind requires."""
    return Right.OPERATE | (Right.SEE_BODIES if kind in (Kind.REPAIR, Kind.EXPORT) else Right.NONE)


def _begun(operation: Operation, *, at_once: bool) -> Operation:
    if at_once:
        runner.run(operation, seconds=None)
    else:
        submit(operation)
    return core.find(operation.id) or operation


def _check(kind: Kind, options: dict[str, Any]) -> None:
    if kind is Kind.MOVE and not options.get("to"):
        raise InvalidArgument("to", "is required: where the messages are moved to")
    if kind is Kind.REPAIR:
        check_patch(options)


def submit(operation: Operation) -> None:
    """Hand an operation to a worker. If that is not possible now, the background task that looks for operations does it later."""
    from .tasks import run_operation

    try:
        run_operation.delay(operation.id)
    except (KombuError, OSError, BrokerError) as problem:
        _log.warning("operation %s waits for the background task: %s", operation.id, problem)
