"""The form of a queue service's properties: rows of CORS rules, logging and metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django import forms
from django.http import QueryDict

from broker_core.queue_storage.forms import PLAIN
from broker_core.queue_storage.rules.errors import InvalidServiceProperties
from broker_core.queue_storage.rules.service_properties import (
    ANY,
    METHODS,
    MOST_DAYS,
    MOST_RULES,
    MOST_SECONDS,
    CorsRule,
    Logging,
    Metrics,
    Retention,
    ServiceProperties,
    check,
    check_rule,
)
from explorer.frames.forms.row_sets import RowSet, row_set

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#]+", re.IGNORECASE)
_FIELDS = {  # by element
    "AllowedOrigins": "origins", "AllowedMethods": "methods", "AllowedHeaders": "allowed_headers",
    "ExposedHeaders": "exposed_headers", "MaxAgeInSeconds": "max_age_seconds",
}  # fmt: skip


class ListField(forms.CharField):
    """Texts separated by commas, as a tuple."""

    def __init__(self, placeholder: str, **kwargs: Any):
        widget = forms.TextInput({**PLAIN, "placeholder": placeholder})
        super().__init__(required=False, widget=widget, **kwargs)

    def clean(self, value: Any) -> tuple[str, ...]:
        return tuple(part for text in super().clean(value).split(",") if (part := text.strip()))


class CorsRuleForm(forms.Form):
    """A rule. A row in which nothing is typed is none."""

    origins = ListField("https://shop.example", label="Allowed origins", help_text="Separated by commas; * for all.")
    methods = forms.MultipleChoiceField(
        required=False, label="Allowed methods", choices=[(method, method) for method in METHODS],
        widget=forms.CheckboxSelectMultiple(),
    )  # fmt: skip
    allowed_headers = ListField("x-ms-*", label="Allowed headers", help_text="Of requests; * for all.")
    exposed_headers = ListField("x-ms-*", label="Exposed headers", help_text="Of answers, that pages can read; * for all.")
    max_age_seconds = forms.IntegerField(
        required=False, min_value=0, max_value=MOST_SECONDS, label="Max age",
        help_text="Seconds for which a browser keeps the answer to a preflight.",
    )  # fmt: skip

    def clean_origins(self) -> tuple[str, ...]:
        origins = self.cleaned_data["origins"]
        wrong = [origin for origin in origins if origin != ANY and not _ORIGIN.fullmatch(origin)]
        if wrong and "origins" in self.changed_data:
            raise forms.ValidationError(f"{wrong[0]} must be an origin such as https://shop.example, without a path, or *.")
        return origins

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if not self.errors and (rule := self.rule):
            try:
                check_rule(rule)
            except InvalidServiceProperties as exc:
                self.add_error(_FIELDS.get(exc.name), f"{exc.problem[0].upper()}{exc.problem[1:]}.")
        return values

    @property
    def rule(self) -> CorsRule | None:
        """The rule of a row; None: there is none. Methods that stay the same stay in their order."""
        values = self.cleaned_data
        if values.get("DELETE") or not any(values.get(name) not in (None, (), []) for name in _FIELDS.values()):
            return None
        stored = tuple(self.initial.get("methods", ()))
        methods = stored if set(stored) == set(values["methods"]) else tuple(values["methods"])
        headers = values["allowed_headers"], values["exposed_headers"]
        return CorsRule(values["origins"], methods, *headers, values["max_age_seconds"] or 0)


class _Rules(RowSet):
    """The rules of an account."""

    def clean(self) -> None:
        if any(self.errors):
            return
        try:
            check(ServiceProperties(cors=self.values()))
        except InvalidServiceProperties as exc:
            raise forms.ValidationError(f"{exc.problem[0].upper()}{exc.problem[1:]}.") from exc

    def values(self) -> tuple[CorsRule, ...]:
        """The rules; call it only if the rows are valid."""
        return tuple(rule for form in self.forms if (rule := form.rule))


CorsRules = row_set(CorsRuleForm, _Rules, MOST_RULES)


def _days() -> forms.IntegerField:
    return forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_DAYS,
        label="Retention in days",
        help_text=f"1 to {MOST_DAYS}. Empty: no limit.",
    )


def _flag(label: str) -> forms.BooleanField:
    return forms.BooleanField(required=False, label=label)


class ServicePropertiesForm(forms.Form):
    """All properties. stored: what is changed."""

    logging_read, logging_write, logging_delete = _flag("Read requests"), _flag("Write requests"), _flag("Delete requests")
    logging_days = _days()
    hour_metrics_enabled, hour_metrics_apis, hour_metrics_days = _flag("Enabled"), _flag("For each operation"), _days()
    minute_metrics_enabled, minute_metrics_apis, minute_metrics_days = _flag("Enabled"), _flag("For each operation"), _days()

    def __init__(self, data: QueryDict | None, *, stored: ServiceProperties):
        self.stored = stored
        logging = stored.logging
        initial = {f"logging_{name}": getattr(logging, name) for name in ("read", "write", "delete")}
        initial["logging_days"] = logging.retention.days
        for name in ("hour_metrics", "minute_metrics"):
            metrics: Metrics = getattr(stored, name)
            initial |= {
                f"{name}_enabled": metrics.enabled, f"{name}_apis": metrics.include_apis, f"{name}_days": metrics.retention.days
            }  # fmt: skip
        super().__init__(data, initial=initial)
        self.cors = CorsRules(data, initial=_rows(stored.cors), prefix="cors")

    def clean(self) -> dict[str, Any] | None:
        if not self.cors.is_valid():
            self.add_error(None, "A CORS rule is invalid.")
        return super().clean()

    def changes(self) -> dict[str, Any]:
        """The parts that differ from what is stored; call it only after is_valid()."""
        parts = {
            "cors": self.cors.values(), "logging": self._logging(), "hour_metrics": self._metrics("hour_metrics"),
            "minute_metrics": self._metrics("minute_metrics"),
        }  # fmt: skip
        return {name: part for name, part in parts.items() if part != getattr(self.stored, name)}

    def _logging(self) -> Logging:
        flags = {name: self.cleaned_data[f"logging_{name}"] for name in ("read", "write", "delete")}
        return replace(self.stored.logging, **flags, retention=Retention(self.cleaned_data["logging_days"]))

    def _metrics(self, name: str) -> Metrics:
        enabled, apis, days = (self.cleaned_data[f"{name}_{what}"] for what in ("enabled", "apis", "days"))
        stored: Metrics = getattr(self.stored, name)
        include_apis = stored.include_apis if bool(stored.include_apis) == apis else apis
        return replace(stored, enabled=enabled, include_apis=include_apis, retention=Retention(days))


def _rows(rules: Sequence[CorsRule]) -> list[dict[str, Any]]:
    return [
        {
            "origins": ", ".join(rule.origins), "methods": list(rule.methods), "max_age_seconds": rule.max_age_seconds,
            "allowed_headers": ", ".join(rule.allowed_headers), "exposed_headers": ", ".join(rule.exposed_headers),
        }
        for rule in rules
    ]  # fmt: skip
