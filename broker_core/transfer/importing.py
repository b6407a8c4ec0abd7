"""Imports an export: restores its namespaces, entities, rules, policies and messages, or nothing at all.

The file is read line by line in one transaction, and messages are stored in batches. Nothing is visible before the end, and no
other operation is blocked; but vacuum cannot remove rows that die meanwhile. Existing namespaces are refused; `updating` changes
their configuration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from broker_core.common.errors import BrokerError, EntityExists, InvalidArgument, StorageFull
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, Behaviour, EntityAddress, EntityKind, Family, Right, Tier
from broker_core.export_format.lines import VERSION, Fields, Line, read_header, read_lines
from broker_core.export_format.messages import read_message
from broker_core.export_format.part import ImportedEntity, Reader
from broker_core.namespaces.namespaces import MOST_MEGABYTES
from broker_core.runtime.keeping import LONGEST, SHORTEST
from broker_core.runtime.room import require_reserve
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.entity_settings import check_policy_name
from broker_core.service_bus.rules.filters import rule_from_json
from broker_core.service_bus.transfer import policy_keys
from broker_core.store.connections import require_same_database
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import use_case

BATCH_ROWS = 500
BATCH_BYTES = 8 * 2**20
LAST_NUMBER = 2**60 - 1  # the largest that fits into a lock token


def kept_period(content: Fields) -> timedelta | None:
    """The `keep_messages_for` of a namespace's line; None: it keeps no messages."""
    period = content.duration("keep_messages_for", optional=True)
    if period is not None and not SHORTEST <= period <= LONGEST:
        content.refuse("keep_messages_for", "must be from PT1M to P7D")
    return period


@use_case(namespace="name")
def import_(source: Iterable[str | bytes], *, name: str | None = None, actor: Actor | None = None) -> Steps:
    """Import the lines of an export. Returns the names of "namespaces" and the numbers of "entities" and "messages" as a dict.

    name: a new name for the file's only namespace.
    Requires MANAGE. Raises EntityExists for an existing namespace, StorageFull while the reserve of the disk is touched, and
    InvalidArgument, with the line, for any other problem; then nothing is stored. A namespace with more messages than its maximum
    size is restored as it was. Policies without keys in the file get new ones.
    """
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, name or "all namespaces")
    return (yield Atomically(Import(read_lines(source), name, actor).steps()))


@dataclass(slots=True)
class _Batch:
    """Rows of one kind, collected for one statement."""

    statement: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0

    def add(self, row: dict[str, Any], size: int) -> None:
        self.rows.append(row)
        self.bytes += size

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= BATCH_ROWS or self.bytes >= BATCH_BYTES

    def take(self, entity_id: int, **params: Any) -> Statement:
        columns = {name: [row[name] for row in self.rows] for name in self.rows[0]}
        self.rows, self.bytes = [], 0
        return call(self.statement, entity_id=entity_id, **columns, **params)


