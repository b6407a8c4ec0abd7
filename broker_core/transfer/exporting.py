"""Vitrine's own export: configuration and messages as JSON Lines, which `importing` restores.

Entities are exported one after the other, each in a transaction with one snapshot, so an entity is consistent in itself. A
message that moves between two entities meanwhile may be exported twice or not at all. Messages are read in pages, so memory use
does not depend on their number. Locks are not exported; a lock that has ended but was not processed yet counts as a failed
delivery. Connections, their consumers and exclusive queues are not exported either, nor is the history (see docs/history.md).
The family's transfer module adds what only that family has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from broker_core.common.errors import EntityNotFound, NotAllowed
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, EntityKind, Right
from broker_core.export_format.lines import FORMAT, VERSION, duration, in_base64, instant, line
from broker_core.export_format.messages import message_line
from broker_core.reads.shared import entity_id_of
from broker_core.store import connections
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import use_case

PAGE_MESSAGES = 500
PAGE_BYTES = 8 * 2**20
PAGE_SESSIONS = 20  # each has a state of at most one megabyte
PAGE_SEEN = 5_000


@use_case(namespace="names")
def export(
    names: Sequence[str] | None,
    write: Callable[[str], Any],
    *,
    with_keys: bool = False,
    with_messages: bool = True,
    actor: Actor | None = None,
) -> Steps:
    """Write namespaces with their content, line by line. Returns the numbers of "entities" and "messages" as a dict.

    names:     None: all except Vitrine's own.
    with_keys: whether to include the keys of policies and storage accounts; the file must then be kept secret.
    with_messages: whether to include messages, sessions and seen message ids; otherwise it is the configuration alone.
    Requires MANAGE, and SEE_BODIES for messages. Raises EntityNotFound; NotAllowed for Vitrine's own namespace and in a caller's
    transaction.
    """
    actor = actor or Actor.local()
    actor.require(Right.MANAGE | (Right.SEE_BODIES if with_messages else Right.NONE), ", ".join(names or ["all namespaces"]))
    if connections.in_callers_transaction():
        raise NotAllowed("An export reads each entity in its own snapshot. Call it outside a transaction.")
    for name in names or ():
        connections.require_same_database(name)
    namespaces = yield call("export_namespaces", names=None if names is None else list(names))
    _require_existing(names, namespaces)
    write(_header(with_keys))
    totals = {"entities": 0, "messages": 0}
    for namespace in namespaces:
        exported = yield from _namespace(namespace, write, with_keys, with_messages)
        totals["entities"] += len(exported)
        totals["messages"] += sum(exported.values())
    write(line("end", totals))
    return totals


@dataclass(frozen=True, slots=True)
class Frame:
    """The lines before and after messages of one entity, with which they are an export. entities: in it."""

    before: tuple[str, ...]
    path: str
    entities: int
    bindings: tuple[str, ...]

    def after(self, messages: int) -> Iterator[str]:
        yield _entity_end(self.path, messages)
        yield from self.bindings
        yield line("end", {"entities": self.entities, "messages": messages})


@use_case
def frame(address: EntityAddress, *, actor: Actor | None = None) -> Steps[Frame]:
    """The frame of some of an entity's messages: its settings, without policies; before a subscription, its topic.

    Requires BROWSE. Raises EntityNotFound; NotAllowed in Vitrine's own namespace."""
    (actor or Actor.local()).require(Right.BROWSE, address)
    namespaces = yield call("export_namespaces", names=[address.namespace])
    _require_existing([address.namespace], namespaces)
    [namespace] = namespaces
    part = definition_of(namespace.family).transfer
    before = [
        _header(with_keys=False),
        _namespace_line(namespace),
        *(yield from part.lines_before(namespace.id, with_keys=False)),
    ]
    of_topic = [address.topic] if address.topic else []
    ids = []
    for entity_address in (*of_topic, address):
        ids.append((yield from entity_id_of(entity_address)))
        [row] = yield call("export_entity", entity_id=ids[-1])
        before.append(_entity_line(row, part))
        yield from _rules(row, before.append)
        if entity_address is not address:
            before.append(_entity_end(row.path))
    return Frame(tuple(before), row.path, len(ids), tuple((yield from part.lines_after(namespace.id, ids))))


def configuration_lines(name: str) -> Steps[list[str]]:
    """The lines of a namespace without messages and keys, as the caller's transaction sees them."""
    namespaces = yield call("export_namespaces", names=[name])
    _require_existing([name], namespaces)
    lines: list[str] = []
    yield from _namespace(namespaces[0], lines.append, with_keys=False, with_messages=False, run=lambda steps: steps)
    return lines


def _in_own_snapshot(steps: Steps) -> Steps:
    def snapshot() -> Steps:
        yield call("export_snapshot")
        return (yield from steps)

    return (yield Atomically(snapshot()))


def _namespace(
    namespace: Any,
    write: Callable[[str], Any],
    with_keys: bool,
    with_messages: bool,
    run: Callable[[Steps], Steps] = _in_own_snapshot,
) -> Steps:
    """Write all lines of a namespace. Returns the number of exported messages by entity id. run: how each entity is read."""
    part = definition_of(namespace.family).transfer
    write(_namespace_line(namespace))
    yield from _policies(namespace.id, None, write, with_keys)
    for text in (yield from part.lines_before(namespace.id, with_keys)):
        write(text)
    exported: dict[int, int] = {}
    for row in (yield call("export_entity_ids", namespace_id=namespace.id)):
        messages = yield from run(_entity(namespace.id, row.id, part, write, with_keys, with_messages))
        if messages is not None:
            exported[row.id] = messages
    for text in (yield from part.lines_after(namespace.id, list(exported))):
        write(text)
    return exported


