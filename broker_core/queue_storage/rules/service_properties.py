"""The properties of an account's queue service: its rules for browsers (CORS), and what the service logs and measures.

Logging and metrics are stored and returned, and have no effect: Vitrine records every event.
Source: Azure Storage documentation, "Set Queue Service Properties", "Cross-Origin Resource Sharing (CORS) support".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from broker_core.common.arguments import require_kind, require_storable

from .errors import InvalidServiceProperties

MOST_RULES = 5
MOST_BYTES = 2 * 1024  # of all rules together
MOST_HEADERS, MOST_PREFIXES = 64, 2  # of a list of headers: literal names, and names that end in *
MOST_DAYS = 365
MOST_SECONDS = 2**31 - 1  # of MaxAgeInSeconds
METHODS = ("DELETE", "GET", "HEAD", "MERGE", "POST", "OPTIONS", "PUT", "PATCH")
ANY = "*"


@dataclass(frozen=True, slots=True)
class Retention:
    """days: 1 to 365; None: it is off."""

    days: int | None = None

    def __str__(self) -> str:
        return "kept" if self.days is None else f"kept for {self.days} day{'' if self.days == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Logging:
    """Which operations the service would log."""

    version: str = "1.0"
    delete: bool = False
    read: bool = False
    write: bool = False
    retention: Retention = Retention()

    def __str__(self) -> str:
        on = [name for name in ("delete", "read", "write") if getattr(self, name)]
        return f"{', '.join(on) or 'off'}; {self.retention}"


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the service would measure. include_apis: None: not said, as it must be while metrics are off."""

    version: str = "1.0"
    enabled: bool = False
    include_apis: bool | None = None
    retention: Retention = Retention()

    def __str__(self) -> str:
        return f"{'on' if self.enabled else 'off'}{', by operation' if self.include_apis else ''}; {self.retention}"


@dataclass(frozen=True, slots=True)
class CorsRule:
    """What pages of these origins may do. Lists as the service has them: origins may be "*"; headers may end in "*"."""

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    allowed_headers: tuple[str, ...] = ()
    exposed_headers: tuple[str, ...] = ()
    max_age_seconds: int = 0

    def __str__(self) -> str:
        parts = [f"{', '.join(self.methods)} from {', '.join(self.origins)}"]
        parts += [f"allows {', '.join(self.allowed_headers)}"] if self.allowed_headers else []
        parts += [f"exposes {', '.join(self.exposed_headers)}"] if self.exposed_headers else []
        return "; ".join([*parts, f"cached for {self.max_age_seconds} s"])


