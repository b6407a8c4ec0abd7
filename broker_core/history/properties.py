"""Properties of messages in the archive: an operator chooses their keys for an entity, and its lives keep their values.

The archiver takes the values from the event with which the message began. A copy, such as that of a topic in a subscription, may
have none there: then from the one that it was made from. Sends and receives do no more than without keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.models import ArchivedProperties, Entity

from . import lives, schema

MOST_KEYS = 8  # of an entity
MOST_CHARACTERS = 128  # of a key
LONGEST_VALUE = 120  # characters; the rest is left out
MOST_ORIGINS = 4  # a message is made from: it may have been forwarded, published, activated
COLUMNS = ("application_properties", "properties")

_BEGUN = [*lives.MESSAGE, *COLUMNS, "linked_entity_id", "linked_sequence_number"]
_LONG_AGO = 0  # microseconds since 1970

Message = tuple[int, int]  # entity and number


def chosen(entity_ids: Iterable[int]) -> dict[int, list[str]]:
    """The keys of these entities, of those that have any."""
    return dict(ArchivedProperties.objects.filter(pk__in=list(entity_ids)).values_list("entity_id", "keys"))


def chosen_in(namespace_id: int) -> dict[int, list[str]]:
    """The keys of the entities of a namespace, of those that have any."""
    here = Entity.objects.filter(namespace_id=namespace_id).values("pk")
    return dict(ArchivedProperties.objects.filter(pk__in=here).values_list("entity_id", "keys"))


def choose(entity_ids: Iterable[int], keys: Iterable[str], *, actor: Actor) -> list[str]:
    """Keep the values of these keys for the messages of these entities that leave from now on. Returns the keys.

    Raises NotAuthorized without Right.OPERATE in the namespaces of the entities, and InvalidArgument.
    """
    namespaces = dict(Entity.objects.filter(pk__in=list(entity_ids)).order_by("pk").values_list("pk", "namespace__name"))
    for namespace in set(namespaces.values()) or {"entities"}:
        actor.require(Right.OPERATE, namespace)
    wanted = list(dict.fromkeys(key.strip() for key in keys if key.strip()))
    if len(wanted) > MOST_KEYS:
        raise InvalidArgument("keys", f"can be at most {MOST_KEYS}; there are {len(wanted)}")
    for key in wanted:
        if len(key) > MOST_CHARACTERS or not key.isprintable() or '"' in key or "\\" in key:
            raise InvalidArgument("keys", f"must be names of at most {MOST_CHARACTERS} characters without quotes: {key[:50]!r}")
    if wanted:
        ArchivedProperties.objects.bulk_create(
            (ArchivedProperties(entity_id=one, keys=wanted) for one in namespaces),
            update_conflicts=True, unique_fields=["entity_id"], update_fields=["keys"],
        )  # fmt: skip
    else:
        ArchivedProperties.objects.filter(pk__in=list(namespaces)).delete()
    return wanted


def added(ended: pa.Table, events: pa.Table, keys: Mapping[int, Sequence[str]], earlier: lives.Earlier) -> pa.Table:
    """The lives that a slice's events ended, with the properties of those of these entities. earlier: as for `lives.lives`, with
    COLUMNS."""
    places = [i for i, entity_id in enumerate(ended["entity_id"].to_pylist()) if entity_id in keys]
    if not places:
        return ended
    mine = ended.take(pa.array(places, pa.int64()))
    messages = list(zip(*(mine[name].to_pylist() for name in lives.MESSAGE), strict=True))
    since = pc.cast(pc.coalesce(mine["enqueued_at"], mine["ended_at"]), pa.int64()).to_pylist()
    begun = _begun(events, earlier, dict(zip(messages, since, strict=True)))
    text_of = cache(lambda entity_id, *begun: as_text(values(keys[entity_id], *begun)))  # many messages have the same
    texts: list[str | None] = [None] * ended.num_rows
    for place, message in zip(places, messages, strict=True):
        texts[place] = text_of(message[0], *begun.get(message, (None, None)))
    at = ended.schema.get_field_index("chosen_properties")
    return ended.set_column(at, ended.schema.field(at), pa.array(texts, pa.string()))


def values(keys: Sequence[str], application: str | None, others: str | None) -> dict[str, str]:
    """The values of these keys: of the sender's properties (JSON, typed), or else of the broker's. Structures have none."""
    sent: Mapping[str, Any] = json.loads(application) if application else {}
    known: Mapping[str, Any] = json.loads(others) if others else {}
    found = {key: sent[key][1] if key in sent else known.get(key) for key in keys}
    texts = {key: json.dumps(value) if isinstance(value, bool | int | float) else value for key, value in found.items()}
    return {key: text[:LONGEST_VALUE] for key, text in texts.items() if isinstance(text, str)}


def as_text(found: Mapping[str, str]) -> str | None:
    """As a life keeps them."""
    return json.dumps(found, ensure_ascii=False) if found else None


def _begun(events: pa.Table, earlier: lives.Earlier, since: Mapping[Message, int]) -> dict[Message, tuple[Any, Any]]:
    """The properties (JSON) with which messages began, or else those that they were made from. since: by message, when it was
    enqueued, in microseconds since 1970."""
    found: dict[Message, tuple[Any, Any]] = {}
    messages_by_origin: dict[Message, list[Message]] = {message: [message] for message in since}
    enqueued_since: Mapping[Message, int] = since
    for _ in range(1 + MOST_ORIGINS):
        if not messages_by_origin:
            break
        by_next_origin: dict[Message, list[Message]] = {}
        for row in _beginnings(events, earlier, enqueued_since):
            descendants = messages_by_origin.pop((row["entity_id"], row["sequence_number"]), ())
            if row["application_properties"] or row["properties"]:
                found.update(dict.fromkeys(descendants, (row["application_properties"], row["properties"])))
            elif row["linked_sequence_number"] is not None:
                by_next_origin.setdefault((row["linked_entity_id"], row["linked_sequence_number"]), []).extend(descendants)
        messages_by_origin, enqueued_since = by_next_origin, dict.fromkeys(by_next_origin, _LONG_AGO)
    return found


def _beginnings(events: pa.Table, earlier: lives.Earlier, since: Mapping[Message, int]) -> list[dict[str, Any]]:
    """The events with which these messages began, of the slice or before it."""
    columns = [*zip(*since, strict=True), tuple(since.values())]
    wanted = pa.table([pa.array(column, field.type) for column, field in zip(columns, lives.WANTED, strict=True)], lives.WANTED)
    here = _first(events, wanted)
    missing = wanted.join(here.select(lives.MESSAGE), lives.MESSAGE, join_type="left anti")
    before = _first(earlier(missing), missing) if missing.num_rows else here.slice(0, 0)
    return [*here.to_pylist(), *before.to_pylist()]


def _first(events: pa.Table, wanted: pa.Table) -> pa.Table:
    kinds = pa.array(sorted(map(int, lives.BEGINNINGS)), pa.int16())
    begun = events.filter(pc.is_in(events["kind"], kinds)).select(_BEGUN).replace_schema_metadata(None)
    begun = schema.conform(begun, pa.schema([schema.EVENT.field(name) for name in _BEGUN]))
    return begun.join(wanted.select(lives.MESSAGE), lives.MESSAGE, join_type="left semi")
