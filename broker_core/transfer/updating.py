"""Imports configuration into namespaces of which some exist: creates what is missing, changes what differs, deletes nothing.

An existing namespace is compared with its own export, so importing an export unchanged changes nothing. Objects that the file
does not name are kept. Changes are made by the use cases of the family, in one transaction with the namespace locked; a preview
makes the same changes and takes them back, so it raises the same errors. A namespace that does not exist is created as by
`importing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from broker_core.common.durations import human
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument, NotAllowed, PreviewOutdated
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, Behaviour, Family, Right, Tier
from broker_core.export_format.lines import Fields, Line, read_header, read_lines
from broker_core.export_format.part import Item, Updater
from broker_core.namespaces.namespaces import MOST_MEGABYTES, Namespace, hold_namespace, update_namespace
from broker_core.namespaces.protection import set_protected
from broker_core.runtime.previews import Effect, token_of
from broker_core.store.connections import require_same_database
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .exporting import configuration_lines
from .importing import Import, is_celery_binding, kept_period

NAMESPACE, CELERY_BINDING, PROTECTION = "namespace", "Celery binding", "protection"
MOST_NAMED = 5  # refused settings in one error
_OF_ALL_FAMILIES = (CELERY_BINDING, PROTECTION)  # objects of entities that the family does not know
_CONTENT = ("message", "session", "seen")
_NOT_SETTINGS = ("created_at", "updated_at", "next_number", "last_activity_at", "last_receive_at")
_TIERS = list(Tier)


class Result(StrEnum):
    """What an import does with an object. KEPT: it exists here and is not in the file."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Change:
    """One object. settings: (before, after) by name, if it is changed. effects: on existing messages."""

    result: Result
    item: Item
    settings: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespaceImport:
    """A namespace of the file. is_new: it does not exist yet."""

    name: str
    family: Family
    is_new: bool
    changes: tuple[Change, ...]

    def count(self, result: Result) -> int:
        return sum(change.result is result for change in self.changes)


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """token: equal tokens mean the same changes of the same settings. messages: of the namespaces that are created."""

    namespaces: tuple[NamespaceImport, ...]
    messages: int

    @property
    def token(self) -> str:
        facts = [
            (namespace.name, namespace.is_new, [_fact(change) for change in namespace.changes]) for namespace in self.namespaces
        ]
        return token_of(facts)

    @property
    def to_make(self) -> int:
        """How many changes there are: new namespaces, and objects created or changed."""
        return sum(
            namespace.is_new + namespace.count(Result.CREATED) + namespace.count(Result.CHANGED) for namespace in self.namespaces
        )

    @property
    def is_empty(self) -> bool:
        return not self.to_make

    def __str__(self) -> str:
        """The changes, one a line."""
        return "\n".join(line for namespace in self.namespaces for line in _described(namespace))


def _described(namespace: NamespaceImport) -> list[str]:
    counts = ", ".join(f"{namespace.count(result):,} {result}" for result in Result)
    lines = [f"{namespace.name} ({'new namespace' if namespace.is_new else 'exists'}): {counts}"]
    for change in namespace.changes:
        if change.result in (Result.CREATED, Result.CHANGED):
            lines.append(f"  {change.result}: {change.item}")
            lines += [
                f"    {name}: {_formatted(before)} -> {_formatted(after)}" for name, (before, after) in change.settings.items()
            ]
            lines += [f"    effect: {effect}" for effect in change.effects]
    return lines


class _Previewed(Exception):
    """Ends the transaction of a preview, which stores nothing."""

    def __init__(self, preview: ImportPreview):
        super().__init__("Previewed; nothing was stored.")
        self.preview = preview


@use_case(namespace="name")
def preview_import(source: Iterable[str | bytes], *, name: str | None = None, actor: Actor | None = None) -> Steps[ImportPreview]:
    """What `apply_import` would do now. Changes nothing, and raises the same errors."""
    actor = _allowed(name, actor)

    def steps() -> Steps:
        raise _Previewed((yield from _import(source, name, actor)))

    try:
        yield Atomically(steps())
    except _Previewed as previewed:
        return previewed.preview
    raise AssertionError("a preview always ends its transaction")


