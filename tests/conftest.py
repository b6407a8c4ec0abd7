"""Fixtures for every test: a real PostgreSQL, a real server in a thread, a real browser."""

import logging
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import browser
from .eventually import eventually
from .wire.certificates import certificate, with_tls  # noqa: F401 - fixtures
from .wire.listening import listener, listener_process  # noqa: F401 - fixtures

os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # Playwright leaves a running loop in the main thread
logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request buries what a failed test says

BROWSER_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker) -> Iterator[None]:
    """The test database, with constraints on messages. The broker's own connections to it end before it is dropped; a session
    that a test left open is named in a warning, and ended."""
    from django.db import connection

    from broker_core.store import connections

    from .table_cleanup import end_other_sessions

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(Path(__file__).with_name("message_constraints.sql").read_text())
    yield
    connections.close_all()
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for session in end_other_sessions(cursor, connection.settings_dict["NAME"]):
            warnings.warn(f"A test left a session of the database open. {session}", stacklevel=1)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings) -> None:
    """The tests' server does not wait for the disk. What kills a server starts one of its own."""
    from django.conf import settings

    from explorer.site.embedded_postgres import server

    if "data" in (options := settings.DATABASES["default"].get("OPTIONS", {})):
        with server.connect(Path(server.ensure_running(Path(options["data"])))) as connection:
            for name in ("fsync", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {name} = off")
            connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session", autouse=True)
def _tables_are_emptied_quickly() -> Iterator[None]:
    from django.test import TransactionTestCase

    from .table_cleanup import empty_tables

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: empty_tables(*case._databases_names(False)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _static_files_are_listed_once() -> Iterator[None]:
    """Each test client has a middleware of its own, which would take a tenth of a second for it."""
    from servestatic.middleware import ServeStaticMiddleware

    listed: dict[str, Any] = {}

    def add_files(middleware) -> None:
        if not listed:
            add_by_finders(middleware)
            listed.update(files=middleware.files, directories=middleware.directories)
        vars(middleware).update(listed)

    add_by_finders = ServeStaticMiddleware.add_files_from_finders
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServeStaticMiddleware, "add_files_from_finders", add_files)
        yield


@pytest.fixture
def in_one_transaction(db) -> Iterator[None]:
    """All of a test, what the broker does too, in one transaction that is rolled back: many times faster than emptying tables."""
    from broker_core.store.connections import callers_transaction

    with callers_transaction():
        yield


@pytest.fixture(scope="module")
def _server(django_db_setup) -> Iterator[str]:
    """The whole site by uvicorn in a thread of this process, on the same test database, anew for each module. Its address."""
    import uvicorn

    from broker_core.wire.bounded_http import BoundedHttp
    from explorer.site.asgi import application

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, http=BoundedHttp, lifespan="on", log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    eventually(lambda: server.started, 10)
    yield "http://{}:{}".format(*listening.getsockname())
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def live_site(_server: str, transactional_db) -> str:
    """The address of a served site on the test database; what a test commits, it shows. The tables are emptied after the test."""
    return _server


@pytest.fixture(scope="module")
def chromium():
    """A headless browser for the tests of one module: its event loop must end with it, or later asynchronous tests fail."""
    from playwright.sync_api import expect, sync_playwright

    path = browser.find()
    if path is None:
        pytest.skip(browser.MISSING)
    expect.set_options(timeout=20_000)  # on a loaded machine
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def new_context(chromium, transactional_db):
    """A function that opens a browser context (`new_context(color_scheme="dark")`), closed after the test, and before the tables
    are emptied: a page that is open then asks for what is going.

    Any console error, uncaught exception or violation of the content security policy in it fails the test; one that a test
    expects is taken out of `context.complaints` (a list of texts).
    """
    contexts = []

    def open_context(**options):
        context = chromium.new_context(**options)
        context.complaints = []
        context.on("console", lambda message: message.type == "error" and context.complaints.append(message.text))
        context.on("weberror", lambda error: context.complaints.append(str(error.error)))
        contexts.append(context)
        return context

    yield open_context
    complaints = [text for context in contexts for text in context.complaints]
    for context in contexts:
        context.close()
    assert not complaints, "the browser complained"


@pytest.fixture
def browser_page(new_context):
    """An empty page in a context of its own, not signed in."""
    return new_context().new_page()


@pytest.fixture
def sign_in(live_site: str, client):
    """A function that signs a user in: `sign_in(context, user)` puts the session's cookie into a browser context."""
    from django.conf import settings

    def put(context, user) -> None:
        client.cookies.clear()  # signing in another user would end the session of the one before
        client.force_login(user)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME]
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_site}])

    return put


@pytest.fixture
def person(db):
    """A function that makes a user with a role: `person("operator")`, `person("viewer", username="vera")`."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group

    def make(role: str | None = "administrator", username: str | None = None):
        user = get_user_model().objects.create_user(username or role or "nobody", is_staff=role == "administrator")
        if role:
            user.groups.add(Group.objects.get_or_create(name=role)[0])
        return user

    return make
