"""What a request for a report asks for: the key of its result, and its scope now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import InvalidArgument

from ..reports.forms import CUSTOM, ReportForm
from ..reports.report import Analysis
from ..reports.scope import Scope

SHARED = (*ReportForm.base_fields,)  # fields of all forms, which say of what and when


def key_of(analysis: Analysis, scope: Scope, form: ReportForm) -> str:
    """Of the report, the entities, the range as asked, the comparison, and the values of its own fields."""
    values, fields = form.cleaned_data, analysis.form.base_fields
    asked = {
        "report": analysis.slug,
        "of": [scope.namespace.pk, *([] if scope.is_whole else scope.ids)],
        "range": [scope.range.start, scope.range.end] if values["range"] == CUSTOM else values["range"],
        "compare": values.get("compare") if "compare" in fields else "",
        "own": {name: values.get(name) for name in sorted(fields.keys() - ReportForm.base_fields.keys())},
    }
    return hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()


def asked_scope(analysis: Analysis, query: Mapping[str, str]) -> tuple[Scope, dict[str, Any]]:
    """The scope of a request, now, and the values of the form. Raises InvalidArgument if there is no such queue or namespace any
    more."""
    form = analysis.form({name: value for name, value in query.items() if name in analysis.form.base_fields})
    scope = form.scope() if form.is_valid() else None
    if scope is None or not scope.entities:
        raise InvalidArgument("scope", "names a queue or namespace that does not exist any more, or has no queues")
    return scope, form.cleaned_data
