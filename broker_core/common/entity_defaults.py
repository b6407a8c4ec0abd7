"""The columns of an entity's settings, with their defaults. Every row has all of them; a family changes those that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from .types import EntityStatus, HistoryLevel

ENTITY_DEFAULTS: Mapping[str, Any] = {
    "lock_duration": timedelta(minutes=1),
    "max_delivery_count": 10,
    "default_message_time_to_live": None,
    "dead_lettering_on_message_expiration": False,
    "dead_lettering_on_filter_evaluation_exceptions": True,
    "auto_delete_on_idle": None,
    "requires_session": False,
    "requires_duplicate_detection": False,
    "duplicate_detection_history_time_window": timedelta(minutes=10),
    "forward_to": None,
    "forward_dead_lettered_messages_to": None,
    "max_size_in_megabytes": 1024,
    "max_message_size_in_kilobytes": 256,
    "status": EntityStatus.ACTIVE,
    "user_metadata": None,
    "expiry_mode": None,  # as the namespace behaves
    "expires_whole_sessions": True,
    "drops_locks_on_change": None,  # likewise
    "peek_shows_default_expiry": None,  # likewise
    "history_level": HistoryLevel.FULL,
    "hidden": False,
    "kept_properties": {},
}
