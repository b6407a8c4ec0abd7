"""The properties of messages that an operator chose to keep (broker_core.history.properties), from the first event of a message.

A copy, such as that of a topic in a subscription, may have none there: then from the message that it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .kinds import BEGINNINGS

LONGEST_VALUE = 120  # characters; the rest is left out
MOST_ORIGINS = 3  # a message is made from: it may have been forwarded, published, activated
STRUCTURES = ("map", "list", "array", "described")  # types of a sender's property that have no value here

Keys = Mapping[str, Sequence[str]]  # by entity id


def of_events(keys: Keys) -> Column:
    """The values as a JSON object, for rows of schemas.EVENT; NULL: the entity keeps none, or the message has none."""
    column = F.lit(None).cast("string")
    for ids, property_names in _groups(keys):
        column = F.when(F.col("entity_id").isin(ids), values(property_names)).otherwise(column)
    return F.when(F.col("kind").isin(*BEGINNINGS), column)


def values(keys: Sequence[str]) -> Column:
    """The values of these keys: of the sender's properties (JSON, typed), or else of the broker's. Structures have none."""
    entries = [F.struct(F.lit(key).alias("key"), F.substring(_value(key), 1, LONGEST_VALUE).alias("value")) for key in keys]
    known = F.filter(F.array(*entries), lambda entry: entry["value"].isNotNull())
    return F.when(F.size(known) > 0, F.to_json(F.map_from_entries(known)))


def bare_copies(begun: DataFrame, keys: Keys) -> DataFrame:
    """The messages of entities with keys that were made from others and began without properties: of_entity, of_number, and
    entity_id and sequence_number of the other. begun: first events, as schemas.EVENT."""
    is_bare = (
        F.col("entity_id").isin([int(entity_id) for entity_id in keys]) & _bare() & F.col("linked_sequence_number").isNotNull()
    )
    return begun.where(is_bare).select(
        F.col("entity_id").alias("of_entity"), F.col("sequence_number").alias("of_number"),
        F.col("linked_entity_id").alias("entity_id"), F.col("linked_sequence_number").alias("sequence_number"),
    )  # fmt: skip


def with_origins(looking: DataFrame, begun: DataFrame, keys: Keys) -> DataFrame:
    """entity_id, sequence_number and `inherited` of messages: the values of the message that each was made from, directly or over
    others. looking: as bare_copies. begun: first events, as schemas.EVENT."""
    origins = begun.select(
        "entity_id", "sequence_number", "application_properties", "properties",
        F.col("linked_entity_id").alias("next_entity"), F.col("linked_sequence_number").alias("next_number"),
    )  # fmt: skip
    resolved = None
    for _ in range(MOST_ORIGINS):
        met = looking.join(origins, ["entity_id", "sequence_number"])
        inherited = F.lit(None).cast("string")
        for ids, property_names in _groups(keys):
            inherited = F.when(F.col("of_entity").isin(ids), values(property_names)).otherwise(inherited)
        reached = met.where(~_bare()).select(
            F.col("of_entity").alias("entity_id"), F.col("of_number").alias("sequence_number"), inherited.alias("inherited")
        )
        resolved = reached if resolved is None else resolved.unionByName(reached)
        looking = met.where(_bare() & F.col("next_number").isNotNull()).select(
            "of_entity", "of_number", F.col("next_entity").alias("entity_id"), F.col("next_number").alias("sequence_number")
        )
    assert resolved is not None
    return resolved


def _bare() -> Column:
    return F.col("application_properties").isNull() & F.col("properties").isNull()


def _value(key: str) -> Column:
    sent = F.get_json_object("application_properties", f"$['{key}'][0]")
    plain = F.get_json_object("properties", f"$['{key}']")
    of_broker = F.when(~plain.startswith("{") & ~plain.startswith("["), plain)
    of_sender = F.when(~sent.isin(*STRUCTURES), F.get_json_object("application_properties", f"$['{key}'][1]"))
    return F.when(sent.isNotNull(), of_sender).otherwise(of_broker)


def _groups(keys: Keys) -> list[tuple[list[int], Sequence[str]]]:
    """(entities, keys) with the entities that have equal keys."""
    entities_by_keys: dict[tuple[str, ...], list[int]] = {}
    for entity_id, property_names in keys.items():
        entities_by_keys.setdefault(tuple(property_names), []).append(int(entity_id))
    return [(ids, property_names) for property_names, ids in entities_by_keys.items()]
