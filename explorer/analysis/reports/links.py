"""URLs of reports about a queue or namespace and a range."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from .forms import CUSTOM


def report_url(slug: str, of: Mapping[str, Any], start: datetime, end: datetime) -> str:
    """of: {"queue": id} or {"namespace": name}."""
    query = {**of, "range": CUSTOM, "start": f"{start:%Y-%m-%dT%H:%M}", "end": f"{end:%Y-%m-%dT%H:%M}"}
    return f"{reverse('explorer:analysis_report', args=(slug,))}?{urlencode(query)}"
