"""Which of the limits' two values holds here: the service's, or the wider one that a site may choose."""

from __future__ import annotations

import os

from django.conf import ENVIRONMENT_VARIABLE
from django.conf import settings as django_settings

from broker_core.common.errors import InvalidArgument
from broker_core.common.limits import RELAXED, STRICT, Limits, of_tier
from broker_core.common.types import Tier


def limits(tier: Tier | None = None) -> Limits:
    """The ranges in force: those of the service, or wider ones where the Django setting VITRINE_LIMITS is "relaxed".

    tier: as narrow as it makes them; None: as wide as any has them.
    Outside Django (a Celery project that names its database by a DSN) there are no settings: those of the service.
    """
    in_django = django_settings.configured or bool(os.environ.get(ENVIRONMENT_VARIABLE))
    found = RELAXED if in_django and getattr(django_settings, "VITRINE_LIMITS", "strict") == "relaxed" else STRICT
    if tier is None:
        return found
    if tier not in list(Tier):
        raise InvalidArgument("tier", f"{tier!r} must be one of {', '.join(Tier)}")
    return of_tier(found, tier)
