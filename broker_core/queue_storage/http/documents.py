"""The XML documents of requests, and what they are made of. Pure functions; each raises InvalidXml with line and column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from broker_core.queue_storage.rules.messages import encode_text as check_text
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import CorsRule, Logging, Metrics, Retention, ServiceProperties
from broker_core.wire import xml
from broker_core.wire.xml import Element, element


def read_text(body: bytes) -> str:
    """The text of a QueueMessage document (QS-011, QS-013), as it is: it is never decoded. Raises RequestBodyTooLarge, too."""
    root = xml.read(body)
    found = root.find("MessageText")
    if found is None:
        root.refuse("it has no element MessageText")
    if found.children:
        found.children[0].refuse("MessageText must contain text only; escape < as &lt;")
    check_text(found.text)
    return found.text


# Stored access policies


def read_policies(body: bytes) -> list[AccessPolicy]:
    return [_policy(child) for child in xml.read(body).children]


def write_policies(policies: Iterable[AccessPolicy]) -> str:
    return element("SignedIdentifiers", map(_identifier, policies))


def _identifier(policy: AccessPolicy) -> str:
    parts = [("Start", policy.start), ("Expiry", policy.expiry), ("Permission", policy.permission)]
    given = [element(name, value) for name, value in parts if value is not None]
    return element("SignedIdentifier", [element("Id", policy.id), *([element("AccessPolicy", given)] if given else [])])


def _policy(identifier: Element) -> AccessPolicy:
    if identifier.name != "SignedIdentifier":
        identifier.refuse(f"{identifier.name[:80]} must be SignedIdentifier")
    given_id, policy = identifier.find("Id"), identifier.find("AccessPolicy")
    if given_id is None:
        identifier.refuse("it has no element Id")
    start, expiry, permission = ((policy.find(name) if policy else None) for name in ("Start", "Expiry", "Permission"))
    return AccessPolicy(given_id.text, *((part.text or None) if part else None for part in (start, expiry, permission)))


# Properties of the service


def read_properties(body: bytes) -> dict[str, Any]:
    """The parts that are in the document, as fields of ServiceProperties."""
    given: dict[str, Any] = {}
    for part in xml.read(body).children:
        if part.name not in _PARTS:
            part.refuse(f"{part.name[:80]} must be one of {', '.join(_PARTS)}")
        name, read = _PARTS[part.name]
        given[name] = read(part)
    return given


def write_properties(properties: ServiceProperties) -> str:
    parts = [
        element("Logging", _logging(properties.logging)),
        element("HourMetrics", _metrics(properties.hour_metrics)),
        element("MinuteMetrics", _metrics(properties.minute_metrics)),
        element("Cors", map(_rule, properties.cors)),
    ]
    return element("StorageServiceProperties", parts)


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


_PARTS: dict[str, tuple[str, Callable[[Element], Any]]] = {
    "Logging": ("logging", _read_logging),
    "HourMetrics": ("hour_metrics", _read_metrics),
    "MinuteMetrics": ("minute_metrics", _read_metrics),
    "Cors": ("cors", _read_cors),
}