@dataclass(frozen=True, slots=True)
class ServiceProperties:
    """All of them; those of an account that set none."""

    logging: Logging = Logging()
    hour_metrics: Metrics = Metrics()
    minute_metrics: Metrics = Metrics()
    cors: tuple[CorsRule, ...] = ()

    def replaced(self, **given: Any) -> ServiceProperties:
        """With the parts that are given; None: it stays."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def check(properties: ServiceProperties) -> ServiceProperties:
    """Return them. Raises InvalidServiceProperties."""
    _check_part(properties.logging, Logging)
    _check_part(properties.hour_metrics, Metrics)
    _check_part(properties.minute_metrics, Metrics)
    if len(properties.cors) > MOST_RULES:
        raise InvalidServiceProperties("Cors", f"has {len(properties.cors)} rules; at most {MOST_RULES} are allowed")
    for rule in properties.cors:
        check_rule(rule)
    size = sum(len(text) for rule in properties.cors for texts in _lists(rule) for text in texts)
    if size > MOST_BYTES:
        raise InvalidServiceProperties("Cors", f"the rules have {size:,} characters together; at most {MOST_BYTES:,} are allowed")
    return properties


def _lists(rule: CorsRule) -> Iterable[Sequence[str]]:
    return rule.origins, rule.methods, rule.allowed_headers, rule.exposed_headers


def _check_part(part: Any, kind: type) -> None:
    """Check logging or metrics: what else they have are flags."""
    require_kind("properties", part, kind)
    require_kind("Version", part.version, str)
    require_storable("Version", part.version)
    for name in {f.name for f in fields(part)} - {"version", "retention"}:
        if name != "include_apis" or part.include_apis is not None:
            require_kind(name, getattr(part, name), bool)
    require_kind("RetentionPolicy", part.retention, Retention)
    days = part.retention.days
    if days is None:
        return
    require_kind("Days", days, int)
    if not 1 <= days <= MOST_DAYS:
        raise InvalidServiceProperties("Days", f"{days} of a retention policy must be 1 to {MOST_DAYS}")


def check_rule(rule: CorsRule) -> None:
    """Raise InvalidServiceProperties, with the name of the element, unless the rule can be stored."""
    require_kind("CorsRule", rule, CorsRule)
    for texts in _lists(rule):
        require_kind("CorsRule", texts, tuple)
    for text in (text for texts in _lists(rule) for text in texts):
        require_kind("CorsRule", text, str)
        require_storable("CorsRule", text)
    if not rule.origins:
        raise InvalidServiceProperties("AllowedOrigins", "must have at least one origin, or * for all")
    if not rule.methods:
        raise InvalidServiceProperties("AllowedMethods", "must have at least one method")
    if unknown := [method for method in rule.methods if method not in METHODS]:
        raise InvalidServiceProperties("AllowedMethods", f"{unknown[0]!r} must be one of {', '.join(METHODS)}")
    require_kind("MaxAgeInSeconds", rule.max_age_seconds, int)
    if not 0 <= rule.max_age_seconds <= MOST_SECONDS:
        raise InvalidServiceProperties("MaxAgeInSeconds", f"{rule.max_age_seconds} must be 0 to {MOST_SECONDS:,}")
    for name, headers in (("AllowedHeaders", rule.allowed_headers), ("ExposedHeaders", rule.exposed_headers)):
        prefixed = [header for header in headers if header.endswith(ANY) and header != ANY]
        if len(prefixed) > MOST_PREFIXES or len(headers) - len(prefixed) > MOST_HEADERS:
            raise InvalidServiceProperties(name, f"has more than {MOST_HEADERS} names or {MOST_PREFIXES} prefixes")


def rule_for(rules: Iterable[CorsRule], origin: str, method: str, headers: Sequence[str] = ()) -> CorsRule | None:
    """The first rule that allows a request (QS, section 3.7). origin: compared without case. headers: of the request."""
    return next((rule for rule in rules if _allows(rule, origin, method, headers)), None)


def _allows(rule: CorsRule, origin: str, method: str, headers: Sequence[str]) -> bool:
    origins = [allowed.lower() for allowed in rule.origins]
    return (
        (ANY in origins or origin.lower() in origins)
        and method in rule.methods
        and all(matches(rule.allowed_headers, header) for header in headers)
    )


def matches(patterns: Iterable[str], header: str) -> bool:
    """Whether a header's name is one of these, or begins with one that ends in *."""
    name = header.lower()
    return any(
        name.startswith(pattern[:-1].lower()) if pattern.endswith(ANY) else name == pattern.lower() for pattern in patterns
    )


def as_json(properties: ServiceProperties) -> dict[str, Any]:
    """As they are stored."""
    return asdict(properties)


def from_json(stored: Mapping[str, Any]) -> ServiceProperties:
    """The inverse of as_json; what is missing has its default."""
    read: dict[str, Any] = {}
    if "logging" in stored:
        read["logging"] = Logging(**_with_retention(stored["logging"]))
    for name in ("hour_metrics", "minute_metrics"):
        if name in stored:
            read[name] = Metrics(**_with_retention(stored[name]))
    if "cors" in stored:
        read["cors"] = tuple(CorsRule(**{key: _tuple(value) for key, value in rule.items()}) for rule in stored["cors"])
    return ServiceProperties(**read)


def _with_retention(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {**stored, "retention": Retention(**stored["retention"])}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
