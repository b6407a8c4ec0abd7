"""The limits that apply on this site: strict or relaxed, by the setting VITRINE_LIMITS."""

from __future__ import annotations

import os

from django.conf import ENVIRONMENT_VARIABLE
from django.conf import settings as django_settings

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Tier
from broker_core.namespaces import Namespace

from .rules.limits import RELAXED, STRICT, Limits, of_tier


def limits(tier: Tier | None = None) -> Limits:
    """The service's limits, or wider ones if the Django setting VITRINE_LIMITS is "relaxed".

    tier: narrows them to this tier; None: the widest of all tiers.
    Outside Django (a Celery project that gives its database as a DSN) there are no settings, so the service's limits apply.
    """
    in_django = django_settings.configured or bool(os.environ.get(ENVIRONMENT_VARIABLE))
    configured = RELAXED if in_django and getattr(django_settings, "VITRINE_LIMITS", "strict") == "relaxed" else STRICT
    if tier is None:
        return configured
    if tier not in list(Tier):
        raise InvalidArgument("tier", f"{tier!r} must be one of {', '.join(Tier)}")
    return of_tier(configured, tier)


def limits_of(namespace: Namespace) -> Limits:
    """The limits for the entities of a namespace. The system namespace has the widest."""
    return limits(None if namespace.is_system else namespace.tier)
