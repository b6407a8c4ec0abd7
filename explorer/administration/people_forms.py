"""The forms of people: Django's own, with the words of the explorer, and the choice of a role."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import forms as auth
from django.contrib.auth import get_user_model, password_validation

from explorer.people.roles import ALLOWS, VIEWER

_ROLES = [(role, f"{role.capitalize()}: {allows}") for role, allows in ALLOWS.items()]
_SIGN_IN = {"false": "By a link, which you send them", "true": "By name and password"}


def _role(**options: Any) -> forms.ChoiceField:
    return forms.ChoiceField(choices=_ROLES, widget=forms.RadioSelect, label="Role", **options)


class NewPersonForm(auth.AdminUserCreationForm):
    """A new user: name, role, and a password or none."""

    role = _role(initial=VIEWER)

    class Meta(auth.AdminUserCreationForm.Meta):
        model = get_user_model()

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        name, chosen = self.fields["username"], self.fields["usable_password"]
        name.label, name.help_text = "Name", "To sign in with. Letters, digits and @ . + - _ only."
        name.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
        chosen.label, chosen.help_text, chosen.initial = "Signs in", "", "false"
        chosen.choices, chosen.widget.attrs = _SIGN_IN.items(), {}
        _describe(self, "password1", "password2")

    field_order = ["username", "role", "usable_password", "password1", "password2"]


class PasswordForm(auth.SetPasswordForm):
    """A new password for a user."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _describe(self, "new_password1", "new_password2")


class RoleForm(forms.Form):
    """The role of a user, and of a viewer whether they see message bodies."""

    role = _role()
    see_bodies = forms.BooleanField(required=False, label="This viewer may also see message bodies")


def _describe(form: forms.BaseForm, first: str, second: str) -> None:
    form.fields[first].help_text = " ".join(password_validation.password_validators_help_texts())
    form.fields[second].label, form.fields[second].help_text = "Repeat the password", ""
