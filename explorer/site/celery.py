"""Celery for the ready-made site, running on the broker itself (docs/design.md D2).

Two queues, each with a worker of its own: `sweeps` (short and frequent, two threads) and `analysis` (a Spark run takes minutes
and must hold up no sweep; one at a time). Neither pool forks, so a worker is one process of some 110 MB, and nothing is
lost between a parent and its children.
"""

import os
import warnings

from celery import Celery
from django.conf import settings

import broker_core.celery_transport  # noqa: F401  makes vitrine:// known

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")

# Celery says on ten lines that the worker runs as root; the README says it once, for all parts.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

app = Celery("vitrine")
app.set_default()  # in every thread: the web server's requests have threads of their own, and start analyses
app.config_from_object(settings, namespace="CELERY")
app.autodiscover_tasks(["broker_core", "explorer.analysis"])
