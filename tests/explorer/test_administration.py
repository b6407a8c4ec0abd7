"""Administration: its tabs, what the sentence of the overview says, background tasks and storage."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.apps import apps
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from broker_core.listener import status
from broker_core.listener.front_ends import known_ports
from broker_core.listener.status import Listening, OpenPort, RunningListener
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveSlice, SweepRun
from broker_core.runtime import room
from explorer import schedules
from explorer.administration import overview
from explorer.administration.tabs import TABS

pytestmark = pytest.mark.usefixtures("in_one_transaction")


def text_of(response):
    return " ".join(response.content.decode().replace("\u00a0", " ").split()).replace(" >", ">")


@pytest.fixture
def tasks():
    """All background tasks with their schedules, on time: each ran a moment ago."""
    SweepRun.objects.all().delete()
    schedules.create_missing(apps)  # a test before may have emptied the tables
    for task in PeriodicTask.objects.all():
        ran(task.task.rpartition(".")[2])


def ran(name, outcome=None, error=""):
    SweepRun.objects.create(name=name, started_at=timezone.now(), finished_at=timezone.now(), outcome=outcome or {}, error=error)


@pytest.fixture
def archived():
    """A finished slice of the archive."""
    now = timezone.now()
    epoch = ArchiveEpoch.objects.create(system_identifier=1, from_xid=1, began_at=now)
    facts = {"from_xid": 1, "to_xid": 2, "state": ArchiveSlice.DONE, "opened_at": now, "done_at": now, "events": 5}
    ArchiveSlice.objects.create(epoch=epoch, **facts)


@pytest.fixture(autouse=True)
def listening(monkeypatch):
    """A listener, and a function that replaces it by others: listening([]) by none."""

    def replace_by(found):
        monkeypatch.setattr(status, "listeners", lambda **_: found)

    replace_by([RunningListener("one", timezone.now(), Listening([OpenPort("Queue Storage", 10001)]))])
    return replace_by


# Overview


@pytest.mark.parametrize("tab", TABS, ids=lambda tab: tab.name)
def test_each_tab_marks_itself_and_the_place(as_, tab):
    html = text_of(as_("viewer").get(tab.url))
    assert f'<a href="{tab.url}" aria-current="page">{tab.title}</a>' in html
    current = "page" if tab.name == "overview" else "true"
    assert f'href="{reverse("explorer:administration")}" title="Administration" data-keys="g a" aria-current="{current}"' in html


def test_all_is_well_in_one_sentence(tasks, archived, as_):
    html = text_of(as_("viewer").get("/administration/"))
    assert "All background tasks are on time. The database uses " in html and "the archive is up to date." in html
    assert 'class="notice warning"' not in html


def test_the_ports_for_network_clients_are_listed_once_with_what_was_refused(tasks, listening, as_):
    assert "were refused" not in text_of(as_("viewer").get("/administration/"))
    ports = [OpenPort("Queue Storage", 10001), OpenPort("AMQP over TLS", 5671)]
    refused = {"too many connections": 1_000, "output not read in time": 1}
    since = timezone.now() - timedelta(hours=3)
    listening([RunningListener(name, since, Listening(ports, (), refused)) for name in ("one", "two")])
    html = text_of(as_("viewer").get("/administration/"))
    assert "served for" in html and "by 2 processes" in html
    assert html.count('<td class="num">10001</td> <td>Queue Storage</td>') == 1
    assert html.count('<td class="num">5671</td> <td>AMQP over TLS</td>') == 1
    assert "2,000 connections were refused or ended: too many connections." in html
    assert "2 connections were refused or ended: output not read in time." in html
    assert 'class="notice warning"' not in html


def test_a_listener_that_is_not_running_and_ports_that_are_not_open_are_problems(tasks, archived, listening, as_, settings):
    listening([RunningListener("one", timezone.now(), Listening([], ["Port 5672 (AMQP) is in use by another program."]))])
    html = text_of(as_("viewer").get("/administration/"))
    assert "<strong>Not all ports for network clients are open.</strong> Port 5672 (AMQP) is in use by another program." in html
    listening([])
    html = text_of(as_("viewer").get("/administration/"))
    assert "Network clients cannot connect: the listener is not running." in html and "manage.py listen" in html
    for port in known_ports():
        setattr(settings, port.setting, 0)
    assert 'class="notice warning"' not in text_of(as_("viewer").get("/administration/"))


def test_a_late_task_is_named_with_its_reason(tasks, archived, as_):
    ran("archive_events", error="OSError: disk full")
    PeriodicTask.objects.filter(task="broker_core.end_locks").update(enabled=False)
    html = text_of(as_("viewer").get("/administration/"))
    assert "1 background task is late. 1 is off." in html and "the archive is behind." in html
    assert "Archive of the history: last run failed." in html and "OSError: disk full" in html


def test_without_an_archive_the_sentence_says_so(tasks, as_):
    ArchiveSlice.objects.all().delete()
    assert "nothing has been archived yet." in text_of(as_("viewer").get("/administration/"))
    PeriodicTask.objects.filter(task="broker_core.archive_events").update(enabled=False)
    assert "the history is not archived." in text_of(as_("viewer").get("/administration/"))


def test_refusals_of_a_task_are_shown(tasks, as_):
    ran("forward_messages", {"forwarded": 0, "refused": 2, "reasons": ["shop/orders: in use"]})
    client = as_("viewer")
    assert "Forwarded messages: something was refused." in text_of(client.get("/administration/"))
    html = text_of(client.get("/administration/background-tasks/"))
    assert html.count("2 refusals (shop/orders: in use)") == 2, "with the task, and in the latest runs"


def test_a_transaction_that_has_been_open_for_long_is_a_problem(tasks, archived, as_):
    client = as_("viewer")
    state = overview._state(client.get("/administration/").wsgi_request)
    assert overview.problems(state, None) == []
    held = replace(state.health, oldest_snapshot_age=timedelta(minutes=25), oldest_snapshot_by="psql, root")
    [problem] = overview.problems(replace(state, health=held), None)
    assert problem.what == "A database transaction has been open for 25 min" and "psql, root" in problem.why


def test_a_full_disk_is_a_problem_and_is_shown_in_storage(as_, settings, tmp_path, monkeypatch):
    settings.VITRINE_DISK_FOLDER, settings.VITRINE_DISK_RESERVE_MB = tmp_path, 100
    client = as_("viewer")
    assert "nearly full" not in text_of(client.get("/administration/"))
    assert "sends are refused below 100 MB" in text_of(client.get("/administration/storage/"))
    monkeypatch.setattr(room, "disk", lambda: room.Disk(60 * 2**20, 100 * 2**20))
    for page in ("/administration/", "/administration/storage/"):
        assert "nearly full: sends are refused." in text_of(client.get(page))
    monkeypatch.undo()
    settings.VITRINE_DISK_FOLDER = None
    assert "Free on disk" not in text_of(client.get("/administration/storage/")), "a server elsewhere"


# Background tasks and storage


def test_the_latest_runs_are_those_that_found_something_to_do(tasks, as_):
    ran("expire_messages", {"expired": 2})
    ran("expire_messages", {"expired": 0})
    recent = as_("viewer").get("/administration/background-tasks/").context["recent"]
    assert [(name, did) for _, name, did in recent] == [("Expired messages", "2 messages expired")]


def test_storage_lists_namespaces_and_their_largest_entities(shop, as_, archived):
    client = as_("viewer")
    page = client.get("/administration/storage/")
    line = next(line for line in page.context["lines"] if line.size.name == shop.namespace)
    assert line.size.bytes > 0 and line.size.entities == 1 and line.archived == 0
    assert [row.bytes for row in page.context["largest"] if row.address == shop] == [line.size.bytes]
    facts = {"day": "2026-01-01", "path": "x", "rows": 1, "bytes": 3_000, "content": ArchiveFile.EVENTS}
    ArchiveFile.objects.create(namespace_id=line.size.id, **facts)
    html = text_of(client.get("/administration/storage/"))
    assert '<td class="num" data-label="archive">2.9 KB</td>' in html and "5" in html
