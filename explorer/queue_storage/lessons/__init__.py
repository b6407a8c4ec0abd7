"""Queue Storage's part of lessons: the actions that a step can name. The lessons are the TOML files beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from broker_core import queue_storage, reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EventKind
from broker_core.queue_storage.putting import DEFAULT_LIFE
from broker_core.reads import EntityRow, Event
from explorer.frames.presenters import plural
from explorer.lessons.lesson import Action, Effect, seconds
from explorer.lessons.stage import Stage, actor_argument, body_argument, body_of, is_unrepeatable, operation
from explorer.models import FaultKind

from .load import QueueStorageLoad

Args = Mapping[str, Any]
_NONE = UUID(int=0)
_SETTLED = {"delete": "deleted", "release": "released"}


def _create_queue(stage: Stage, args: Args) -> str:
    options = {name: args[name] for name in ("max_dequeue_count", "poison_queue") if name in args}
    queue_storage.create_queue(stage.at(args["queue"]), actor=stage.actor, **options)
    return f"Created the queue {args['queue']}."


def _change_queue(stage: Stage, args: Args) -> str:
    queue_storage.update_queue(
        stage.at(args["queue"]), max_dequeue_count=args.get("max_dequeue_count"), poison_queue=args.get("poison_queue"),
        actor=stage.actor,
    )  # fmt: skip
    return f"Changed the queue {args['queue']}."


def _put(stage: Stage, args: Args) -> str:
    texts = args.get("texts") or [body_of(args, "text", "hello").decode()]
    visibility = args.get("visibility", timedelta(0))
    life = args.get("ttl", DEFAULT_LIFE)
    queue_storage.put_all(stage.at(args["queue"]), texts, visibility_timeout=visibility, time_to_live=life, actor=stage.actor)
    return f"Put {plural(len(texts), 'message')}."


def _get(stage: Stage, args: Args) -> str:
    then = args.get("then", "hold")
    if then not in ("hold", *_SETTLED):
        raise InvalidArgument("then", f"{then!r} must be one of hold, {', '.join(_SETTLED)}")
    how = {"visibility_timeout": args["visibility"]} if "visibility" in args else {}
    messages = queue_storage.get(stage.at(args["queue"]), args.get("count", 1), actor=stage.actor, **how)
    for message in messages:
        stage.memory[_key(args["queue"], message.sequence_number, stage)] = [str(message.message_id), str(message.pop_receipt)]
        if then != "hold":
            _THEN[then](stage, {"queue": args["queue"], "number": message.sequence_number, "visibility": timedelta(0)})
    if messages and then != "hold":
        return f"Got and {_SETTLED[then]} {plural(len(messages), 'message')}."
    return f"Got {plural(len(messages), 'message')}." if messages else "No messages are visible."


def _with_receipt(run: Callable[[Stage, Args, str, str], str]) -> Callable[[Stage, Args], str]:
    """An action with the message's id, and the actor's pop receipt: the current one, else the one that it was given last."""

    def run_with_receipt(stage: Stage, args: Args) -> str:
        known = stage.memory.get(_key(args["queue"], args["number"], stage))
        detail = reads.message(stage.at(args["queue"]), args["number"], actor=stage.person)
        row = detail.row if detail else None
        if row and row.locked_by == stage.actor.holder_label:
            known = [str(row.message_id), str(row.lock_token)]
        message_id, receipt = known or [str(row.message_id) if row else str(_NONE), str(_NONE)]
        return run(stage, args, message_id, receipt)

    return run_with_receipt


def _update(stage: Stage, args: Args, message_id: str, receipt: str) -> str:
    done = queue_storage.update(
        stage.at(args["queue"]), message_id, receipt, visibility_timeout=args["visibility"], text=args.get("text"),
        actor=stage.actor,
    )  # fmt: skip
    stage.memory[_key(args["queue"], args["number"], stage)] = [message_id, str(done.pop_receipt)]
    return f"Updated message {args['number']}."


def _delete(stage: Stage, args: Args, message_id: str, receipt: str) -> str:
    queue_storage.delete(stage.at(args["queue"]), message_id, receipt, actor=stage.actor)
    return f"Deleted message {args['number']}."


def _requeue(stage: Stage, args: Args) -> str:
    queue_storage.requeue_poison(stage.at(args["queue"]), [args["number"]], actor=stage.actor)
    return f"Moved message {args['number']} back."


def _key(queue: str, number: int, stage: Stage) -> str:
    return f"{queue}#{number} {stage.actor}"


_OF_MESSAGE = ("queue", "number")
_THEN = {"delete": _with_receipt(_delete), "release": _with_receipt(_update)}
ACTIONS: dict[str, Action] = {
    "create_queue": Action(_create_queue, "Create the queue {queue}", ("queue",), ("max_dequeue_count", "poison_queue")),
    "change_queue": Action(_change_queue, "Change the options of {queue}", ("queue",), ("max_dequeue_count", "poison_queue")),
    "put": Action(_put, "Put a message into {queue}", ("queue",), ("texts", "text", "size", "ttl", "visibility")),
    "get": Action(_get, "Get a message from {queue}", ("queue",), ("count", "visibility", "then")),
    "update": Action(_with_receipt(_update), "Update message {number}", (*_OF_MESSAGE, "visibility"), ("text",)),
    "delete": Action(_with_receipt(_delete), "Delete message {number}", _OF_MESSAGE),
    "requeue": Action(_requeue, "Requeue message {number}", _OF_MESSAGE),
}

FAULTS = {
    FaultKind.KILLED: Effect("Gets nothing. What it holds stays invisible until its timeout ends", None),
    FaultKind.SLOW: Effect("Works longer than the visibility timeout", {"then": "hold"}),
    FaultKind.FAILING: Effect("Fails for each message, and makes it visible again", {"then": "release"}),
    FaultKind.DISCONNECTED: Effect("Loses its connection, and with it the pop receipt, before it deletes", {"then": "hold"}),
}

LoadClient = QueueStorageLoad


def configuration(namespace: str, actor: Actor) -> list[dict[str, Any]]:
    """The actions that create the queues of an account as they are now."""
    return [
        {"action": "create_queue", "queue": queue.name} | _options(queue.max_dequeue_count, queue.poison_queue)
        for queue in queue_storage.list_queues(namespace, actor=actor)
    ]


def change(entity: EntityRow, columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """The action that gives a queue the options of a revision."""
    options = columns["options"] or {}
    most = options.get("max_dequeue_count", columns["max_delivery_count"])
    return {"action": "change_queue", "queue": entity.address.path} | _options(most, options.get("poison_queue"))


def _options(max_dequeue_count: int | None, poison_queue: str | None) -> dict[str, Any]:
    options = {"max_dequeue_count": max_dequeue_count, "poison_queue": poison_queue}
    return {name: value for name, value in options.items() if value is not None}


def derive(event: Event, person: Actor, memory: dict[str, Any]) -> list[dict[str, Any]] | None:
    """See catalog.derive."""
    who = actor_argument(event, person)
    if who is None or event.address is None:
        return []
    if operated := operation(event, who):
        return [operated]
    place = {"queue": event.address.path} | who
    number = place | {"number": event.sequence_number}
    visibility = {"visibility": seconds(event.locked_until - event.at)} if event.locked_until else {}
    match event.kind:
        case EventKind.SENT if not {"from", "resubmitted_from"} & event.details.keys():
            life = {"ttl": seconds(event.time_to_live)} if event.time_to_live else {}
            delay = (
                {"visibility": seconds(datetime.fromisoformat(event.details["visible_at"]) - event.at)}
                if "visible_at" in event.details
                else {}
            )
            return [{"action": "put", **place, **body_argument("text", event, memory), **life, **delay}]
        case EventKind.RECEIVED:
            return [{"action": "get", **place, **visibility}]
        case EventKind.COMPLETED:
            return [{"action": "delete", **number}]
        case EventKind.SETTLE_REFUSED if event.reason == "delete":
            return [{"action": "delete", **number}]
        case EventKind.RENEWED | EventKind.ABANDONED:
            return [{"action": "update", **number, **(visibility or {"visibility": "0 s"})}]
    return None if is_unrepeatable(event) else []
