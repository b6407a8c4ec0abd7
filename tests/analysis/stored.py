"""Stored results of the report Waiting, as its job would make them."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from broker_core.models import Entity
from explorer.analysis.jobs import measures
from explorer.analysis.jobs.reporting import packed
from explorer.analysis.pages.asking import asked_of
from explorer.analysis.reports.registry import BY_SLUG
from explorer.analysis.running import requests
from explorer.models import AnalysisResult, AnalysisRun

SECOND = timedelta(seconds=1)
KINDS = (measures.WAITING, measures.PROCESSING)


def a_stored_result(entities: Sequence[Entity], *, is_whole: bool = False, **query: Any) -> AnalysisResult:
    """The result of Waiting for a queue, or for all of a namespace. query: other parameters of the page."""
    analysis = BY_SLUG["waiting"]
    of = {"namespace": entities[0].namespace.name} if is_whole else {"queue": entities[0].pk}
    changes = {name: query.pop(name) for name in ("notes", "made_at", "waits") if name in query}
    form, scope = asked_of([analysis], {**of, **query})
    assert scope is not None and form.is_valid()
    waits = changes.pop("waits", 1.0)
    times = {"at": scope.range.buckets, "entity_id": [entity.pk for entity in entities], "": [None]}
    tables = {
        "times": _times(times["at"], "at", waits),
        "before": _times([None], "", waits),
        "queues": _times(times["entity_id"], "entity_id", waits),
        "known": pa.table({"since": pa.array([scope.range.start]), "messages": [len(entities)], "generated": [0]}),
    }
    asked = {"span": _span(scope.range), "now": scope.now.isoformat(), "compared": scope.compared and _span(scope.compared)}
    now = datetime.now(UTC)
    values = {"made_at": now, "opened_at": now, "tables": packed(tables), "asked": asked, "report": analysis.slug, "card": None}
    key = requests.key_of(analysis, scope, form)
    values |= {"namespace_id": scope.namespace.pk} | changes
    return AnalysisResult.objects.update_or_create(key=key, defaults=values)[0]


def a_run_of(slugs: Sequence[str], query: dict[str, Any], **changes: Any) -> AnalysisRun:
    """A run that makes these reports for the parameters of a page."""
    analyses = [BY_SLUG[slug] for slug in slugs]
    form, scope = asked_of(analyses, query)
    assert scope is not None and form.is_valid()
    keys = [requests.key_of(analysis, scope, form) for analysis in analyses]
    request = {"query": form.query, "reports": list(slugs), "keys": keys}
    values = {"namespace": scope.namespace.name, "subject": scope.name, "requested_by": "user:alice", "request": request}
    return AnalysisRun.objects.create(**{**values, "requested_at": datetime.now(UTC), **changes})


def _span(one: Any) -> dict[str, str]:
    return {"start": one.start.isoformat(), "end": one.end.isoformat()}


def _times(keys: Iterable[Any], name: str, waits: float) -> pa.Table:
    """Histograms of each key, whose waits rise and fall; `waits` times as long."""
    rows = []
    for i, key in enumerate(keys):
        middle = waits * (1 + 0.9 * math.sin(i / 20)) * (30 if 200 <= i < 216 else 1)
        for measure in KINDS:
            results: dict[int, int] = {}
            for n in range(-6, 7):
                number = measures.bin_of(round(middle * 1e6 * 1.4**n * (1 if measure == measures.WAITING else 0.2)))
                results[number] = results.get(number, 0) + round(40 * math.exp(-n * n / 8)) + 1
            row = {"measure": measure, "bins": sorted(results), "counts": [results[bin_number] for bin_number in sorted(results)]}
            rows.append({name: key, **row} if name else row)
    return pa.Table.from_pylist(rows)
