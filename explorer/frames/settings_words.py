"""The settings of a revision of an entity, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.reads import EntityRow

from .family import pages_of
from .presenters import STATUS_WORDS

PROTECTED = "Protected from deletion"


def words_of(entity: EntityRow, columns: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a revision in words, by name."""
    status = next(words for status, words in STATUS_WORDS.items() if status == columns["status"])
    own = pages_of(entity.family).settings_words(entity, columns)
    return {**own, "Status": status, PROTECTED: "yes" if columns["protected"] else "no"}