@use_case(namespace="name")
def apply_import(
    source: Iterable[str | bytes], *, name: str | None = None, token: str | None = None, actor: Actor | None = None
) -> Steps[ImportPreview]:
    """Create and update the namespaces of a file, all or nothing. Returns what was done.

    name:  a new name for the file's only namespace.
    token: of a preview that must still hold; otherwise PreviewOutdated is raised and nothing is changed.
    Requires MANAGE. Raises NotAllowed for settings that cannot be changed after creation, and InvalidArgument, with the line, for
    any other problem. The clock of an existing namespace and the keys of existing policies are not changed.
    """
    actor = _allowed(name, actor)

    def steps() -> Steps:
        done = yield from _import(source, name, actor)
        if token is not None and token != done.token:
            raise PreviewOutdated(", ".join(namespace.name for namespace in done.namespaces), "settings have changed")
        return done

    return (yield Atomically(steps()))


def _allowed(name: str | None, actor: Actor | None) -> Actor:
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, name or "all namespaces")
    return actor


def _fact(change: Change) -> tuple:
    item = change.item
    return change.result, item.kind, item.path, item.name, sorted((name, repr(pair)) for name, pair in change.settings.items())


# The file


@dataclass(frozen=True, slots=True)
class _Section:
    """The lines of one namespace, the first of which is its own; name: under which it is imported."""

    name: str
    family: Family
    lines: list[Line]

    def count(self, kind: str) -> int:
        return sum(line.kind == kind for line in self.lines)


def _sections(source: Iterable[str | bytes], name: str | None) -> tuple[Line, list[_Section]]:
    """The header and the namespaces of a complete file."""
    lines = list(read_lines(source))
    header = lines[0] if lines else None
    read_header(header and Line(header.number, header.kind, header.content.copy()))
    assert header is not None
    if lines[-1].kind != "end":
        raise InvalidArgument("file", "is incomplete: the line with the totals is missing. Nothing was stored")
    sections: list[_Section] = []
    for line in lines[1:-1]:
        if line.kind == NAMESPACE:
            content = line.content.copy()
            family = content.member("family", Family, default=Family.SERVICE_BUS)
            sections.append(_Section(name or content.text("name"), family, []))
            if sections[-1].name.lower() in (other.name.lower() for other in sections[:-1]) and name is None:
                content.refuse("name", f"'{sections[-1].name}' appears twice")
        if not sections:
            raise InvalidArgument(f"line {line.number}", f"a {line.kind} is outside any namespace")
        sections[-1].lines.append(line)
    if name is not None and len(sections) > 1:
        raise InvalidArgument("name", "the file has several namespaces; only a single namespace can be renamed")
    if not sections:
        raise InvalidArgument("file", "has no namespace")
    end = lines[-1].content
    for total, kind in (("entities", "entity"), ("messages", "message")):
        if end.whole(total) != (count := sum(section.count(kind) for section in sections)):
            end.refuse(total, f"the file contains {count}")
    end.done()
    return header, sections


def _import(source: Iterable[str | bytes], name: str | None, actor: Actor) -> Steps[ImportPreview]:
    header, sections = _sections(source, name)
    done, messages = [], 0
    for section in sections:
        require_same_database(section.name)
        namespace = yield from _existing_namespace(section.name)
        if namespace is None:
            yield from Import(_alone(header, section), section.name, actor).steps()
            items = _items(section.lines, definition_of(section.family).transfer.Updater(section.name, actor), with_content=True)
            changes = [Change(Result.CREATED, item) for item in items.values() if item.kind != NAMESPACE]
            done.append(NamespaceImport(section.name, section.family, True, tuple(changes)))
            messages += section.count("message")
        else:
            changes = yield from _update(namespace, section, actor)
            done.append(NamespaceImport(namespace.name, namespace.family, False, tuple(changes)))
    return ImportPreview(tuple(done), messages)


def _existing_namespace(name: str) -> Steps[Namespace | None]:
    """The namespace, locked until the transaction ends; None: it does not exist."""
    try:
        return (yield from hold_namespace(name))
    except EntityNotFound:
        return None


def _alone(header: Line, section: _Section) -> Iterator[Line]:
    """The lines of a file with this namespace only."""
    for line in (header, *section.lines):
        yield Line(line.number, line.kind, line.content.copy())
    last = section.lines[-1].number + 1
    yield Line(last, "end", Fields("end", {"entities": section.count("entity"), "messages": section.count("message")}))


# An existing namespace


