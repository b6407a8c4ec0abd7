"""Import of RabbitMQ definitions with an outcome for each object, and export of a virtual host's definitions."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Right
from broker_core.rabbitmq.definitions import Result
from broker_core.rabbitmq.messages import browsing
from explorer.frames.shell import act, page
from explorer.rabbitmq.forms.policy import ImportForm

from .shared import draw, vhost_of

RESULTS = tuple(str(result) for result in Result)


@page
@require_http_methods(["GET", "POST"])
def definitions(request: HttpRequest, namespace: str) -> HttpResponse:
    host = vhost_of(namespace, request.actor)
    form = ImportForm(request.POST, request.FILES) if request.method == "POST" else ImportForm()
    context = {
        "form": form, "counts": browsing.vhost_counts(host.name, actor=request.actor),
        "why_not": "" if Right.MANAGE in request.actor.rights else "Importing definitions requires the administrator role.",
    }  # fmt: skip
    if request.method != "POST" or not form.is_valid():
        return draw(request, "definitions", host, context, place="definitions")
    done = act(
        request, "import definitions", None, lambda: _import(request, host.name, form), target=host.name, says=imported
    )  # fmt: skip
    outcomes = sorted(done.result or (), key=lambda outcome: outcome.result != "failed")
    context |= {"outcomes": outcomes, "summary": summary(outcomes)}
    return draw(request, "definitions", host, context, place="definitions", done=done)


def _import(request: HttpRequest, vhost: str, form: ImportForm) -> list[Any]:
    whole = form.cleaned_data["whole"]
    return rabbitmq.import_definitions(parsed(form.document()), None if whole else vhost, actor=request.actor)


def parsed(document: str | bytes) -> Any:
    """Parse the document as JSON. Raises InvalidArgument with the position of the error."""
    try:
        return json.loads(document)
    except json.JSONDecodeError as exc:
        raise InvalidArgument("definitions", f"are not valid JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}") from exc
    except (ValueError, RecursionError) as exc:  # not UTF-8, or a number that Python does not read
        problem = "are not valid JSON in UTF-8, are nested too deeply, or contain a number with too many digits"
        raise InvalidArgument("definitions", problem) from exc


def summary(outcomes: list[Any]) -> list[tuple[str, int]]:
    """Counts per result, in a fixed order."""
    counts = Counter(str(outcome.result) for outcome in outcomes)
    return [(result, counts[result]) for result in RESULTS if counts[result]]


def imported(outcomes: list[Any]) -> str:
    if not outcomes:
        return "The file contains nothing for this virtual host."
    return "Imported: " + ", ".join(f"{count:,} {result}" for result, count in summary(outcomes)) + "."


@page
@require_GET
def download(request: HttpRequest, namespace: str) -> HttpResponse:
    """Download the virtual host's definitions."""
    host = vhost_of(namespace, request.actor)
    document = rabbitmq.export_definitions(host.name, actor=request.actor)
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in host.name).strip("_") or "default"
    response = HttpResponse(json.dumps(document, indent=2, ensure_ascii=False) + "\n", content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="definitions-{name.encode("ascii", "replace").decode()}.json"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
