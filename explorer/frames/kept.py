"""Messages that ended and are kept for a while (docs/design.md D20), on the pages of present ones."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress
from broker_core.reads import DeletedEntity, EntityRow


def entity_of(request: HttpRequest, address: EntityAddress) -> tuple[EntityRow | DeletedEntity, DeletedEntity | None]:
    """The entity, or the deleted one whose message it is. The query's `of` is the id of the entity that is meant."""
    text = request.GET.get("of", "")
    entity_id = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
    try:
        entity = reads.entity(address, actor=request.actor)
        if entity_id in (None, entity.id):
            return entity, None
    except EntityNotFound:
        entity = None
    deleted = reads.deleted_entity(address, entity_id=entity_id, actor=request.actor)
    if deleted is not None:
        return deleted, deleted
    if entity is None:
        raise EntityNotFound(str(address))
    return entity, None


def body_reader(request: HttpRequest, address: EntityAddress, number: int) -> Callable[[int, int], reads.Body | None]:
    """Reads parts of a message's body, from an offset, of at most a length, whether it is present or kept."""
    actor = request.actor
    entity, deleted = entity_of(request, address)
    if deleted is None and reads.message(address, number, actor=actor) is not None:
        return lambda offset, length: reads.body(address, number, offset=offset, length=length, actor=actor)
    kept = reads.kept_message(entity.id, number, actor=actor)
    if kept is None:
        return lambda offset, length: None
    return lambda offset, length: reads.kept_body(kept, offset=offset, length=length, actor=actor)