def _update(namespace: Namespace, section: _Section, actor: Actor) -> Steps[list[Change]]:
    """Compare a namespace, which is locked, with the lines of the file, and change what differs."""
    if namespace.is_system:
        raise NotAllowed(
            f"The namespace '{namespace.name}' is used by Vitrine itself; a file cannot change it. Choose another name."
        )
    if namespace.family is not section.family:
        title, own = definition_of(section.family).title, definition_of(namespace.family).title
        raise NotAllowed(
            f"'{namespace.name}' exists and is of the family {own}; the file's is of the family {title}. Import it as a new name."
        )
    updater = definition_of(namespace.family).transfer.Updater(namespace.name, actor)
    requested = _items(section.lines, updater)
    for item in requested.values():
        if item.path and not item.name:
            yield call("lock_entity", namespace=namespace.name, path=item.path)
    stored = _items(list(read_lines((yield from configuration_lines(namespace.name)))), updater)
    changes = [_compared(updater, stored.get(key), item) for key, item in requested.items()]
    _require_changeable(namespace.name, updater, changes)
    paths = frozenset(item.path.lower() for item in stored.values())
    complete = []
    for change in changes:
        complete.append((yield from _with_effects(updater, change, paths)))
    yield from _make(namespace, updater, complete, actor)
    return complete + [Change(Result.KEPT, item) for key, item in stored.items() if key not in requested]


def _items(lines: Sequence[Line], updater: Updater, with_content: bool = False) -> dict[tuple, Item]:
    """The objects of one namespace, by key, in the order of the file. with_content: the lines may include messages."""
    items: dict[tuple, Item] = {}
    path = ""
    for line in lines:
        content = line.content.copy()
        if line.kind == "entity_end":
            path = ""
        elif line.kind in _CONTENT:
            if not with_content:
                problem = f"'{updater.namespace}' exists; only its configuration can be imported. Export it without messages"
                raise InvalidArgument(f"line {line.number}: {line.kind}", problem)
        else:
            with _errors_at(f"line {line.number}: {line.kind}"):
                read = _read(line, content, updater, path)
            path = read[0].path if line.kind == "entity" else path
            for item in read:
                if (key := updater.key(item)) in items:
                    raise InvalidArgument(f"line {line.number}", f"{item} appears twice")
                items[key] = item
    return items


def _read(line: Line, content: Fields, updater: Updater, path: str) -> list[Item]:
    """The object of a line; of an entity, also its Celery bindings and its protection."""
    if line.kind == NAMESPACE:
        return [Item(NAMESPACE, "", updater.namespace, _of_namespace(content), line.number)]
    if line.kind == "entity":
        if path:
            raise InvalidArgument(f"line {line.number}", f"'{path}' is incomplete: its entity_end line is missing")
        return _entity(line, content, updater)
    if line.kind not in updater.own_lines:
        raise InvalidArgument(f"line {line.number}", f"'{line.kind}' is not a valid kind of export line")
    item = updater.item(line.kind, path, content)
    content.done()
    return [replace(item, line=line.number)]


def _of_namespace(content: Fields) -> dict[str, Any]:
    for name in ("name", "family", "created_at", "clock"):
        content.value(name)
    values = {
        "description": content.text("description"),
        "tier": content.member("tier", Tier),
        "behaviour": content.member("behaviour", Behaviour, default=Behaviour.CONVENIENT),
        "max_size_in_megabytes": content.whole("max_size_in_megabytes", least=1, most=MOST_MEGABYTES, optional=True) or 0,
        "keep_messages_for": kept_period(content) or timedelta(),
    }
    content.done()
    return values


def _entity(line: Line, content: Fields, updater: Updater) -> list[Item]:
    path = content.text("path")
    for name in _NOT_SETTINGS:
        content.value(name)
    pairs = content.value("celery_bindings") or []
    if not isinstance(pairs, list) or not all(map(is_celery_binding, pairs)):
        content.refuse("celery_bindings", "must be pairs of an exchange and a routing key")
    is_protected = content.flag("protected", optional=True)
    kind, values = updater.entity(path, content)
    content.done()
    bindings = [
        Item(CELERY_BINDING, path, f"{exchange}: {key}", {"pair": (exchange, key)}, line.number) for exchange, key in pairs
    ]
    protection = [Item(PROTECTION, path, "from deletion", {}, line.number)] if is_protected else []
    return [Item(kind, path, "", values, line.number), *bindings, *protection]


