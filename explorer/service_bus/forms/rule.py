"""Forms that create a rule of a subscription, and that test rules with a message."""

from __future__ import annotations

from typing import Any

from django import forms

from broker_core.common.errors import InvalidArgument, InvalidFilter
from broker_core.service_bus.rules.filters import (
    Action,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlFilter,
    TrueFilter,
    check_rule_name,
    compile_action,
    compile_filter,
)
from broker_core.service_bus.rules.filters.correlation import FIELDS
from broker_core.service_bus.rules.values import Message
from explorer.frames.presenters import property_name

from .properties import PropertyRows, rows_of

KINDS = (
    ("sql", "SQL filter"),
    ("correlation", "correlation filter"),
    ("true", "every message"),
    ("false", "no message"),
)
LABELS = {name: property_name(name) for name in FIELDS}
_PLAIN = {"autocomplete": "off"}
_CODE = {"rows": 2, "class": "mono", "spellcheck": "false", "autocomplete": "off"}


def _text(label: str) -> forms.CharField:
    return forms.CharField(required=False, strip=False, max_length=1024, label=label, widget=forms.TextInput(_PLAIN))


class RuleForm(forms.Form):
    """A rule, returned by `rule()`. current: the rule to change; it fills the form, and its name is fixed."""

    name = forms.CharField(
        max_length=50, label="Name", help_text="Any characters except / \\ @ ? #", widget=forms.TextInput(_PLAIN)
    )
    kind = forms.ChoiceField(choices=KINDS, initial="sql", label="Filter type", widget=forms.RadioSelect)
    sql = forms.CharField(
        required=False, strip=False, label="SQL filter",
        widget=forms.Textarea(_CODE | {"placeholder": "region = 'eu' AND total > 100"}),
        help_text="Application properties by name; system properties with sys., such as sys.Label = 'order.placed'.",
    )  # fmt: skip
    action = forms.CharField(
        required=False, strip=False, label="Action",
        widget=forms.Textarea(_CODE | {"placeholder": "SET priority = 'high'; REMOVE debug"}),
        help_text="Changes to the copy made by this rule. Empty: no changes; rules without an action share one copy.",
    )  # fmt: skip
    correlation_id, message_id, to = _text("Correlation ID"), _text("Message ID"), _text("To")
    reply_to, subject, session_id = _text("Reply to"), _text("Subject"), _text("Session ID")
    reply_to_session_id, content_type = _text("Reply to session id"), _text("Content type")

    def __init__(self, *args, current: Rule | None = None, **kwargs):
        super().__init__(*args, initial=_initial(current) if current else None, **kwargs)
        if current:
            self.fields["name"].disabled = True
            self.fields["name"].help_text = "The name cannot be changed. To rename a rule, add a new one and delete this one."
        data, filter = (self.data if self.is_bound else None), (current.filter if current else None)
        self.properties = PropertyRows(
            "property", "application property", data, rows_of(filter.properties) if isinstance(filter, CorrelationFilter) else ()
        )
        self.parameters = PropertyRows(
            "parameter", "parameter", data, rows_of(filter.parameters) if isinstance(filter, SqlFilter) else (), least=1
        )
        action = current.action if current else None
        self.action_parameters = PropertyRows("setting", "parameter", data, rows_of(action.parameters) if action else (), least=1)

    def correlated(self) -> list:
        return [self[name] for name in FIELDS]

    def clean_name(self) -> str:
        try:
            check_rule_name(self.cleaned_data["name"])
        except InvalidArgument as exc:
            raise forms.ValidationError(exc.problem) from exc
        return self.cleaned_data["name"]

    def clean(self):
        cleaned = super().clean()
        if not self.errors:
            cleaned["rule"] = Rule(cleaned["name"], self._filter(cleaned) or TrueFilter(), self._action(cleaned))
        return cleaned

    def rule(self) -> Rule:
        """Only after is_valid."""
        return self.cleaned_data["rule"]

    def _filter(self, cleaned: dict) -> Filter | None:
        match cleaned["kind"]:
            case "true":
                return TrueFilter()
            case "false":
                return FalseFilter()
            case "sql":
                parameters = self._values(self.parameters)
                return self._create("sql", lambda: compile_filter(cleaned["sql"], parameters))
        properties = self._values(self.properties)
        texts = {name: cleaned[name] for name in FIELDS if cleaned[name]}
        return self._create(None, lambda: CorrelationFilter(**texts, properties=properties))

    def _action(self, cleaned: dict) -> Action | None:
        if not cleaned["action"].strip():
            return None
        parameters = self._values(self.action_parameters)
        return self._create("action", lambda: compile_action(cleaned["action"], parameters))

    def _values(self, rows: PropertyRows) -> dict:
        values = rows.values()
        if rows.errors:
            self.add_error(None, f"Some {rows.noun} values are invalid; see below.")
        return values

    def _create(self, field: str | None, make):
        """The result of `make`. An InvalidArgument becomes an error of the field; None is returned then."""
        try:
            return make()
        except InvalidArgument as exc:
            self.add_error(field, exc.problem if isinstance(exc, InvalidFilter) else str(exc).replace("_", " "))
            return None


def _initial(rule: Rule) -> dict:
    common = {"name": rule.name, "action": rule.action.text if rule.action else ""}
    match rule.filter:
        case TrueFilter():
            return common | {"kind": "true"}
        case FalseFilter():
            return common | {"kind": "false"}
        case SqlFilter():
            return common | {"kind": "sql", "sql": rule.filter.text}
    return common | {"kind": "correlation", **rule.filter.texts}


class RuleTestForm(forms.Form):
    """A message to test rules with, returned by `message()`. It is not sent."""

    subject, correlation_id, message_id = _text("Subject"), _text("Correlation ID"), _text("Message ID")
    session_id, content_type, to, reply_to = _text("Session ID"), _text("Content type"), _text("To"), _text("Reply to")

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        data = self.data if self.is_bound else None
        self.properties = PropertyRows("property", "application property", data, self.initial.get("properties", []))

    def clean(self):
        cleaned = super().clean()
        cleaned["properties"] = self.properties.values()
        if self.properties.errors:
            self.add_error(None, "Some application properties are invalid; see below.")
        return cleaned

    def message(self) -> Message:
        """Only after is_valid."""
        texts: dict[str, Any] = {name: value or None for name, value in self.cleaned_data.items() if name != "properties"}
        return Message(**texts, properties=self.cleaned_data["properties"])
