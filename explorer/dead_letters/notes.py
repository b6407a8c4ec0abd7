"""Notes on groups of dead letters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from django.db.models import Q

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from explorer.models import DeadLetterNote

MOST_CHARACTERS = 300
Key = tuple[EntityAddress, str]  # the list of an entity, and the filter that finds the group in it


def of_groups(keys: Iterable[Key]) -> dict[Key, DeadLetterNote]:
    """The notes on these groups."""
    wanted_keys = set(keys)
    if not wanted_keys:
        return {}
    entities = {(address.namespace, address.path) for address, _ in wanted_keys}
    condition = Q()
    for namespace, path in entities:
        condition |= Q(namespace=namespace, path=path)
    notes = {(EntityAddress(n.namespace, n.path, n.subqueue), n.filter): n for n in DeadLetterNote.objects.filter(condition)}
    return {key: note for key, note in notes.items() if key in wanted_keys}


def write(address: EntityAddress, filter: str, text: str, actor: Actor) -> str:
    """Write or, with an empty text, remove the note on a group. Returns the result in words. Raises InvalidArgument."""
    actor.require(Right.OPERATE, address)
    text = " ".join(text.split())
    if len(text) > MOST_CHARACTERS:
        raise InvalidArgument("note", f"has {len(text):,} characters; at most {MOST_CHARACTERS} are allowed")
    key: dict[str, Any] = {"namespace": address.namespace, "path": address.path, "subqueue": int(address.subqueue)}
    key["digest"] = hashlib.sha256(filter.encode()).hexdigest()
    if not text:
        DeadLetterNote.objects.filter(**key).delete()
        return "Note removed."
    DeadLetterNote.objects.update_or_create(**key, defaults={"filter": filter, "text": text, "actor": str(actor)})
    return "Note saved."
