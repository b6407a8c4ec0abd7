"""Messages as files: those of a list as an export of their entity (broker_core/export_format), or for spreadsheets; and the
messages of any export, which are sent as new ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from broker_core import reads
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, Family
from broker_core.export_format.lines import FORMAT, VERSION, Line, read_header, read_line
from broker_core.export_format.messages import MESSAGE, Sent, message_line, read_sent
from broker_core.operations import Batch, Places, Selection, Skip
from broker_core.store.driver import Steps
from broker_core.transfer.exporting import frame
from explorer.frames.csv_file import csv_line
from explorer.frames.family import FamilyOperations

from .selecting import matching_part

PAGE = 500
CHUNK = 4 * 2**20  # of bodies that an export reads at once
MOST_MESSAGES = 50_000  # of an import
PREVIEWED = 3
MOST_ERRORS = 20
EXAMPLE = '{"message": {"body": "text"}}'
COLUMNS = (
    "sequence_number", "enqueued_at", "message_id", "session_id", "body_kind", "properties", "application_properties",
    "time_to_live", "scheduled_enqueue_at", "delivery_count", "dead_letter_reason", "dead_letter_description", "encoded", "body",
    "body_base64",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Previewed:
    """A message of a file. text: the beginning of its body."""

    message: Sent
    text: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The messages of a file. lines: as written, by number. errors: (line, what is wrong)."""

    lines: Mapping[int, str]
    first: tuple[Previewed, ...]
    errors: tuple[tuple[int, str], ...]


def lines_of(chosen: Selection, family: Family, actor: Actor) -> Iterator[str]:
    """The lines of the messages of a selection, lowest number first. One that leaves the list meanwhile is left out."""
    part, position, at_end = definition_of(family).transfer, 0, False
    while not at_end:
        numbers, position, at_end = matching_part(chosen, position, PAGE, actor)
        while numbers:
            rows = reads.stored(chosen.address, numbers, max_bytes=CHUNK, actor=actor)
            for row in rows:
                yield message_line(row, part)
            last = rows[-1].sequence_number if rows else numbers[-1]
            numbers = [number for number in numbers if number > last]


def framed(messages: Iterable[str], address: EntityAddress, actor: Actor) -> Iterator[str]:
    """Lines of messages, or parts of several, with the lines that make them an export of their entity; without these, if it was
    deleted, or is one of Vitrine's own."""
    try:
        around = frame(address.main, actor=actor)
    except (EntityNotFound, NotAllowed):
        yield from messages
        return
    yield "".join(around.before)
    count = 0
    for part in messages:
        count += part.count("\n")
        yield part
    yield "".join(around.after(count))


def csv_lines(messages: Iterable[str]) -> Iterator[str]:
    """Lines of messages, or parts of several, for spreadsheets: a column for each member; objects are JSON."""
    yield csv_line(COLUMNS)
    for part in messages:
        for text in filter(None, part.split("\n")):
            members = json.loads(text)[MESSAGE]
            yield csv_line([_cell(members.get(name)) for name in COLUMNS])


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "" if value is None else value


def parsed(text: str, family: FamilyOperations) -> Parsed:
    """Check each line of a message; in an export, the others are skipped. Raises InvalidArgument for a file with no messages, or
    too many."""
    lines: dict[int, str] = {}
    first: list[Previewed] = []
    errors: list[tuple[int, str]] = []
    is_export = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = read_line(number, line)
            if number == 1 and record.kind == FORMAT:
                is_export = bool(_current(record))
            elif record.kind == MESSAGE or not is_export:
                if len(lines) == MOST_MESSAGES:
                    raise InvalidArgument("file", f"has more than {MOST_MESSAGES:,} messages; divide it")
                sent = _sent(record)
                family.read_sent(sent)
                lines[number] = line
                if len(first) < PREVIEWED:
                    first.append(Previewed(sent, sent.body[:1_000].decode(errors="replace")))
        except BrokerError as problem:
            if isinstance(problem, InvalidArgument) and problem.name == "file":
                raise
            errors.append((number, str(problem).removeprefix(f"line {number}: ")))
            if len(errors) == MOST_ERRORS:
                break
    if not lines and not errors:
        raise InvalidArgument("file", "has no messages")
    return Parsed(lines, tuple(first), tuple(errors))


def _current(header: Line) -> int:
    version = read_header(header)
    if version != VERSION:
        raise InvalidArgument("version", f"{version} can only be imported by import_vitrine")
    return version


def _sent(line: Line) -> Sent:
    if line.kind != MESSAGE:
        raise InvalidArgument(f"line {line.number}", f"'{line.kind}' must be a message, such as {EXAMPLE}")
    return read_sent(line.content, version=VERSION)


def send(batch: Batch, family: FamilyOperations, lines: Mapping[int, str]) -> Steps[dict[int, Places | Skip]]:
    """Send the messages of these lines: where each is now, or why it was not sent."""
    messages: dict[int, Any] = {}
    results: dict[int, Places | Skip] = {}
    for number, line in lines.items():
        try:
            messages[number] = family.read_sent(_sent(read_line(number, line)))
        except BrokerError as problem:
            results[number] = Skip(str(problem), failed=True)
    if messages:
        sent = yield from family.send_records(batch, list(messages.values()))
        results |= dict(zip(messages, sent, strict=True))
    return results
