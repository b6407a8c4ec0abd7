"""Forms that create and change policies, and that import definitions."""

from __future__ import annotations

from typing import Any

from django import forms
from django.forms import BoundField

from .keys import APPLY_TO, BY_POLICY, POLICY_KEYS, Key, Unit
from .table import rows_of
from .topology import EMPTY, ArgumentsMixin, ValueField

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class PolicyForm(ArgumentsMixin, forms.Form):
    """A policy. `values()` returns the arguments of the broker's Policy. Only after is_valid."""

    name = forms.CharField(max_length=255, strip=False, label="Name", widget=forms.TextInput(attrs=_PLAIN))
    pattern = forms.CharField(
        required=False, max_length=1024, strip=False, label="Pattern",
        widget=forms.TextInput(attrs=_PLAIN | {"class": "mono"}),
        help_text="A regular expression, found anywhere in a name. ^orders\\. matches names that start with orders. Empty: all.",
    )  # fmt: skip
    apply_to = forms.ChoiceField(label="Applies to", choices=list(APPLY_TO.items()), initial="queues")
    priority = forms.CharField(
        required=False, max_length=40, label="Priority", initial="0",
        widget=forms.TextInput(attrs=_PLAIN | {"inputmode": "numeric"}),
        help_text="Only the matching policy with the highest priority applies.",
    )  # fmt: skip

    def __init__(self, *args, is_operator: bool = False, fixed_name: str = "", **kwargs):
        super().__init__(*args, **kwargs)
        self.is_operator, self.fixed_name = is_operator, fixed_name
        self.policy_keys = [key for key in POLICY_KEYS if key.operator or not is_operator]
        for key in self.policy_keys:
            self.fields[key.name] = ValueField(key)
        if fixed_name:
            self.fields["name"].disabled = True
            self.fields["name"].help_text = "To rename a policy, create a new one and delete this one."
        known = self.initial.get("definition", {})
        self.set_up_arguments(rows_of({name: value for name, value in known.items() if self._key(name) is None}))

    @property
    def title(self) -> str:
        return self.fixed_name or ("new operator policy" if self.is_operator else "new policy")

    def groups(self) -> list[tuple[str, list[BoundField]]]:
        """The keys in the groups of the page: titles with their fields."""
        groups = (
            ("Expiry", ("message_ttl", "expires", "dead_letter_exchange", "dead_letter_routing_key", "dead_letter_strategy")),
            ("Limits", ("max_length", "max_length_bytes", "overflow")),
            ("Delivery", ("delivery_limit", "consumer_timeout", "queue_mode")),
            ("Exchanges", ("alternate_exchange",)),
        )
        bound_groups = [(title, [self[name] for name in names if name in self.fields]) for title, names in groups]
        return [group for group in bound_groups if group[1]]

    def clean(self):
        cleaned = super().clean()
        named = {key.policy: cleaned.get(key.name) for key in self.policy_keys}
        definition = {name: value for name, value in named.items() if value is not None}
        others = self.others.values()
        if definition.keys() & others.keys():
            self.others.errors.append(f"Given twice: {', '.join(sorted(definition.keys() & others.keys()))}.")
        if self.others.errors:
            self.add_error(None, "Some keys are invalid; see below.")
        cleaned["definition"] = definition | others
        return cleaned

    def values(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        return {
            "name": self.fixed_name or cleaned["name"],
            "pattern": cleaned["pattern"],
            "apply_to": cleaned["apply_to"],
            "priority": _number(cleaned["priority"]),
            "definition": cleaned["definition"],
            "is_operator": self.is_operator,
        }

    def _key(self, name: str) -> Key | None:
        return next((key for key in self.policy_keys if key.policy == name), None)


def initial_of(policy: Any) -> dict[str, Any]:
    """A stored policy as the form's initial values."""
    named = {
        BY_POLICY[name].name: _as_typed(BY_POLICY[name], value) for name, value in policy.definition.items() if name in BY_POLICY
    }
    attributes = {"name": policy.name, "pattern": policy.pattern, "apply_to": policy.apply_to, "priority": f"{policy.priority:g}"}
    return attributes | named | {"definition": dict(policy.definition)}


def _as_typed(key: Key, value: Any) -> Any:
    if value == "":
        return EMPTY
    return str(value).lower() if key.unit is Unit.FLAG else value


def _number(text: str) -> int | float | str:
    """A priority; an invalid text is returned as it is, for the broker to refuse."""
    text = text.strip() or "0"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class ImportForm(forms.Form):
    """A definitions document, as a file or pasted."""

    file = forms.FileField(
        required=False, allow_empty_file=True, label="Definitions file", help_text="JSON, as exported by RabbitMQ."
    )
    text = forms.CharField(
        required=False, strip=False, label="or paste JSON",
        widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false"}),
    )  # fmt: skip

    whole = forms.BooleanField(
        required=False, label="Whole server: import into all virtual hosts named in the file; missing ones are created"
    )

    LARGEST = 20 * 1024 * 1024

    def clean(self):
        cleaned = super().clean()
        upload, text = cleaned.get("file"), (cleaned.get("text") or "").strip()
        if bool(upload) == bool(text):
            self.add_error("file", "Choose a file or paste JSON, not both.")
        elif upload and upload.size > self.LARGEST:
            self.add_error("file", f"The file is larger than {self.LARGEST // 2**20} MB.")
        return cleaned

    def document(self) -> str | bytes:
        upload = self.cleaned_data.get("file")
        return upload.read() if upload else self.cleaned_data["text"]
