"""Import and export of RabbitMQ's definitions.json (docs/rabbitmq.md; RMQ-378, RMQ-379, RMQ-918, RMQ-927).

An import adds and updates, and deletes nothing. Each object is a separate change with its own outcome, so one failure does not
prevent the others. Existing objects with equal JSON are not changed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from broker_core import namespaces
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq.rules import definitions as file
from broker_core.rabbitmq.rules.arguments import QueueDef
from broker_core.rabbitmq.rules.definitions import Definitions, Note
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.store.driver import Steps
from broker_core.store.use_cases import use_case

from . import policies
from .topology import bindings, catalog, exchanges, queues, vhosts

# The format version written, as expected by RabbitMQ's tools.
VERSIONS = {"rabbit_version": "3.13.0", "rabbitmq_version": "3.13.0", "product_name": "Vitrine"}


class Result(StrEnum):
    """The result of importing an object."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    KEPT = "kept"  # a different object of this name exists and was not changed (RMQ-927)
    FAILED = "failed"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of importing one object.

    path:    its location in the file, as precise as possible: "queues[3].arguments.x-max-length".
    kind:    "queue", "operator policy" ... vhost: empty for objects outside virtual hosts.
    problem: why it failed, was kept or was ignored; of an imported object, how it was changed.
    """

    path: str
    kind: str
    vhost: str
    name: str
    result: Result
    problem: str | None = None

    def __str__(self) -> str:
        where = f" of '{self.vhost}'" if self.vhost else ""
        named = f" '{self.name}'" if self.name else ""
        at = "" if self.path == file.FILE else f"{self.path}: "
        because = f" ({at}{self.problem})" if self.problem else ""
        return f"{self.result} {self.kind}{named}{where}{because}"


# Export


@use_case
def export_definitions(vhost: str | None = None, *, actor: Actor | None = None) -> Steps:
    """All virtual hosts, or one, as the JSON of a definitions file; an export of one host does not name it.

    Excludes messages, exclusive queues, the default exchange, exchanges named `amq.`, and Vitrine's own settings, which the
    format does not support. Each list is consistent in itself. Needs BROWSE. Raises EntityNotFound.
    """
    (actor or Actor.local()).require(Right.BROWSE, vhost or "all virtual hosts")
    if vhost is not None:
        hosts = [(yield from vhosts.get_vhost.steps(vhost, actor=actor))]
        vhost = hosts[0].name
    else:
        hosts = yield from vhosts.list_vhosts.steps(actor=actor)
    exported = Definitions(vhosts=[file.VhostItem(host.name, host.description) for host in hosts])
    for host in hosts:
        yield from _read(host.name, exported, actor)
    return file.format(exported, vhost=vhost, versions=VERSIONS)


def _read(vhost: str, exported: Definitions, actor: Actor | None) -> Steps:
    """Add the objects of a virtual host."""
    for policy in (yield from policies.list_policies.steps(vhost, actor=actor)):
        whole = (
            int(policy.priority) if policy.priority == int(policy.priority) else policy.priority
        )  # as RabbitMQ writes whole priorities
        exported.policies.append(file.PolicyItem(vhost, replace(policy, priority=whole)))
    for stored in (yield from catalog.list_queues.steps(vhost, actor=actor)):
        queue = QueueDef(stored.name, stored.type, stored.durable, stored.auto_delete, stored.owner_id, stored.arguments)
        exported.queues.append(file.QueueItem(vhost, queue))
    for stored in (yield from catalog.list_exchanges.steps(vhost, actor=actor)):
        exported.exchanges.append(file.ExchangeItem(vhost, stored.definition()))
    for bound in (yield from catalog.list_bindings.steps(vhost, actor=actor)):
        exported.bindings.append(file.BindingItem(vhost, bound.definition))


# Import


@use_case(namespace="vhost")
def import_definitions(document: Any, vhost: str | None = None, *, actor: Actor | None = None) -> Steps:
    """Create and update the objects of a definitions file. Returns an Outcome for each object.

    document: the file's text or its parsed JSON: of a whole server, or, with `vhost`, of one virtual host of any name.
    Needs MANAGE on all its virtual hosts. Raises EntityNotFound for `vhost`, InvalidArgument if `vhost` is given for a whole
    server's file.
    """
    (actor or Actor.local()).require(Right.MANAGE, vhost or "all virtual hosts")
    if vhost is not None:
        vhost = (yield from vhosts.get_vhost.steps(vhost, actor=actor)).name
    document = _loaded(document)
    if vhost is not None:
        document = _of_one_host(document)
    bad = _all_unstorable(document)
    definitions = file.parse(_without(document, bad), vhost=vhost)
    definitions.problems = [bad.get(note.path, note) for note in definitions.problems]
    return (yield from _Import(document, definitions, actor).steps())


def _loaded(document: Any) -> Any:
    """The parsed JSON of a text; invalid JSON is left for `parse` to report."""
    try:
        return json.loads(document) if isinstance(document, str | bytes) else document
    except (ValueError, RecursionError):
        return document


def _of_one_host(document: Any) -> Any:
    """Remove the names of virtual hosts: such an export has them only in policies and parameters, and may come from another
    host."""
    if not isinstance(document, Mapping):
        return document
    if "vhosts" in document:
        raise InvalidArgument("vhost", "the file is of a whole server and names its virtual hosts")

    def bare(item: Any) -> Any:
        return {name: value for name, value in item.items() if name != "vhost"} if isinstance(item, Mapping) else item

    return {name: [bare(item) for item in value] if isinstance(value, list) else value for name, value in document.items()}


def _all_unstorable(document: Any) -> dict[str, Note]:
    """Strings and numbers that the database cannot store, by the path of their object."""
    notes = {}
    for section, items in document.items() if isinstance(document, Mapping) else ():
        for i, item in enumerate(items if isinstance(items, list) else ()):
            path = f"{section}[{i}]"
            if note := _first_unstorable(item, path):
                notes[path] = note
    return notes


def _first_unstorable(item: Any, path: str) -> Note | None:
    try:
        return next(_unstorable(item, path), None)
    except RecursionError:
        return Note(path, "is nested too deeply")


def _without(document: Any, bad: Mapping[str, Note]) -> Any:
    """The document with these objects replaced by None, so that the paths of others are unchanged."""
    if not bad:
        return document
    return {
        section: [None if f"{section}[{i}]" in bad else item for i, item in enumerate(items)]
        if isinstance(items, list)
        else items
        for section, items in document.items()
    }


def _unstorable(value: Any, path: str) -> Iterator[Note]:
    match value:
        case str() if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
            yield Note(path, "contains a character that cannot be stored")
        case float() if not math.isfinite(value):
            yield Note(path, f"{value} is not a valid JSON number")
        case Mapping():
            for name, inner in value.items():
                yield from _unstorable(str(name), path)
                yield from _unstorable(inner, f"{path}.{name}")
        case list():
            for i, inner in enumerate(value):
                yield from _unstorable(inner, f"{path}[{i}]")


_KINDS = {
    "vhosts": "virtual host",
    "policies": "policy",
    "queues": "queue",
    "exchanges": "exchange",
    "bindings": "binding",
    "parameters": "parameter",
    "users": "user",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "global_parameters": "global parameter",
}
_PLACE = re.compile(r"(\w+)\[(\d+)\]")


class _Import:
    """One import. existing: the objects of each virtual host when first read, by kind and identity, as JSON."""

    def __init__(self, document: Any, definitions: Definitions, actor: Actor | None):
        self.document, self.definitions, self.actor = document, definitions, actor
        self.existing: dict[str, dict[tuple, Any]] = {}
        self.outcomes: list[Outcome] = [self._of_note(note, Result.FAILED) for note in definitions.problems]

    def steps(self) -> Steps:
        """Import in RabbitMQ's order: referenced objects first."""
        for vhost in self.definitions.vhosts:
            yield from self._do(vhost.path, "virtual host", "", vhost.name, self._vhost(vhost))
        for policy in self.definitions.policies:
            kind = "operator policy" if policy.policy.is_operator else "policy"
            yield from self._do(policy.path, kind, policy.vhost, policy.policy.name, self._policy(policy))
        for queue in self.definitions.queues:
            yield from self._do(queue.path, "queue", queue.vhost, queue.queue.name, self._queue(queue))
        for exchange in self.definitions.exchanges:
            yield from self._do(exchange.path, "exchange", exchange.vhost, exchange.exchange.name, self._exchange(exchange))
        for binding in self.definitions.bindings:
            name = f"{binding.binding.source} -> {binding.binding.destination}"
            yield from self._do(binding.path, "binding", binding.vhost, name, self._binding(binding))
        self.outcomes += [self._of_note(note, Result.IGNORED) for note in self.definitions.not_taken]
        return self._warned()

    def _do(self, path: str, kind: str, vhost: str, name: str, change: Steps) -> Steps:
        """change: returns the Result, and a problem or None."""
        try:
            result, problem = yield from change
        except BrokerError as exc:
            result, problem = Result.FAILED, str(exc)
        self.outcomes.append(Outcome(path, kind, vhost, name, result, problem))

    # One object each

    def _vhost(self, item: file.VhostItem) -> Steps:
        try:
            stored = yield from vhosts.get_vhost.steps(item.name, actor=self.actor)
        except EntityNotFound:
            yield from vhosts.create_vhost.steps(item.name, item.description, actor=self.actor)
            return Result.CREATED, None
        if stored.name != item.name:
            raise NotAllowed(f"The virtual host '{stored.name}' already exists; names are case-insensitive.")
        if item.description in ("", stored.description):
            return Result.UNCHANGED, None
        yield from namespaces.update_namespace.steps(item.name, description=item.description, actor=self.actor)
        return Result.UPDATED, None

    def _policy(self, item: file.PolicyItem) -> Steps:
        existing, requested = yield from self._compare(item, Definitions(policies=[item]))
        if existing == requested:
            return Result.UNCHANGED, None
        done = yield from policies.set_policy.steps(item.vhost, item.policy, actor=self.actor)
        return Result.CREATED if done.created else Result.UPDATED, None

    def _queue(self, item: file.QueueItem) -> Steps:
        existing, requested = yield from self._compare(item, Definitions(queues=[item]))
        queue = item.queue

        def declare() -> Steps:
            options: dict[str, Any] = {"type": queue.type, "durable": queue.durable, "auto_delete": queue.auto_delete}
            address = EntityAddress(item.vhost, queue.name)
            done = yield from queues.declare_queue.steps(address, **options, arguments=queue.arguments, actor=self.actor)
            return done.created

        return (yield from self._declare(existing, requested, declare))

    def _exchange(self, item: file.ExchangeItem) -> Steps:
        existing, requested = yield from self._compare(item, Definitions(exchanges=[item]))
        exchange = item.exchange

        def declare() -> Steps:
            flags = {name: getattr(exchange, name) for name in ("durable", "auto_delete", "internal")}
            place = item.vhost, exchange.name, str(exchange.type)
            return (yield from exchanges.declare_exchange.steps(*place, **flags, arguments=exchange.arguments, actor=self.actor))

        return (yield from self._declare(existing, requested, declare))

    def _binding(self, item: file.BindingItem) -> Steps:
        existing, _ = yield from self._compare(item, Definitions(bindings=[item]))
        if existing is not None:
            return Result.UNCHANGED, None
        binding = item.binding
        bind = bindings.bind_queue if binding.destination_is_queue else bindings.bind_exchange
        ends = (item.vhost, binding.destination, binding.source)
        created = yield from bind.steps(*ends, binding.routing_key, binding.arguments, actor=self.actor)
        return Result.CREATED if created else Result.UNCHANGED, None

    @staticmethod
    def _declare(existing: Any, requested: Any, declare: Callable[[], Steps]) -> Steps:
        """An existing queue or exchange is not changed (RMQ-927)."""
        if existing == requested:
            return Result.UNCHANGED, None
        try:
            if (yield from declare()):
                return Result.CREATED, None
        except AmqpError as exc:
            if not exc.problem.startswith("inequivalent arg"):
                raise
            return Result.KEPT, exc.text
        if differing := _differing(existing, requested):
            return Result.KEPT, f"it differs in {differing}, which declarations do not compare"
        return Result.UNCHANGED, None

    # Existing objects

    def _compare(self, item: Any, alone: Definitions) -> Steps:
        """The existing object of the same identity or None, and the requested one, as JSON."""
        if item.vhost not in self.existing:
            self.existing[item.vhost] = dict(_by_identity((yield from export_definitions.steps(item.vhost, actor=self.actor))))
        [(identity, requested)] = _by_identity(file.format(alone, vhost=item.vhost))
        return self.existing[item.vhost].get(identity), requested

    # Notes

    def _of_note(self, note: Note, result: Result) -> Outcome:
        section, item = self._place(note.path)
        name = next((item[key] for key in ("name", "user", "source") if isinstance(item.get(key), str)), "")
        vhost = item.get("vhost")
        kind = _KINDS.get(section, "file")
        if kind == "parameter" and item.get("component") == file.OPERATOR_POLICY:
            kind = "operator policy"
        return Outcome(
            _formatted(note.path), kind, _formatted(vhost) if isinstance(vhost, str) else "", _formatted(name), result, note.text
        )

    def _place(self, path: str) -> tuple[str, Mapping[str, Any]]:
        match = _PLACE.match(path)
        if not match:
            return path.partition(".")[0], {}
        item = self.document[match[1]][int(match[2])]
        return match[1], item if isinstance(item, Mapping) else {}

    def _warned(self) -> list[Outcome]:
        """The outcomes, with the warnings about their objects; other warnings become outcomes of their own."""
        warnings = {note.path: note for note in self.definitions.warnings}
        outcomes = []
        for outcome in self.outcomes:
            notes = [note for path, note in warnings.items() if path.startswith(f"{outcome.path}.")]
            for note in notes:
                warnings.pop(note.path)
            texts = [text for text in (outcome.problem, *map(str, notes)) if text]
            outcomes.append(outcome if not notes else replace(outcome, problem="; ".join(texts)))
        return outcomes + [self._of_note(note, Result.IGNORED) for note in warnings.values()]


def _formatted(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _by_identity(document: Mapping[str, Any]) -> Iterable[tuple[tuple, Any]]:
    """The objects of a virtual host's definitions file, with their identity."""
    for section in ("policies", "parameters", "queues", "exchanges"):
        for item in document[section]:
            yield (section, item["name"]), {name: value for name, value in item.items() if name != "vhost"}
    for item in document["bindings"]:
        yield ("bindings", json.dumps(item, sort_keys=True)), item


def _differing(existing: Mapping[str, Any] | None, requested: Mapping[str, Any]) -> str:
    """The arguments in which an equivalent queue or exchange differs. The queue type may be omitted from arguments (RMQ-347)."""
    if existing is None:  # not exported: exclusive or predeclared
        return ""
    before, after = existing["arguments"], requested["arguments"]
    names = before.keys() | after.keys()
    missing = object()
    return ", ".join(sorted(n for n in names if n != "x-queue-type" and before.get(n, missing) != after.get(n, missing)))
