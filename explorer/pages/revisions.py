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
    all_revisions = reads.revisions(entity.address, actor=request.actor)
    family = pages_of(entity.family)
    context = {
        **about(request, entity),
        "lines": lines(all_revisions, [words_of(entity, revision.columns) for revision in all_revisions]),
        "restorable": "entity_settings" in family.views,
    }
    return show(request, "revisions", context)


def lines(revisions: Sequence[Revision], words: Sequence[Mapping[str, str]]) -> list[Line]:
    """The revisions with their differences, the newest first, as given. words: the settings of each, by name."""
    revision_lines = []
    for at, (revision, now, before) in enumerate(zip_longest(revisions, words, words[1:])):
        changes = () if before is None else differences(before, now)
        revision_lines.append(
            Line(revision.id, len(revisions) - at, revision.at, revision.actor, changes, before is None, at == 0)
        )
    return revision_lines


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """The settings that differ, by name."""
    names = sorted({*before, *after})
    values = ((name, before.get(name, "none"), after.get(name, "none")) for name in names)
    return tuple(Change(name, old, new) for name, old, new in values if old != new)


def revision_to_restore(request: HttpRequest, address: EntityAddress) -> Revision | None:
    """The revision named in the query of a settings page, whose values are to be restored; None: none is named."""
    revision_id = request.GET.get("revision")
    if not revision_id:
        return None
    revision = next(
        (candidate for candidate in reads.revisions(address, actor=request.actor) if str(candidate.id) == revision_id), None
    )
    if revision is None:
        raise InvalidArgument(
            "revision", f"{revision_id!r} is not a revision of {address}; choose one from its configuration history"
        )
    return revision
