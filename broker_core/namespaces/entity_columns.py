"""The settings columns of an entity's row. Every row has all of them; those that a family does not use keep their defaults."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from broker_core.common.entity_defaults import ENTITY_DEFAULTS
from broker_core.common.types import Family

_STORED_AS: Mapping[str, Callable[[Any], Any]] = {
    "status": str,
    "expiry_mode": str,
    "history_level": int,
    "kept_properties": json.dumps,
}


def entity_columns(family: Family, values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an entity with these settings, as parameters of `create_entity` and `update_entity`."""
    columns = {**ENTITY_DEFAULTS, **values}
    stored = {
        name: value if value is None or name not in _STORED_AS else _STORED_AS[name](value) for name, value in columns.items()
    }
    return stored | {"family": str(family), "options": "{}", "effective": "{}", "owner_id": None}
