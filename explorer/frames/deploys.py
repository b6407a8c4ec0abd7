"""The deploys of a namespace in the last minutes, which the head of each of its entities marks in its chart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.utils.timezone import now

from explorer.charts import changes
from explorer.charts.sparklines import SPARK_MINUTES

from .recent import CacheByKey

MOST = 3  # the newest ones
_recent: CacheByKey[Sequence[tuple[datetime, str]]] = CacheByKey()


def recent_deploys(namespace: str) -> Sequence[tuple[datetime, str]]:
    """When each was, and its name, oldest first. They are read once for all who look at the namespace."""

    def read() -> Sequence[tuple[datetime, str]]:
        end = now()
        marked = changes.deploys(namespace, end - timedelta(minutes=SPARK_MINUTES), end)
        return [(deploy.at, deploy.name) for deploy in marked[-MOST:]]

    return _recent.get(namespace, read)[0]
