"""The operations on an account's queue service: the list of its queues, its properties, and its state."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from broker_core.common.types import Actor
from broker_core.queue_storage import accounts
from broker_core.queue_storage.queues import StorageQueue, list_queue_page
from broker_core.queue_storage.rules.errors import InvalidMarker, InvalidQueryParameterValue
from broker_core.queue_storage.rules.service_properties import CorsRule, Logging, Metrics, Retention
from broker_core.wire import xml
from broker_core.wire.http.answer import Answer
from broker_core.wire.xml import Element, element

from . import answers, parameters
from .request import Request

MOST_BODY_BYTES = 64 * 1024
_WITH_METADATA = "metadata"


async def list_queues(request: Request, actor: Actor) -> Answer:
    """QS-091; the marker is the last name of the page before."""
    prefix, marker = request.parameter("prefix") or "", request.parameter("marker") or ""
    limit = parameters.whole(request, parameters.MAX_RESULTS, 1, parameters.MOST_RESULTS)
    include = request.parameter("include") or ""
    if include not in ("", _WITH_METADATA):
        raise InvalidQueryParameterValue("include", include[:80], f"must be {_WITH_METADATA}")
    after = _read_marker(marker)
    page = await list_queue_page.aio(request.target.account, prefix, after, limit or parameters.MOST_RESULTS, actor=actor)
    queues = [_queue(queue, with_metadata=include == _WITH_METADATA) for queue in page.queues]
    root = [
        element("Prefix", prefix),
        *([element("Marker", marker)] if marker else []),
        element("MaxResults", str(limit or parameters.MOST_RESULTS)),
        element("Queues", queues),
        element("NextMarker", _marker(page.queues[-1].name) if page.more else ""),
    ]
    return answers.answer(request, 200, element("EnumerationResults", root, ServiceEndpoint=_endpoint(request)))


async def get_properties(request: Request, actor: Actor) -> Answer:
    properties = await accounts.get_service_properties.aio(request.target.account, actor=actor)
    root = [
        element("Logging", _logging(properties.logging)),
        element("HourMetrics", _metrics(properties.hour_metrics)),
        element("MinuteMetrics", _metrics(properties.minute_metrics)),
        element("Cors", map(_rule, properties.cors)),
    ]
    return answers.answer(request, 200, element("StorageServiceProperties", root))


async def set_properties(request: Request, actor: Actor) -> Answer:
    """Replaces the parts that are in the body, and keeps the others."""
    root = xml.read(await request.body(MOST_BODY_BYTES))
    given: dict[str, Any] = {}
    for part in root.children:
        if part.name not in _PARTS:
            part.refuse(f"{part.name[:80]} must be one of {', '.join(_PARTS)}")
        name, read = _PARTS[part.name]
        given[name] = read(part)
    await accounts.set_service_properties.aio(request.target.account, **given, actor=actor)
    return answers.answer(request, 202)


async def get_stats(request: Request, actor: Actor) -> Answer:
    """Of the secondary endpoint. Both are the same database, so it is never behind."""
    if not request.target.is_secondary:
        raise InvalidQueryParameterValue("comp", "stats", "only the secondary endpoint (<account>-secondary) has stats")
    state = [element("Status", "live"), element("LastSyncTime", answers.date(datetime.now(UTC)))]
    return answers.answer(request, 200, element("StorageServiceStats", [element("GeoReplication", state)]))


def _endpoint(request: Request) -> str:
    return request.url(f"/{request.target.account}/" if request.target.is_path_style else "/")


def _marker(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


def _read_marker(marker: str) -> str:
    try:
        return base64.b64decode(marker, validate=True).decode("ascii")
    except ValueError:
        raise InvalidMarker(marker) from None


def _queue(queue: StorageQueue, *, with_metadata: bool) -> str:
    metadata = [element("Metadata", [element(*pair) for pair in queue.metadata.items()])] if with_metadata else []
    return element("Queue", [element("Name", queue.name), *metadata])


# Properties as XML


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _retention(retention: Retention) -> str:
    days = [] if retention.days is None else [element("Days", str(retention.days))]
    return element("RetentionPolicy", [element("Enabled", _flag(retention.days is not None)), *days])


def _logging(logging: Logging) -> list[str]:
    flags = [("Delete", logging.delete), ("Read", logging.read), ("Write", logging.write)]
    return [
        element("Version", logging.version),
        *(element(name, _flag(value)) for name, value in flags),
        _retention(logging.retention),
    ]


def _metrics(metrics: Metrics) -> list[str]:
    apis = [] if metrics.include_apis is None else [element("IncludeAPIs", _flag(metrics.include_apis))]
    enabled = element("Enabled", _flag(metrics.enabled))
    return [element("Version", metrics.version), enabled, *apis, _retention(metrics.retention)]


def _rule(rule: CorsRule) -> str:
    lists: list[tuple[str, Sequence[str]]] = [
        ("AllowedOrigins", rule.origins),
        ("AllowedMethods", rule.methods),
        ("AllowedHeaders", rule.allowed_headers),
        ("ExposedHeaders", rule.exposed_headers),
    ]
    texts = [element(name, ",".join(values)) for name, values in lists]
    return element("CorsRule", [*texts, element("MaxAgeInSeconds", str(rule.max_age_seconds))])


def _text_in(parent: Element, name: str, default: str | None = None) -> str:
    found = parent.find(name)
    if found is None:
        if default is None:
            parent.refuse(f"{parent.name} has no element {name}")
        return default
    return found.text.strip()


def _flag_in(parent: Element, name: str) -> bool:
    text = _text_in(parent, name)
    if text not in ("true", "false"):
        parent.refuse(f"{name} {text[:40]!r} must be true or false")
    return text == "true"


def _whole_in(parent: Element, name: str) -> int:
    text = _text_in(parent, name)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        parent.refuse(f"{name} {text[:40]!r} must be a whole number")
    return int(text)


def _list_in(parent: Element, name: str) -> tuple[str, ...]:
    return tuple(part for text in _text_in(parent, name, "").split(",") if (part := text.strip()))


def _read_retention(parent: Element) -> Retention:
    found = parent.find("RetentionPolicy")
    if found is None:
        return Retention()
    return Retention(_whole_in(found, "Days")) if _flag_in(found, "Enabled") else Retention()


def _read_logging(part: Element) -> Logging:
    delete, read, write = (_flag_in(part, name) for name in ("Delete", "Read", "Write"))
    return Logging(_text_in(part, "Version"), delete, read, write, _read_retention(part))


def _read_metrics(part: Element) -> Metrics:
    enabled = _flag_in(part, "Enabled")
    apis = _flag_in(part, "IncludeAPIs") if part.find("IncludeAPIs") is not None else None
    return Metrics(_text_in(part, "Version"), enabled, apis, _read_retention(part))


def _read_cors(part: Element) -> tuple[CorsRule, ...]:
    return tuple(
        CorsRule(
            _list_in(rule, "AllowedOrigins"),
            _list_in(rule, "AllowedMethods"),
            _list_in(rule, "AllowedHeaders"),
            _list_in(rule, "ExposedHeaders"),
            _whole_in(rule, "MaxAgeInSeconds"),
        )
        for rule in part.children
    )


_PARTS = {
    "Logging": ("logging", _read_logging),
    "HourMetrics": ("hour_metrics", _read_metrics),
    "MinuteMetrics": ("minute_metrics", _read_metrics),
    "Cors": ("cors", _read_cors),
}
