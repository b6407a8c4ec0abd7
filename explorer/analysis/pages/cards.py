"""The card of a report: its answer in a sentence and its first picture, with all else under Details.

A card is made of a stored result once and stored beside it: presenting and drawing take longer than a page should. It is the same
for all viewers, and independent of the time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgpack
from django.template.loader import get_template, render_to_string
from django.urls import get_script_prefix
from django.utils.safestring import SafeString, mark_safe

from explorer.models import AnalysisResult

from ..reports import files
from ..reports.report import Analysis, Figure, Report, Section, Table
from ..reports.scope import Scope
from ..reports.tables import Tables
from ..running import submission
from ..survival import CannotTell

ANALYSIS = Path(__file__).parents[1]
MADE_BY = (
    ANALYSIS,
    *(ANALYSIS / name for name in ("pages", "reports", "jobs")),
    *(ANALYSIS.parent / name for name in ("charts", "frames")),
)


@dataclass(frozen=True, slots=True)
class Card:
    """What a page shows of a result. picture, details: HTML. links: to related pages, (words, URL)."""

    sentence: str = ""
    refusal: str = ""
    picture: str = ""
    details: str = ""
    notes: Sequence[str] = ()
    links: Sequence[Sequence[str]] = ()
    generated: int = 0

    @property
    def shown_picture(self) -> SafeString:
        return mark_safe(self.picture)

    @property
    def shown_details(self) -> SafeString:
        return mark_safe(self.details)


@dataclass(frozen=True, slots=True)
class Answer:
    """A report on a page. card: None if no result is stored."""

    analysis: Analysis
    result: AnalysisResult | None = None
    card: Card | None = None


def answers(analyses: Sequence[Analysis], scope: Scope, form: Any) -> list[Answer]:
    """What is stored of these reports."""
    stored = submission.results_of(analyses, scope, form)
    submission.note_opened(stored.values())
    return [
        Answer(analysis, result, card_of(analysis, result, scope, form.cleaned_data))
        if (result := stored.get(analysis.slug))
        else Answer(analysis)
        for analysis in analyses
    ]


def card_of(analysis: Analysis, result: AnalysisResult, scope: Scope, values: Mapping[str, Any]) -> Card:
    """The card of a result: the stored one, if it is of this result and of this version; else a new one, which is stored."""
    stamp = f"{_version()} {get_script_prefix()} {result.made_at.isoformat()}"
    if result.card:
        stored_card = msgpack.unpackb(result.card)
        if stored_card.pop("stamp") == stamp:
            return Card(**stored_card)
    card = made_card(analysis, report_of(analysis, result, scope, values))
    packed = msgpack.packb({**asdict(card), "stamp": stamp})
    AnalysisResult.objects.filter(pk=result.pk, made_at=result.made_at).update(card=packed)
    return card


def report_of(analysis: Analysis, result: AnalysisResult, scope: Scope, values: Mapping[str, Any]) -> Report:
    """The report that a result's tables give. Its refusal says why they give none."""
    try:
        return analysis.present(submission.stored_scope(result, scope), values, Tables.unpacked(bytes(result.tables)))
    except CannotTell as reason:
        return Report("", refusal=str(reason))


def made_card(analysis: Analysis, report: Report) -> Card:
    axis = next((section.table for section in report.sections if section.table and section.table.is_axis), None)
    first, others = _parted(report.sections)
    context = {"analysis": analysis, "axis": axis, "formats": files.FORMATS}
    picture = render_to_string("explorer/analysis/_figure.html", {**context, "figure": first}) if first else ""
    details = render_to_string("explorer/analysis/_details.html", {**context, "sections": others}) if others else ""
    return Card(
        report.finding, report.refusal, picture, details, list(report.notes), [(link.value, link.url) for link in report.links],
        report.generated,
    )  # fmt: skip


def readings(figure: Figure, axis: Table | None) -> str:
    """The values of a figure by interval, as charts.js reads them: a line with the titles of the columns, then one for each
    interval, oldest first; all separated by tabs. Pure."""
    if axis is None or not figure.columns:
        return ""
    places = {column.name: i for i, column in enumerate(axis.columns)}
    chosen = [0, *(places[name] for name in figure.columns.split())]
    titles = "\t".join(axis.columns[i].title for i in chosen)
    lines = ([head.text, *(cells[i - 1].text for i in chosen[1:])] for head, cells in axis.lines)
    return "\n".join([titles, *("\t".join(line) for line in reversed(list(lines)))])


def _parted(sections: Sequence[Section]) -> tuple[Figure | None, list[Section]]:
    """The first figure, and the sections without it; those that have nothing else are left out."""
    drawn = next((section for section in sections if section.figures), None)
    if drawn is None:
        return None, list(sections)
    first, *figures = drawn.figures
    without = [replace(section, figures=figures) if section is drawn else section for section in sections]
    return first, [section for section in without if section.sentence or section.figures or section.table]


@lru_cache(maxsize=1)
def _version() -> str:
    """Changes with the code and the templates that make cards."""
    digest = hashlib.sha256()
    for file in _sources():
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    for folder in MADE_BY:
        yield from sorted(folder.glob("*.py"))
    figure = Path(get_template("explorer/analysis/_figure.html").origin.name)
    yield from sorted(figure.parent.glob("_*"))
    yield figure.parents[1] / "_chart.svg"