@dataclass(slots=True)
class _Entity:
    """The entity to which the current lines belong.

    reader: of its namespace. counts: lines read so far, by kind. last: the number of the last message of
    each list and state; last_ids: the last session id and the last seen message id.
    """

    id: int
    path: str
    reader: Reader
    imported: ImportedEntity
    next_number: int
    counts: dict[str, int] = field(default_factory=lambda: {"message": 0, "session": 0, "seen": 0})
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    last_ids: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Import:
    """Imports the lines in order; refuses a line that is out of place."""

    lines: Iterator[Line]
    rename: str | None
    actor: Actor
    names: list[str] = field(default_factory=list)
    version: int = VERSION
    namespace_id: int = 0
    reader: Reader | None = None
    entity: _Entity | None = None
    entities: int = 0
    messages: int = 0
    batches: dict[str, _Batch] = field(
        default_factory=lambda: {
            "message": _Batch("import_messages"),
            "session": _Batch("import_sessions"),
            "seen": _Batch("import_seen"),
        }
    )

    def steps(self) -> Steps:
        self.version = read_header(next(self.lines, None))
        for line in self.lines:
            try:
                if line.kind in ("namespace", "end"):
                    yield from self._namespace_end(line)
                if line.kind == "end":
                    return self._end(line)
                yield from self._line(line)
            except (EntityExists, StorageFull):
                raise
            except InvalidArgument as exc:
                if exc.name.startswith("line "):
                    raise
                raise InvalidArgument(f"line {line.number}: {line.kind}", str(exc)) from exc
            except BrokerError as exc:
                raise InvalidArgument(f"line {line.number}: {line.kind}", str(exc)) from exc
        raise InvalidArgument("file", "is incomplete: the line with the totals is missing. Nothing was stored")

    def _line(self, line: Line) -> Steps:
        reader, entity = self.reader, self.entity
        if reader is not None and entity is None and line.kind in reader.own_lines:
            yield from reader.line(line.kind, line.content)
        elif line.kind == "namespace":
            yield from self._namespace(line.content)
        elif line.kind in ("policy", "entity"):
            if line.kind == "entity":
                self._require_ended(line)
            if reader is None:
                raise InvalidArgument(f"line {line.number}", f"a {line.kind} is outside any namespace")
            yield from self._policy(line.content) if line.kind == "policy" else self._entity(reader, line.content)
        elif (inside := self._inside(line.kind)) is not None:
            if entity is None:
                raise InvalidArgument(f"line {line.number}", f"a {line.kind} is outside any entity")
            yield from inside(entity, line.content)
        else:
            raise InvalidArgument(f"line {line.number}", f"'{line.kind}' is not a valid kind of export line")

    def _inside(self, kind: str) -> Callable[[_Entity, Fields], Steps] | None:
        """The method for a kind of line that belongs to an entity; None for other kinds."""
        match kind:
            case "rule":
                return self._rule
            case "session":
                return self._session
            case "seen":
                return self._seen
            case "message":
                return self._message
            case "entity_end":
                return self._entity_end
        return None

    def _require_ended(self, line: Line) -> None:
        if self.entity is not None:
            raise InvalidArgument(f"line {line.number}", f"'{self.entity.path}' is incomplete: its entity_end line is missing")

    # Configuration

    def _namespace_end(self, line: Line) -> Steps:
        """Finish the namespace before this line, if any."""
        self._require_ended(line)
        if self.reader is not None:
            yield from self.reader.namespace_end()

    def _namespace(self, content: Fields) -> Steps:
        name, description = content.text("name"), content.text("description")
        if self.rename is not None:
            if self.names:
                raise InvalidArgument("name", "the file has several namespaces; only a single namespace can be renamed")
            name = self.rename
        family = content.member("family", Family, default=Family.SERVICE_BUS)
        definition_of(family).check_namespace_name(name)
        if len(description) > 250:
            content.refuse("description", "must have at most 250 characters")
        tier, created_at = content.member("tier", Tier), content.instant("created_at")
        behaviour = content.member("behaviour", Behaviour, default=Behaviour.CONVENIENT)
        max_size = content.whole("max_size_in_megabytes", least=1, most=MOST_MEGABYTES, optional=True)
        keep_messages_for = kept_period(content)
        if behaviour is Behaviour.DOCUMENTED and family is not Family.SERVICE_BUS:
            content.refuse("behaviour", "must be convenient: only Service Bus namespaces have another one")
        clock = content.value("clock")
        now = rate = None
        if clock is not None:
            fields = Fields(f"{content.where}.clock", clock if isinstance(clock, dict) else {})
            now, rate = fields.instant("now"), fields.number("rate")
            fields.done()
        content.done()
        require_same_database(name)
        rows = yield call(
            "import_namespace",
            name=name,
            family=str(family),
            description=description,
            tier=str(tier),
            behaviour=str(behaviour),
            max_size=max_size,
            keep_messages_for=keep_messages_for,
            created_at=created_at,
            now=now,
            rate=1.0 if rate is None else rate,
        )
        if not rows:
            raise EntityExists(name, definition_of(family).container_noun)
        self.names.append(name)
        self.namespace_id, self.reader = rows[0].id, definition_of(family).transfer.Reader(rows[0].id, name, tier)

    def _policy(self, content: Fields) -> Steps:
        name = check_policy_name(content.text("name"))
        rights = {right: content.flag(right) for right in ("send", "listen", "manage")}
        keys = policy_keys(content)
        content.done()
        if not any(rights.values()):
            content.refuse("send", "a policy needs at least one of send, listen and manage")
        entity_id = self.entity.id if self.entity else None
        try:
            yield from shared_access.insert(self.namespace_id, entity_id, name, *keys, **rights)
        except EntityExists:
            content.refuse("name", f"'{name}' appears twice")

    def _entity(self, reader: Reader, content: Fields) -> Steps:
        address = EntityAddress(self.names[-1], content.text("path"))
        imported = reader.entity(address, content)
        columns = {"kind": str(imported.kind), "topic_id": imported.topic_id, **imported.columns}
        rows = yield call("create_entity", namespace_id=self.namespace_id, path=address.path, **columns)
        if not rows:
            content.refuse("path", f"'{address.path}' appears twice")
        next_number = content.whole("next_number", least=1, most=LAST_NUMBER)
        self.entity = entity = _Entity(rows[0].id, address.path, reader, imported, next_number)
        reader.entity_stored(address, imported, entity.id)
        bindings = content.value("celery_bindings") or []
        if not isinstance(bindings, list) or not all(map(is_celery_binding, bindings)):
            content.refuse("celery_bindings", "must be pairs of an exchange and a routing key")
        yield call(
            "import_entity",
            entity_id=entity.id,
            created_at=content.instant("created_at"),
            updated_at=content.instant("updated_at"),
            next_number=next_number,
            last_activity_at=content.instant("last_activity_at", optional=True),
            last_receive_at=content.instant("last_receive_at", optional=True),
            exchanges=[exchange for exchange, _ in bindings],
            routing_keys=[key for _, key in bindings],
            protected=content.flag("protected", optional=True),
        )
        content.done()

    def _rule(self, entity: _Entity, content: Fields) -> Steps:
        if entity.imported.kind is not EntityKind.SUBSCRIPTION:
            content.refuse("name", f"'{entity.path}' is not a subscription; only subscriptions have rules")
        rule = {"name": content.text("name"), "filter": content.mapping("filter"), "action": content.value("action")}
        created_at = content.instant("created_at")
        content.done()
        rule_from_json(rule)
        action = None if rule["action"] is None else json.dumps(rule["action"])
        rows = yield call(
            "import_rule", subscription_id=entity.id, name=rule["name"], filter=json.dumps(rule["filter"]), action=action,
            created_at=created_at,
        )  # fmt: skip
        if not rows:
            content.refuse("name", f"'{rule['name']}' appears twice")

    # The content of an entity

    def _session(self, entity: _Entity, content: Fields) -> Steps:
        row: dict[str, Any] = {
            "session_id": content.text("session_id"),
            "state": content.bytes_("state"),
            "state_updated_at": content.instant("state_updated_at", optional=True),
        }
        content.done()
        _require_rising(entity, "session_id", row, content)
        yield from self._add(entity, "session", row, len(row["state"]))

    def _seen(self, entity: _Entity, content: Fields) -> Steps:
        row = {
            "message_id": content.text("message_id"),
            "seen_at": content.instant("seen_at"),
            "sequence_number": content.whole("sequence_number", optional=True, least=0),
        }
        content.done()
        _require_rising(entity, "message_id", row, content)
        yield from self._add(entity, "seen", row, 0)

    def _message(self, entity: _Entity, content: Fields) -> Steps:
        row = read_message(content, entity.reader, version=self.version)
        of_list = row["subqueue"], row["state"]
        if row["sequence_number"] <= entity.last.get(of_list, -1):
            content.refuse("sequence_number", "must increase from one message of a list to the next")
        if row["sequence_number"] >= entity.next_number:
            content.refuse("sequence_number", f"must be below the entity's next_number, {entity.next_number}")
        entity.reader.check_message(row, entity.imported, content)
        entity.last[of_list] = row["sequence_number"]
        yield from self._add(entity, "message", row, len(row["body"]))

    def _add(self, entity: _Entity, kind: str, row: dict[str, Any], size: int) -> Steps:
        entity.counts[kind] += 1
        self.batches[kind].add(row, size)
        if self.batches[kind].is_full:
            yield from self._flush(entity, kind)

    def _flush(self, entity: _Entity, kind: str) -> Steps:
        if self.batches[kind].rows:
            yield from require_reserve(self.names[-1])
            params = {"actor": str(self.actor)} if kind == "message" else {}
            yield self.batches[kind].take(entity.id, **params)

    def _entity_end(self, entity: _Entity, content: Fields) -> Steps:
        if content.text("path") != entity.path:
            content.refuse("path", f"is not '{entity.path}', the entity that ends here")
        for kind, name in (("message", "messages"), ("session", "sessions"), ("seen", "seen")):
            if content.whole(name) != entity.counts[kind]:
                content.refuse(name, f"the file contains {entity.counts[kind]}")
            yield from self._flush(entity, kind)
        content.done()
        (row,) = yield call("import_finish", entity_id=entity.id)
        if row.twice is not None:
            content.refuse("path", f"two messages have the sequence number {row.twice}")
        yield from entity.reader.entity_end(entity.id)
        self.entities, self.messages, self.entity = self.entities + 1, self.messages + entity.counts["message"], None

    def _end(self, line: Line) -> dict[str, Any]:
        for name, count in (("entities", self.entities), ("messages", self.messages)):
            if line.content.whole(name) != count:
                line.content.refuse(name, f"the file contains {count}")
        line.content.done()
        if (more := next(self.lines, None)) is not None:
            raise InvalidArgument(f"line {more.number}", "follows the end of the export")
        return {"namespaces": self.names, "entities": self.entities, "messages": self.messages}


def _require_rising(entity: _Entity, name: str, row: dict[str, Any], content: Fields) -> None:
    last = entity.last_ids.get(name)
    if last is not None and row[name] <= last:
        content.refuse(name, "must increase from one line to the next")
    entity.last_ids[name] = row[name]


def is_celery_binding(pair: Any) -> bool:
    return (
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(t, str) and len(t) <= 255 and "\x00" not in t for t in pair)
    )
