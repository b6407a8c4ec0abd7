"""Background tasks and their schedules: in words, run now, off and on, changed with Undo, refused to others."""

import datetime

import pytest
from celery import current_app
from django.apps import apps
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
from kombu.exceptions import OperationalError

from broker_core.models import SweepRun
from broker_core.sweeps.registry import SWEEPS
from explorer import schedules
from explorer.models import AuditRecord

from .test_administration import text_of
from .test_people import undo_of

pytestmark = pytest.mark.usefixtures("in_one_transaction")


@pytest.fixture
def task():
    """The task that expires messages, every 5 s."""
    schedules.create_missing(apps)
    return PeriodicTask.objects.get(task="broker_core.expire_messages")


@pytest.fixture
def url(task):
    return f"/administration/background-tasks/{task.pk}/"


@pytest.fixture
def admin(as_):
    return as_("administrator")


def crontab(**fields):
    return CrontabSchedule(**{"minute": "0", "hour": "2", "timezone": "UTC"} | fields)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [({"interval": IntervalSchedule(every=5, period="seconds")}, "every 5 s"),
     ({"interval": IntervalSchedule(every=1, period="days")}, "every day"),
     ({"interval": IntervalSchedule(every=90, period="minutes")}, "every 1 h 30 min"),
     ({"crontab": crontab()}, "every day at 02:00 UTC"),
     ({"crontab": crontab(day_of_week="1", minute="5", timezone="Europe/Berlin")}, "every Monday at 02:05 Europe/Berlin"),
     ({"crontab": crontab(day_of_month="1", hour="2")}, "at 02:00 AM, on day 1 of the month UTC")],
)  # fmt: skip
def test_a_schedule_in_words(schedule, words):
    assert schedules.sentence(PeriodicTask(**schedule)) == words


@pytest.mark.parametrize(
    ("schedule", "days"),
    [({"crontab": crontab()}, 1), ({"crontab": crontab(day_of_week="1")}, 7), ({"crontab": crontab(day_of_month="1")}, 366),
     ({"interval": IntervalSchedule(every=2, period="days")}, 2)],
)  # fmt: skip
def test_the_time_between_two_runs(schedule, days):
    assert schedules.period(PeriodicTask(**schedule)) == datetime.timedelta(days=days)


def test_each_task_has_a_noun_as_its_name():
    assert len({sweep.title for sweep in SWEEPS}) == len(SWEEPS)
    for schedule in schedules.SCHEDULES:
        assert schedule.name[0].isupper() and "_" not in schedule.name and "sweep" not in schedule.name.lower()


def test_a_task_shows_its_schedule_and_its_runs(admin, task, url):
    SweepRun.objects.create(name="expire_messages", started_at="2026-01-01T00:00Z", outcome={"expired": 3})
    page = text_of(admin.get(url))
    assert "<h1>Expired messages</h1>" in page and "Every 5 s" in page and "3 messages expired" in page
    assert f'href="{url}">Expired messages</a>' in text_of(admin.get("/administration/background-tasks/"))


def test_a_task_is_run_now(admin, task, url, monkeypatch):
    sent = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **options: sent.append((name, options["queue"])))
    page = admin.post(url, {"do": "run"}, follow=True)
    assert sent == [("broker_core.expire_messages", "sweeps")] and "Queued Expired messages." in text_of(page)
    assert AuditRecord.objects.get(action="run background task").target == "Expired messages"


def test_a_task_that_cannot_be_queued_says_so(admin, url, monkeypatch):
    def refuse(name, **options):
        raise OperationalError("no connection")

    monkeypatch.setattr(current_app, "send_task", refuse)
    page = admin.post(url, {"do": "run"})
    assert page.status_code == 503 and "The task could not be queued." in text_of(page)
    assert AuditRecord.objects.get(action="run background task").outcome == "refused"


def test_a_task_is_turned_off_and_on_again_by_undo(admin, task, url):
    page = admin.post(url, {"do": "off"}, follow=True)
    task.refresh_from_db()
    assert not task.enabled and "Expired messages is off." in text_of(page)
    page = admin.post(undo_of(page), follow=True)
    task.refresh_from_db()
    assert task.enabled and "Expired messages is on, every 5 s again." in text_of(page)
    assert 'class="undo"' not in page.content.decode() and AuditRecord.objects.filter(action="change schedule").count() == 2


@pytest.mark.parametrize(
    ("values", "words", "expiry"),
    [({"kind": "interval", "every": "20", "unit": "minutes"}, "every 20 min", 1200),
     ({"kind": "interval", "every": "1", "unit": "seconds"}, "every 1 s", 5),
     ({"kind": "daily", "day": "*", "at": "02:30"}, "every day at 02:30 UTC", 3600),
     ({"kind": "daily", "day": "0", "at": "23:05"}, "every Sunday at 23:05 UTC", 3600),
     ({"kind": "crontab", "crontab": " 5  4 * *  1 "}, "every Monday at 04:05 UTC", 3600)],
)  # fmt: skip
def test_a_schedule_is_changed_and_undone(admin, task, url, values, words, expiry):
    page = admin.post(url, {"do": "schedule"} | values, follow=True)
    task.refresh_from_db()
    assert (schedules.sentence(task), task.expire_seconds) == (words, expiry) and words in text_of(page)
    form = page.context["form"].initial
    assert form["kind"] == ("interval" if values["kind"] == "interval" else "daily")
    admin.post(undo_of(page))
    task.refresh_from_db()
    assert (schedules.sentence(task), task.expire_seconds) == ("every 5 s", 5)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"kind": "interval", "every": "0", "unit": "minutes"}, "greater than or equal to 1"),
     ({"kind": "interval", "every": ""}, "This field is required."), ({"kind": "daily", "at": "25:00"}, "Enter a valid time."),
     ({"kind": "daily", "at": ""}, "This field is required."), ({"kind": "crontab", "crontab": "* *"}, "Enter five fields"),
     ({"kind": "crontab", "crontab": "99 * * * *"}, "Enter five fields"), ({"kind": "solar"}, "Select a valid choice.")],
)  # fmt: skip
def test_a_bad_schedule_is_refused_at_its_field(admin, task, url, values, said):
    page = admin.post(url, {"do": "schedule"} | values)
    assert page.status_code == 400 and said in text_of(page) and '<details class="card-body" open>' in text_of(page)
    task.refresh_from_db()
    assert schedules.sentence(task) == "every 5 s"


def test_an_undo_of_a_schedule_that_was_deleted_is_refused(admin, url):
    assert admin.post(f"{url}?do=restore&interval=999999").status_code == 400


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_see_the_schedule_but_change_nothing(as_, task, url, role):
    client = as_(role)
    page = text_of(client.get(url))
    assert "Changing schedules requires the administrator role." in page and "Change the schedule" not in page
    assert page.count(' disabled aria-describedby="why-no-schedule"') == 2
    for change in ({"do": "off"}, {"do": "run"}, {"do": "schedule", "kind": "interval", "every": "9", "unit": "days"}):
        refused = client.post(url, change)
        assert refused.status_code == 403 and "You need the role administrator to change schedules." in text_of(refused)
    task.refresh_from_db()
    assert task.enabled and schedules.sentence(task) == "every 5 s"


def test_an_unknown_task_or_change_is_not_found(admin, url):
    assert admin.get("/administration/background-tasks/999999/").status_code == 404
    assert admin.post(url, {"do": "explode"}).status_code == 404
