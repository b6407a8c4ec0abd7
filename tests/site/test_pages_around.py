"""What every answer carries, the pages for mistakes, and the state of the parts."""

import json
import tomllib
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test import RequestFactory
from django.utils import timezone

from broker_core.common.errors import BrokerUnavailable, StorageFull
from broker_core.models import SweepRun
from explorer.site import errors, health


def policy(answer) -> dict[str, str]:
    return dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";") if part.strip())


@pytest.mark.parametrize("path", ["/sign-in/", "/nowhere-at-all", "/admin/", "/healthz"])
def test_every_answer_has_the_strict_policy(client, db, path):
    assert policy(client.get(path)) == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }


def test_an_unknown_address_is_a_plain_404(client, db):
    answer = client.get("/no/such/page")
    assert answer.status_code == 404
    assert b"Page not found" in answer.content


def test_a_foreign_host_name_is_told_what_to_set(client, db):
    answer = client.get("/sign-in/", HTTP_HOST="evil.example")
    assert answer.status_code == 400
    assert b"Add evil.example to ALLOWED_HOSTS" in answer.content


@pytest.mark.parametrize(
    ("problem", "status", "says"),
    [
        (OperationalError("connection refused"), 503, "Database unavailable"),
        (BrokerUnavailable("gone"), 503, "Database unavailable"),
        (StorageFull("full"), 503, "Disk full"),
        (ValueError("secret detail"), 500, "Internal error"),
    ],
)
def test_a_failure_shows_no_stack_trace(client, monkeypatch, problem, status, says):
    def fails(*args, **kwargs):
        raise problem

    monkeypatch.setattr("explorer.site.health._java", fails)
    monkeypatch.setattr("explorer.site.health._database", dict)
    monkeypatch.setattr("explorer.site.health._sweeps", lambda now: {})
    client.raise_request_exception = False
    answer = client.get("/healthz")
    assert answer.status_code == status
    assert says in answer.content.decode()
    assert "Traceback" not in answer.content.decode()
    assert "secret detail" not in answer.content.decode()
    assert answer.has_header("Retry-After") == (status == 503)


def test_a_form_without_its_proof_is_refused_in_words(person):
    from django.test import Client

    answer = Client(enforce_csrf_checks=True).post("/sign-in/", {"username": "a", "password": "b"})
    assert answer.status_code == 403
    assert b"Form expired" in answer.content


def test_a_script_gets_only_the_notice():
    answer = errors.page(RequestFactory().get("/", headers={"HX-Request": "true"}), 503, "Heading", "What to do")
    assert b"What to do" in answer.content
    assert b"<html" not in answer.content


def test_health_names_each_part(client, db):
    now = timezone.now()
    SweepRun.objects.create(name="end_locks", started_at=now, finished_at=now)
    answer = client.get("/healthz")
    parts = json.loads(answer.content)["parts"]
    assert answer.status_code == 200
    assert {"web", "database", "worker", "beat", "java", "disk"} <= set(parts)
    assert parts["database"]["version"] == str(connection.pg_version // 10000) + "." + str(connection.pg_version % 10000)
    assert parts["worker"]["state"] == parts["beat"]["state"] == "ok"


@pytest.mark.parametrize(
    ("age", "state"), [(timedelta(seconds=30), "ok"), (timedelta(seconds=31), "late"), (None, "not seen yet")]
)
def test_a_part_is_late_after_its_time(age, state):
    now = timezone.now()
    assert health._state(None if age is None else now - age, now, timedelta(seconds=30))["state"] == state


def test_health_says_when_the_database_is_away(client, monkeypatch):
    def away():
        raise OperationalError("connection refused")

    monkeypatch.setattr(health, "_database", away)
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert json.loads(answer.content)["parts"]["database"]["state"] == "down"


def test_the_sidebar_names_the_version_of_the_project(client, person):
    client.force_login(person("viewer"))
    stated = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]["version"]
    assert f"Vitrine {stated}" in client.get("/").content.decode()
