"""GET /healthz: the state of each part, for people, load balancers and compose."""

import shutil
from datetime import datetime, timedelta

from django.conf import settings
from django.db import Error, connection
from django.db.models import Max
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_celery_beat.models import PeriodicTask

from broker_core.models import SweepRun
from explorer.analysis.running import java

WORKER_LATE = timedelta(seconds=30)  # the most frequent sweeps run every few seconds
BEAT_LATE = timedelta(minutes=10)  # beat stores its times every few minutes
LITTLE_DISK = 500 * 1024 * 1024  # bytes


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 with each part's state; 503 if the database is unavailable. Public, so it contains no paths and no secrets."""
    try:
        database = {"database": _database(), **_sweeps(timezone.now())}
        status = 200
    except Error:
        database = {"database": {"state": "down"}, "worker": {"state": "unknown"}, "beat": {"state": "unknown"}}
        status = 503
    parts = {"web": {"state": "ok"}, **database, "java": _java(), "disk": _disk()}
    return JsonResponse({"state": "ok" if status == 200 else "down", "parts": parts}, status=status)


def _database() -> dict:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version')")
        [version] = cursor.fetchone()
    return {"state": "ok", "version": version.split()[0]}


def _sweeps(now: datetime) -> dict:
    """The worker's state from the newest sweep; that of beat also from it, or from beat's own last run."""
    newest = SweepRun.objects.order_by("-pk").values_list("started_at", flat=True).first()
    last_sent = PeriodicTask.objects.aggregate(at=Max("last_run_at"))["at"]
    worker = _state(newest, now, WORKER_LATE)
    beat = worker if worker["state"] == "ok" else _state(last_sent, now, BEAT_LATE)
    return {"worker": worker, "beat": {**beat, "last_at": last_sent}}


def _state(last_at: datetime | None, now: datetime, late_after: timedelta) -> dict:
    if last_at is None:
        return {"state": "not seen yet", "last_at": None}
    return {"state": "ok" if now - last_at <= late_after else "late", "last_at": last_at}


def _java() -> dict:
    try:
        return {"state": "ok", "version": java.version(java.locate())}
    except java.JavaNotFound:
        return {"state": "not found", "effect": "analyses cannot run; everything else works"}


def _disk() -> dict:
    free = shutil.disk_usage(settings.VITRINE_DATA if settings.VITRINE_DATA.exists() else settings.BASE_DIR).free
    return {"state": "ok" if free > LITTLE_DISK else "nearly full", "free_bytes": free}