def _header(with_keys: bool) -> str:
    return line(FORMAT, {"version": VERSION, "exported_at": instant(datetime.now(UTC)), "with_keys": with_keys})


def _namespace_line(namespace: Any) -> str:
    fields = {name: getattr(namespace, name) for name in ("name", "family", "description", "tier", "behaviour")}
    fields["max_size_in_megabytes"] = namespace.max_size_in_megabytes
    fields["keep_messages_for"] = duration(namespace.keep_messages_for)
    clock = None if namespace.now is None else {"now": instant(namespace.now), "rate": namespace.rate}
    return line("namespace", {**fields, "created_at": instant(namespace.created_at), "clock": clock})


def _require_existing(names: Sequence[str] | None, namespaces: list) -> None:
    existing = {namespace.name.lower() for namespace in namespaces}
    for name in names or ():
        if name.lower() not in existing:
            raise EntityNotFound(name, "namespace")
    for namespace in namespaces:
        if namespace.is_system:
            raise NotAllowed(f"The namespace '{namespace.name}' is used by Vitrine itself and cannot be exported.")


def _entity(
    namespace_id: int, entity_id: int, part: ModuleType, write: Callable[[str], Any], with_keys: bool, with_messages: bool
) -> Steps:
    """Write all lines of one entity. Returns its number of messages; None if it was deleted meanwhile."""
    rows = yield call("export_entity", entity_id=entity_id)
    if not rows:
        return None
    [row] = rows
    write(_entity_line(row, part))
    yield from _policies(namespace_id, entity_id, write, with_keys)
    yield from _rules(row, write)
    if not with_messages:
        write(_entity_end(row.path))
        return 0
    sessions = yield from _paged(write, _sessions(entity_id), _session_line)
    seen = yield from _paged(write, _seen(entity_id), _seen_line)
    messages = yield from _paged(write, _messages(entity_id, row.now), lambda row: message_line(row, part))
    write(_entity_end(row.path, messages, sessions, seen))
    return messages


def _entity_end(path: str, messages: int = 0, sessions: int = 0, seen: int = 0) -> str:
    return line("entity_end", {"path": path, "messages": messages, "sessions": sessions, "seen": seen})


def _rules(row: Any, write: Callable[[str], Any]) -> Steps[None]:
    if row.kind == EntityKind.SUBSCRIPTION:
        for rule in (yield call("list_rules", subscription_id=row.id, first=0, max_count=None)):
            fields = {"name": rule.name, "filter": rule.filter, "action": rule.action, "created_at": instant(rule.created_at)}
            write(line("rule", fields))


def _entity_line(row: Any, part: ModuleType) -> str:
    described = {
        "path": row.path,
        "kind": row.kind,
        "created_at": instant(row.created_at),
        "updated_at": instant(row.updated_at),
        "next_number": row.next_number,
        "last_activity_at": instant(row.last_activity_at),
        "last_receive_at": instant(row.last_receive_at),
        "celery_bindings": row.celery_bindings or None,
        "protected": row.protected or None,
    }
    return line("entity", {**described, **part.described(row)})


def _policies(namespace_id: int, entity_id: int | None, write: Callable[[str], Any], with_keys: bool) -> Steps[None]:
    for row in (yield call("export_policies", namespace_id=namespace_id, entity_id=entity_id)):
        keys = {"primary_key": row.primary_key, "secondary_key": row.secondary_key} if with_keys else {}
        write(line("policy", {"name": row.name, "send": row.send, "listen": row.listen, "manage": row.manage, **keys}))


def _paged(write: Callable[[str], Any], next_page: Callable[[Any], Statement], as_line: Callable[[Any], str]) -> Steps:
    """Write pages until one is empty. Returns the number of rows. next_page: from the last row to the next page's statement."""
    written, last = 0, None
    while rows := (yield next_page(last)):
        for row in rows:
            write(as_line(row))
        written, last = written + len(rows), rows[-1]
    return written


def _messages(entity_id: int, now: datetime) -> Callable[[Any], Statement]:
    def next_page(last: Any) -> Statement:
        after = (last.subqueue, last.state, last.sequence_number) if last else (-1, 0, 0)
        return call(
            "export_messages",
            entity_id=entity_id,
            now=now,
            subqueue=after[0],
            state=after[1],
            sequence_number=after[2],
            max_count=PAGE_MESSAGES,
            max_bytes=PAGE_BYTES,
        )

    return next_page


def _sessions(entity_id: int) -> Callable[[Any], Statement]:
    return lambda last: call("export_sessions", entity_id=entity_id, after=last and last.session_id, max_count=PAGE_SESSIONS)


def _seen(entity_id: int) -> Callable[[Any], Statement]:
    return lambda last: call("export_seen", entity_id=entity_id, after=last and last.message_id, max_count=PAGE_SEEN)


def _session_line(row: Any) -> str:
    fields = {"session_id": row.session_id, "state": in_base64(row.state), "state_updated_at": instant(row.state_updated_at)}
    return line("session", fields)


def _seen_line(row: Any) -> str:
    return line("seen", {"message_id": row.message_id, "seen_at": instant(row.seen_at), "sequence_number": row.sequence_number})
