"""The history of an entity's settings: who changed what, and restoring earlier values through the preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress
from broker_core.reads import Revision
from explorer.frames.family import pages_of
from explorer.frames.settings_words import words_of
from explorer.frames.shell import about, address_of, page, show


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that changed. before: empty in the first revision."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Line:
    """A revision with its differences from the one before. number: from 1. is_current: the settings are still these."""

    id: int
    number: int
    at: datetime
    actor: str
    changes: tuple[Change, ...]
    is_first: bool
    is_current: bool


@page
@require_GET
def revisions(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    found = reads.revisions(entity.address, actor=request.actor)
    family = pages_of(entity.family)
    context = {
        **about(request, entity),
        "lines": lines(found, [words_of(entity, one.columns) for one in found]),
        "restorable": "entity_settings" in family.views,
    }
    return show(request, "revisions", context)


def lines(found: Sequence[Revision], words: Sequence[Mapping[str, str]]) -> list[Line]:
    """The revisions with their differences, the newest first, as given. words: the settings of each, by name."""
    shown = []
    for at, (one, now, before) in enumerate(zip_longest(found, words, words[1:])):
        changes = () if before is None else differences(before, now)
        shown.append(Line(one.id, len(found) - at, one.at, one.actor, changes, before is None, at == 0))
    return shown


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """The settings that differ, by name."""
    names = sorted({*before, *after})
    values = ((name, before.get(name, "none"), after.get(name, "none")) for name in names)
    return tuple(Change(name, old, new) for name, old, new in values if old != new)


def wanted_revision(request: HttpRequest, address: EntityAddress) -> Revision | None:
    """The revision named in the query of a settings page, whose values are to be restored; None: none is named."""
    wanted = request.GET.get("revision")
    if not wanted:
        return None
    found = next((one for one in reads.revisions(address, actor=request.actor) if str(one.id) == wanted), None)
    if found is None:
        raise InvalidArgument("revision", f"{wanted!r} is not a revision of {address}; choose one from its configuration history")
    return found
