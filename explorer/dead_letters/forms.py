"""Forms and queries of the workbench."""

from __future__ import annotations

from django import forms

from broker_core.operations.records import FASTEST, SLOWEST
from explorer.operations.forms import PACE_ERRORS


class GroupQuery(forms.Form):
    """m: the open message. tried: the one that was tried. op: the operation that was started or changed last. cursor: from
    another page."""

    m = forms.IntegerField(required=False, min_value=1, max_value=2**62)
    tried = forms.IntegerField(required=False, min_value=1, max_value=2**62)
    op = forms.IntegerField(required=False, min_value=1, max_value=2**62)
    cursor = forms.CharField(required=False, max_length=200)


class RepairForm(forms.Form):
    """What is changed in one message (body), or in all (patch, or find and replace)."""

    body = forms.CharField(required=False, strip=False, max_length=256 * 1024)
    original = forms.CharField(required=False, strip=False, max_length=256 * 1024)
    patch = forms.CharField(required=False, max_length=64 * 1024)
    find = forms.CharField(required=False, strip=False, max_length=16 * 1024)
    replace = forms.CharField(required=False, strip=False, max_length=16 * 1024)
    properties = forms.CharField(required=False, max_length=16 * 1024)


class PaceForm(forms.Form):
    """pace: messages per second; empty: as fast as possible. to: where messages are moved to."""

    pace = forms.FloatField(required=False, min_value=SLOWEST, max_value=FASTEST, error_messages=PACE_ERRORS)
    to = forms.CharField(required=False, max_length=330)
    up_to = forms.IntegerField(required=False, min_value=0, max_value=2**62)
