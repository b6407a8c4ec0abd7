"""What a page shows as code: the operations of an entity, of a message, or of the actions of a lesson's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from broker_core import reads
from broker_core.common.connection_strings import ConnectionString
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Family, Right, SubQueue
from broker_core.reads import EntityRow, MessageDetail
from explorer.frames.family import pages_of

from .code import Operation, Program, plain_properties, programs

MOST_BODY = 4096  # bytes of a body that is printed
NEW = {
    "create_queue": "queue",
    "create_topic": "topic",
    "create_subscription": "subscription",
    "declare_queue": "queue",
    "publish": "publication",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What is printed. names: of the operations that can be chosen instead, with their titles. note: what is not as in the
    message."""

    name: str
    title: str
    names: Sequence[tuple[str, str]]
    programs: Sequence[Program]
    note: str = ""


def _module(family: Family | str) -> ModuleType:
    return import_module(pages_of(family).snippets)


def operations(family: Family | str) -> Mapping[str, Operation]:
    """All operations of a family, by name."""
    known: Mapping[str, Operation] = _module(family).OPERATIONS
    return known


def of_entity(entity: EntityRow, at: EntityAddress, name: str, base: str) -> Shown:
    """The operations of an entity's list. name: of the one to print; empty: the first. Raises InvalidArgument."""
    module = _module(entity.family)
    names = module.OF_ENTITY.get(entity.kind, ())
    return _shown(entity.family, names, name, at, {}, base)


def of_new(family: Family, kind: str, at: EntityAddress, base: str) -> Shown:
    """What needs no entity: the creation of one, and a publication to an exchange. Raises InvalidArgument."""
    names = [name for name in operations(family) if NEW.get(name) == kind]
    exchange = {"exchange": "" if at.path == "amq.default" else at.path, "key": "my-key"} if kind == "publication" else {}
    return _shown(family, names, "", at, exchange, base)


def of_message(detail: MessageDetail, name: str, base: str, actor: Actor) -> Shown:
    """The operations of a message. The first sends the same message. Raises InvalidArgument."""
    module, row = _module(detail.row.family), detail.row
    names = module.OF_DEAD_LETTER if row.address.subqueue is not SubQueue.MAIN else module.OF_MESSAGE
    name = name or names[0]
    arguments: dict[str, Any] = {"number": row.sequence_number}
    if row.address.subqueue is SubQueue.DEAD_LETTER:
        arguments["dead_letters"] = True
    at, note = row.address.main, ""
    if name == names[0]:
        body, note = _body(detail, actor)
        arguments = module.like(detail, body)
        left_out = [each for each in detail.application_properties if each not in plain_properties(detail.application_properties)]
        note = " ".join(
            filter(None, (note, f"Left out, as their types are not plain: {', '.join(left_out)}." if left_out else ""))
        )
        at = at.topic or at
    elif name == "get":
        note = "A get returns the message at the head of the queue."
    return _shown(row.family, names, name, at, arguments, base, note)


def _body(detail: MessageDetail, actor: Actor) -> tuple[bytes, str]:
    """The body to print, and why it is another one."""
    if Right.SEE_BODIES not in actor.rights:
        return b"...", "You don't have permission to view message bodies, so the body is replaced."
    if detail.body_size > MOST_BODY:
        return b"...", f"The body has more than {MOST_BODY:,} bytes, so it is replaced."
    body = reads.body(detail.row.address, detail.row.sequence_number, length=MOST_BODY, actor=actor)
    return (body.content if body else b""), ""


def for_clients(entity: EntityRow, strings: Sequence[ConnectionString], base: str) -> Sequence[Program]:
    """Programs of the family's clients that use an entity. strings: those that work; base: the URL of the site."""
    found: Sequence[Program] = _module(entity.family).for_clients(entity, {string.name: string.text for string in strings}, base)
    return found


def for_namespace(family: Family | str, strings: Sequence[ConnectionString]) -> Sequence[Program]:
    """Programs of clients that use a whole namespace. Empty: the family has none. strings: those that work."""
    module = _module(family)
    found: Sequence[Program] = ()
    if hasattr(module, "for_namespace"):
        found = module.for_namespace({string.name: string.text for string in strings})
    return found


def of_actions(family: Family, namespace: str, actions: Sequence[tuple[str, Mapping[str, Any]]], base: str) -> Sequence[Program]:
    """The actions of a step, (name, arguments) each, as one program; empty: there is no code for one of them."""
    known = operations(family)
    if not all(name in known for name, _ in actions):
        return ()
    return programs([known[name].write(_place(namespace, arguments), arguments) for name, arguments in actions], base)


def _place(namespace: str, arguments: Mapping[str, Any]) -> EntityAddress:
    return EntityAddress(namespace, str(arguments.get("queue") or arguments.get("topic") or "none"))


def _shown(
    family: Family | str,
    names: Sequence[str],
    name: str,
    at: EntityAddress,
    arguments: Mapping[str, Any],
    base: str,
    note: str = "",
) -> Shown:
    known = operations(family)
    if not names:
        raise InvalidArgument("op", "has no code for this kind of entity")
    name = name or names[0]
    if name not in names:
        raise InvalidArgument("op", f"must be one of {', '.join(names)}")
    chosen = known[name]
    return Shown(
        name, chosen.title, [(each, known[each].title) for each in names], programs([chosen.write(at, arguments)], base), note
    )
