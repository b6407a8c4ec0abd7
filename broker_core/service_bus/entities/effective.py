"""The effective settings of an entity, and their sources."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker_core.common.types import Actor, Behaviour, EntityAddress, Right, Tier
from broker_core.service_bus.rules.entity_settings import BY_BEHAVIOUR, values_of
from broker_core.store.driver import Steps
from broker_core.store.use_cases import use_case

from .kinds import Subscription, defaults_of, from_row
from .rows import entity_row

_LIFE = "default_message_time_to_live"


class EffectiveSetting(NamedTuple):
    """source: "default": the default of new entities. "tier": the default in a namespace of this tier. "entity": set on the
    entity. "topic": a subscription's value, limited by its topic's. "namespace": as the namespace behaves."""

    value: Any
    source: str


@use_case
def effective(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """Each setting of an entity by name, as an EffectiveSetting."""
    (actor or Actor.local()).require(Right.BROWSE, address)
    row = yield from entity_row(address)
    entity = from_row(row)
    plain = defaults_of(entity.kind, None, entity.is_system)
    of_tier = defaults_of(entity.kind, Tier(row.tier), entity.is_system)
    settings = {
        name: EffectiveSetting(value, _source(value, plain[name], of_tier[name]))
        for name, value in values_of(entity.settings).items()
    }
    behaviour = Behaviour(row.behaviour)
    for name in BY_BEHAVIOUR.keys() & settings.keys():
        if settings[name].value is None:
            source = "default" if behaviour is Behaviour.CONVENIENT else "namespace"
            settings[name] = EffectiveSetting(BY_BEHAVIOUR[name][behaviour], source)
    if isinstance(entity, Subscription):
        topic = yield from entity_row(entity.topic)
        own, lower = settings[_LIFE].value, getattr(topic, _LIFE)
        if lower is not None and (own is None or lower < own):  # SB-022
            settings[_LIFE] = EffectiveSetting(lower, "topic")
    return settings


def _source(value: Any, plain: Any, of_tier: Any) -> str:
    if value != of_tier:
        return "entity"
    return "default" if of_tier == plain else "tier"
