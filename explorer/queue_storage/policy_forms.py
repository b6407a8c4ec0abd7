"""The rows of a form with the stored access policies of a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.http import QueryDict

from broker_core.queue_storage.forms import PLAIN, QueueOptionsForm
from broker_core.queue_storage.rules.options import LONGEST_POLICY_ID, MOST_POLICIES
from broker_core.queue_storage.rules.sas import LETTERS, QUEUE_LETTERS, AccessPolicy, read_instant
from explorer.frames.forms.row_sets import RowSet, row_set

_ROWS = "policies"


class InstantField(forms.CharField):
    """A time in UTC as the service has it: ISO 8601, kept as it was typed."""

    def __init__(self, **kwargs: Any):
        widget = forms.TextInput({**PLAIN, "placeholder": "2030-01-31T12:00:00Z"})
        super().__init__(required=False, max_length=40, widget=widget, **kwargs)

    def clean(self, value: Any) -> str:
        text = super().clean(value)
        if text and read_instant(text) is None:
            raise forms.ValidationError("Enter a time in UTC such as 2030-01-31T12:00:00Z, or a date such as 2030-01-31.")
        return text


class AccessPolicyForm(forms.Form):
    """A policy. A row in which nothing is typed is none."""

    id = forms.CharField(required=False, max_length=LONGEST_POLICY_ID, strip=False, label="Id", widget=forms.TextInput(PLAIN))
    start = InstantField(label="Valid from")
    expiry = InstantField(label="Expires at")
    permission = forms.MultipleChoiceField(
        required=False, label="Permissions", choices=[(letter, LETTERS[letter]) for letter in QUEUE_LETTERS],
        widget=forms.CheckboxSelectMultiple(),
    )  # fmt: skip

    def clean_id(self) -> str:
        text = self.cleaned_data["id"]
        return text if text == self.initial.get("id") else text.strip()

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if not values.get("id") and any(values.get(name) for name in ("start", "expiry", "permission")):
            self.add_error("id", "Enter an id, by which signatures refer to the policy.")
        return values

    @property
    def policy(self) -> AccessPolicy | None:
        """The policy of a valid row; None: there is none. Permissions that stay the same stay in their order."""
        values = self.cleaned_data
        if not values.get("id") or values.get("DELETE"):
            return None
        stored, chosen = "".join(self.initial.get("permission", ())), "".join(values["permission"])
        permission = stored if set(stored) == set(chosen) else chosen
        return AccessPolicy(values["id"], values["start"] or None, values["expiry"] or None, permission or None)


class _Policies(RowSet):
    """The policies of a queue."""

    def clean(self) -> None:
        """Report an id that is given twice at the second one."""
        known: set[str] = set()
        for form in self.forms:
            policy = form.policy if form.is_valid() else None
            if policy and policy.id in known:
                form.add_error("id", "Another policy of this queue has this id.")
            known |= {policy.id} if policy else set()

    def values(self) -> tuple[AccessPolicy, ...]:
        """The policies; call it only after is_valid()."""
        return tuple(policy for form in self.forms if (policy := form.policy))


AccessPolicies = row_set(AccessPolicyForm, _Policies, MOST_POLICIES)


class QueueSettingsForm(QueueOptionsForm):
    """The options of a queue that exists, with its access policies. A post without rows of policies keeps them."""

    def __init__(self, data: QueryDict | None, *, initial: Mapping[str, Any]):
        super().__init__(data, initial=initial)
        rows = [_as_row(policy) for policy in initial["access_policies"]]
        has_rows = data is not None and f"{_ROWS}-TOTAL_FORMS" in data
        self.policies = AccessPolicies(data if has_rows else None, initial=rows, prefix=_ROWS)

    def clean(self) -> dict[str, Any] | None:
        if self.policies.is_bound and not self.policies.is_valid():
            self.add_error(None, "An access policy is invalid.")
        return super().clean()

    def options(self) -> dict[str, Any]:
        policies = {"access_policies": self.policies.values()} if self.policies.is_bound else {}
        return super().options() | policies


def _as_row(policy: AccessPolicy) -> dict[str, Any]:
    return {"id": policy.id, "start": policy.start, "expiry": policy.expiry, "permission": list(policy.permission or "")}


def in_words(policies: Sequence[AccessPolicy]) -> dict[str, str]:
    """Policies as settings of a revision, by name."""
    return {f"Access policy {policy.id}": policy.words for policy in policies}
