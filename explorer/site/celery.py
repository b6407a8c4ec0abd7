"""Celery for the ready-made site, running on the broker itself (docs/design.md D2).

Two workers: one for the queues `sweeps` (short and frequent tasks) and `operations` (slices of ten seconds), with four threads,
and one for `analysis` (one at a time; a Spark run takes minutes and must not delay the sweeps). Neither pool forks, so each
worker is one process of about 110 MB.
"""

import os
import warnings

from celery import Celery
from django.conf import settings

import broker_core.celery_transport  # noqa: F401  makes vitrine:// known

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")

# Celery's warning about running as root has ten lines; the README covers it for all parts.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

app = Celery("vitrine")
app.set_default()  # for all threads: web requests run in their own threads and start analyses
app.config_from_object(settings, namespace="CELERY")
app.autodiscover_tasks(["broker_core", "explorer.analysis", "explorer.lessons", "explorer.operations"])