def _compared(updater: Updater, stored: Item | None, requested: Item) -> Change:
    if stored is None:
        return Change(Result.CREATED, requested)
    if stored.kind != requested.kind:
        raise NotAllowed(
            f"'{requested.path}' is a {stored.kind} and would be a {requested.kind}. Delete it, or import as a new name."
        )
    names = dict.fromkeys((*stored.values, *requested.values))
    pairs = {name: (stored.values.get(name), requested.values.get(name)) for name in names}
    differing = {name: pair for name, pair in pairs.items() if not updater.is_same(name, *pair)}
    return Change(Result.CHANGED if differing else Result.UNCHANGED, requested, differing)


def _require_changeable(namespace: str, updater: Updater, changes: Sequence[Change]) -> None:
    """Refuse changes of what is fixed when an object is created, before anything is written."""
    fixed = [
        f"{updater.label(name)} of {change.item} is {_formatted(before)} and would be {_formatted(after)}"
        for change in changes
        for name, (before, after) in change.settings.items()
        if updater.is_fixed(change.item, name)
    ]
    if fixed:
        named = "; ".join(fixed[:MOST_NAMED]) + (f"; and {len(fixed) - MOST_NAMED:,} more" if len(fixed) > MOST_NAMED else "")
        raise NotAllowed(
            f"The import into '{namespace}' would change what cannot be changed after creation: {named}. "
            "Delete and create these again, or import as a new name."
        )


def _formatted(value: Any) -> str:
    if isinstance(value, timedelta):
        return human(value)
    if isinstance(value, tuple):
        return " | ".join(map(str, value)) or "none"
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _with_effects(updater: Updater, change: Change, paths: frozenset[str]) -> Steps[Change]:
    if change.result not in (Result.CREATED, Result.CHANGED) or change.item.kind in (NAMESPACE, *_OF_ALL_FAMILIES):
        return change
    after = {name: pair[1] for name, pair in change.settings.items()}
    effects = yield from _located(change.item, updater.effects(change.item, after, paths))
    return Change(change.result, change.item, change.settings, effects)


def _make(namespace: Namespace, updater: Updater, changes: Sequence[Change], actor: Actor) -> Steps[None]:
    """Create first, since an entity can forward only to an existing one; a higher tier comes before, a lower one after all."""
    of_namespace = next((c for c in changes if c.item.kind == NAMESPACE and c.result is Result.CHANGED), None)
    tier = of_namespace.item.values["tier"] if of_namespace else namespace.tier
    if of_namespace and _TIERS.index(tier) >= _TIERS.index(namespace.tier):
        yield from _located(of_namespace.item, _change_namespace(namespace, of_namespace, actor))
    later: list[tuple[Item, Mapping[str, Any]]] = []
    for change in changes:
        if change.result is Result.CREATED:
            later.append((change.item, (yield from _located(change.item, _create(namespace, updater, change.item, actor)))))
        elif change.result is Result.CHANGED and change is not of_namespace:
            later.append((change.item, {name: pair[1] for name, pair in change.settings.items()}))
    for item, settings in later:
        if settings:
            yield from _located(item, updater.change(item, settings))
    if of_namespace and _TIERS.index(tier) < _TIERS.index(namespace.tier):
        yield from _located(of_namespace.item, _change_namespace(namespace, of_namespace, actor))


def _change_namespace(namespace: Namespace, change: Change, actor: Actor) -> Steps:
    yield from update_namespace.steps(namespace.name, **{name: pair[1] for name, pair in change.settings.items()}, actor=actor)


def _create(namespace: Namespace, updater: Updater, item: Item, actor: Actor) -> Steps[Mapping[str, Any]]:
    if item.kind not in _OF_ALL_FAMILIES:
        return (yield from updater.create(item))
    if item.kind == PROTECTION:
        yield from set_protected.steps(updater.address(item.path), True, actor=actor)
    else:
        exchange, key = item.values["pair"]
        yield call("celery_bind", namespace=namespace.name, path=item.path, exchange=exchange, routing_key=key)
    return {}


def _located(item: Item, steps: Steps) -> Steps:
    """Run the steps; an error names the line and the object."""
    with _errors_at(f"line {item.line}: {item}"):
        return (yield from steps)


@contextmanager
def _errors_at(where: str) -> Iterator[None]:
    """Errors name this place in the file, unless they name one, or the same import can succeed later."""
    try:
        yield
    except BrokerError as exc:
        if exc.retryable or (isinstance(exc, InvalidArgument) and exc.name.startswith("line ")):
            raise
        raise InvalidArgument(where, str(exc)) from exc
