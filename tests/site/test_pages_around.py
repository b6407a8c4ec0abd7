"""What every answer carries, and the pages for mistakes."""

import tomllib

import pytest
from django.conf import settings
from django.db import OperationalError
from django.test import RequestFactory
from django.urls import clear_url_caches, path

from broker_core.common.errors import BrokerUnavailable, StorageFull
from explorer.site import errors, urls


def policy(answer) -> dict[str, str]:
    return dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";") if part.strip())


@pytest.mark.parametrize("url", ["/sign-in/", "/nowhere-at-all", "/admin/"])
def test_every_response_has_the_strict_content_security_policy(client, db, url):
    assert policy(client.get(url)) == {
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


def test_an_unknown_host_name_is_refused_with_the_setting_to_change(client, db):
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
def test_a_server_error_shows_no_stack_trace(client, monkeypatch, problem, status, says):
    def fails(*args, **kwargs):
        raise problem

    monkeypatch.setattr(urls, "urlpatterns", [path("fails", fails), *urls.urlpatterns])
    clear_url_caches()
    client.raise_request_exception = False
    answer = client.get("/fails")
    clear_url_caches()
    assert answer.status_code == status
    assert says in answer.content.decode()
    assert "Traceback" not in answer.content.decode()
    assert "secret detail" not in answer.content.decode()
    assert answer.has_header("Retry-After") == (status == 503)


def test_a_form_without_a_csrf_token_is_refused_with_a_reason(person):
    from django.test import Client

    answer = Client(enforce_csrf_checks=True).post("/sign-in/", {"username": "a", "password": "b"})
    assert answer.status_code == 403
    assert b"Form expired" in answer.content


def test_an_htmx_request_gets_only_the_notice():
    answer = errors.page(RequestFactory().get("/", headers={"HX-Request": "true"}), 503, "Heading", "What to do")
    assert b"What to do" in answer.content
    assert b"<html" not in answer.content


def test_the_sidebar_names_the_version_of_the_project(client, person):
    client.force_login(person("viewer"))
    stated = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]["version"]
    assert f"Vitrine {stated}" in client.get("/").content.decode()
