"""The lesson "Your own load": senders and receivers that a person sets, changes while they run, stops, saves and starts again."""

import re
import threading
from datetime import timedelta
from random import Random

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from playwright.sync_api import expect

from broker_core import namespaces, rabbitmq, reads
from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq.messages import browsing
from broker_core.service_bus import entities
from broker_core.store import connections
from explorer.lessons import catalog, load, sandboxes, saved_scenarios
from explorer.lessons.load import programs, running
from explorer.lessons.load.programs import IDLE, MOST_AT_ONCE, Programs, Words
from explorer.lessons.load.settings import LIMITS, LoadSettings
from explorer.models import Load, Sandbox, Scenario
from tests.eventually import eventually
from tests.html import body_of

from .conftest import FRAGMENT
from .test_accessibility import DESK, PHONE, problems
from .test_lessons import start

SLUG = "your-own-load"
SLUGS = [lesson.slug for lesson in catalog.lessons() if lesson.load]
QUEUE = EntityAddress("sandbox", "work")
BUSY = {"senders": "2", "rate": "50", "receivers": "4", "work": "0", "failures": "0", "prefetch": "5"}


@pytest.fixture
def vera(as_):
    return as_("viewer")


@pytest.fixture(autouse=True)
def handed_over(monkeypatch):
    """The ids of the loads that were handed to a worker; the tests run them themselves."""
    ids = []
    monkeypatch.setattr(running, "request_slice", ids.append)
    return ids


# Settings


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("senders", "0", "between 1 and 10"),
        ("senders", "11", "between 1 and 10"),
        ("senders", "1.5", "without a fraction"),
        ("rate", "-1", "between 0 and 50"),
        ("rate", "50.1", "between 0 and 50"),
        ("rate", "nan", "between 0 and 50"),
        ("rate", "inf", "between 0 and 50"),
        ("rate", "", "between 0 and 50"),
        ("rate", "many", "between 0 and 50"),
        ("rate", True, "between 0 and 50"),
        ("receivers", "11", "between 0 and 10"),
        ("work", "10.5", "between 0 and 10 s"),
        ("failures", "101", "between 0 and 100 %"),
        ("prefetch", "0", "between 1 and 50"),
        ("prefetch", "51", "between 1 and 50"),
    ],
)
def test_a_setting_outside_its_limits_is_refused_by_name(name, value, problem):
    with pytest.raises(InvalidArgument) as refused:
        LoadSettings.read({name: value})
    assert refused.value.name == name and problem in refused.value.problem


@pytest.mark.parametrize("name", LIMITS)
def test_a_setting_may_be_its_least_and_its_most(name):
    for value in (LIMITS[name].least, LIMITS[name].most):
        assert getattr(LoadSettings.read({name: str(value)}), name) == value


@pytest.mark.parametrize(
    ("settings", "forecast"),
    [
        (LoadSettings(receivers=0), "No receivers"),
        (LoadSettings(work=0), "no message should wait"),
        (LoadSettings(rate=20, receivers=2, work=0.2), "can process 10 a second, but 20 arrive: the queue grows"),
        (LoadSettings(rate=10, receivers=2, work=0.2), "and 10 arrive: the queue stays short"),
    ],
)
def test_the_forecast_compares_the_rate_with_what_the_receivers_can_do(settings, forecast):
    assert forecast in settings.forecast


def test_a_prefetch_that_outlasts_the_lock_is_warned_of():
    lock, warning = timedelta(seconds=5), "a lock lasts {}"
    assert LoadSettings(prefetch=5, work=1).holds_too_long(lock, warning) == ""
    assert LoadSettings(prefetch=6, work=1).holds_too_long(lock, warning).endswith("prefetches; a lock lasts 5 s.")
    assert LoadSettings(prefetch=50, work=10).holds_too_long(None, warning) == ""


# Programs, in a world where time is a number


class Counting:
    """A queue in memory, whose locks never end except those in `lost`."""

    words = Words("failed", "lost", "dead", "a lock lasts {}")
    is_portable, fills_up, has_dead_letters = True, False, True

    def __init__(self):
        self.waiting, self.sizes, self.locked, self.done, self.failed, self.released, self.lost = 0, [], 0, [], [], [], set()

    def send(self, queue, bodies, actor):
        self.waiting += len(bodies)
        self.sizes.append(len(bodies))

    def receive(self, queue, count, actor):
        got = min(count, self.waiting)
        self.waiting -= got
        self.locked += got
        return [f"{actor.name}-{self.locked - i}" for i in range(got)]

    def complete(self, queue, token, actor):
        self.done.append(token)
        return token not in self.lost

    def fail(self, queue, token, actor):
        self.failed.append(token)
        return True

    def leave(self, queue, tokens, actor):
        self.released += tokens

    def lock(self, queue, actor):
        return None

    def dead(self, queue):
        return 0


def played(settings, seconds, client=None):
    client = client or Counting()
    load_of = Programs(QUEUE, client, settings, {}, Random(1))
    now = 0.0
    load_of.change(settings, now)
    while now < seconds:
        now = max(now + 0.001, load_of.tick(now))
    return load_of, client


@pytest.mark.parametrize(("senders", "rate"), [(1, 1), (3, 10), (10, 50), (2, 0)])
def test_senders_together_keep_the_rate(senders, rate):
    load_of, _ = played(LoadSettings(senders=senders, rate=rate, receivers=0), 20)
    assert load_of.count["sent"] == pytest.approx(rate * 20, abs=senders + 1)


def test_receivers_work_for_as_long_as_they_are_set_and_fail_by_their_share():
    load_of, client = played(LoadSettings(rate=50, receivers=2, work=0.2, failures=30, prefetch=3), 30)
    settled = load_of.count["completed"] + load_of.count["failed"]
    assert settled == pytest.approx(2 / 0.2 * 30, rel=0.05)
    assert load_of.count["failed"] == pytest.approx(0.3 * settled, rel=0.3) and len(client.failed) == load_of.count["failed"]


def test_a_late_sender_catches_up_only_a_little():
    client = Counting()
    load_of = Programs(QUEUE, client, LoadSettings(senders=1, rate=50), {}, Random(1))
    load_of.change(load_of.settings, 0.0)
    load_of.tick(0.0)
    load_of.tick(1000.0)
    assert client.sizes == [1, MOST_AT_ONCE]


def test_nothing_is_sent_while_the_queue_is_full_and_after_the_last_message(monkeypatch):
    monkeypatch.setattr("explorer.lessons.load.programs.MOST_MESSAGES", 10)
    load_of, client = played(LoadSettings(rate=50, receivers=0), 5)
    assert load_of.count["sent"] == client.waiting == 10
    client = Counting()
    load_of = Programs(QUEUE, client, LoadSettings(), {}, Random(1))
    load_of.may_send = False
    load_of.change(load_of.settings, 0.0)
    assert load_of.tick(0.0) == IDLE and client.sizes == []


def test_what_a_receiver_holds_survives_a_slice_and_is_released_when_it_is_not_wanted():
    client = Counting()
    client.waiting = 6
    settings = LoadSettings(rate=0, receivers=2, work=1, prefetch=3)
    first = Programs(QUEUE, client, settings, {}, Random(1))
    first.change(settings, 0.0)
    first.tick(0.0)
    held = first.held
    assert {name: len(tokens) for name, tokens in held.items()} == {"worker-1": 3, "worker-2": 3}
    second = Programs(QUEUE, client, settings, first.count, Random(1))
    second.restore(held, 0.0)
    second.change(LoadSettings(rate=0, receivers=1, work=1, prefetch=3), 0.0)
    assert client.released == held["worker-2"] and second.held == {"worker-1": held["worker-1"]}
    assert second.count["received"] == 6
    second.end_all()
    assert len(client.released) == 6


def test_a_prefetch_is_filled_up_where_the_family_does_so():
    for fills_up, held in ((True, 4), (False, 2)):
        client = Counting()
        client.fills_up, client.waiting = fills_up, 20
        load_of, _ = played(LoadSettings(rate=0, receivers=1, work=1, prefetch=4), 2.5, client)
        assert len(load_of.held["worker-1"]) == held and load_of.count["completed"] == 2


def test_a_lost_lock_is_counted_as_lost():
    client = Counting()
    client.waiting, client.lost = 1, {"worker-1-1"}
    load_of, _ = played(LoadSettings(rate=0, receivers=1, work=0.1), 1, client)
    assert (load_of.count["lost"], load_of.count["completed"]) == (1, 0)


# In a sandbox


def sandbox_of(client, slug=SLUG):
    at = start(client, slug)
    return at, Sandbox.objects.get(namespace=at.rstrip("/").rpartition("/")[2])


def run(sandbox, seconds=1.5):
    Load.objects.filter(sandbox=sandbox).update(leased_until=timezone.now())
    return running.run(load.of(sandbox).pk, seconds=seconds, dice=Random(1))


@pytest.mark.parametrize("slug", SLUGS)
def test_a_load_is_started_changed_and_stopped(slug, vera, handed_over, transactional_db):
    at, sandbox = sandbox_of(vera, slug)
    client, queue = load.client_of(sandbox.family), EntityAddress(sandbox.namespace, "work")
    assert namespaces.get_clock(sandbox.namespace).rate == 1.0, "real time"
    assert "No load yet" in body_of(vera.get(at))
    page = vera.post(at, {"act": "load", **BUSY}, headers=FRAGMENT)
    assert page.status_code == 200 and handed_over == [load.of(sandbox).pk]
    assert "waiting for a worker" in body_of(page) or "running" in body_of(page)
    assert run(sandbox), "goes on in another slice"
    counted = load.progress(sandbox).count
    assert counted["sent"] >= 40 and counted["completed"] >= 30 and "failed" not in counted
    shown = vera.get(at)
    drawn = {"rates", "backlog", "waiting"} | ({"dead"} if client.has_dead_letters else set())
    assert {panel.name for panel in shown.context["panels"]} == drawn
    assert shown.context["done"], "the first step is done by what the load did"

    vera.post(at, {"act": "load", **BUSY, "failures": "100", "receivers": "2"})
    assert handed_over == [load.of(sandbox).pk], "a change starts no second one"
    run(sandbox)
    counted = load.progress(sandbox).count
    assert counted["failed"] > 0 and counted["dead-lettered"] > 0 and "lost" not in counted
    assert client.dead(queue) == counted["dead-lettered"]
    assert f"</b> {client.words.dead}" in " ".join(body_of(vera.get(at)).split())

    assert vera.post(at, {"act": "stop_load"}, headers=FRAGMENT).status_code == 200
    assert not run(sandbox)
    assert load.progress(sandbox).end == "Stopped" and "Stopped" in body_of(vera.get(at))
    assert reads.counts(queue).locked == 0, "its receivers released what they held"
    assert vera.post(at, {"act": "stop_load"}, headers=FRAGMENT).status_code == 409


def test_a_receiver_that_works_too_long_loses_its_receipt_to_another(vera, transactional_db, monkeypatch):
    monkeypatch.setattr("explorer.queue_storage.lessons.load.VISIBILITY_TIMEOUT", timedelta(seconds=1))
    _, sandbox = sandbox_of(vera, "your-own-load-queue-storage")
    queue, client = EntityAddress(sandbox.namespace, "work"), load.client_of(sandbox.family)
    first, second = (Actor("process", name, Right.ALL) for name in ("worker-1", "worker-2"))
    client.send(queue, [b"{}"] * 2, first)
    [kept, late] = client.receive(queue, 50, first)
    assert client.complete(queue, kept, first) and not client.complete(queue, kept, first)
    [again] = eventually(lambda: client.receive(queue, 1, second), 10)
    assert not client.fail(queue, late, first) and not client.complete(queue, late, first)
    assert client.complete(queue, again, second)


def test_consumers_hold_their_prefetch_over_connections_that_end_with_the_slice(vera, transactional_db):
    at, sandbox = sandbox_of(vera, "your-own-load-rabbitmq")
    queue = EntityAddress(sandbox.namespace, "work")
    vera.post(at, {"act": "load", **BUSY, "receivers": "1", "work": "0.2", "prefetch": "7"})
    held = []
    look = running._Slice._look

    def watched(each, now):
        held.append((reads.counts(queue).locked, [row.name for row in browsing.connections(sandbox.namespace)]))
        return look(each, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running._Slice, "_look", watched)
        assert run(sandbox)
    assert held[-1] == (7, ["worker-1"])
    assert browsing.connections(sandbox.namespace) == [] and reads.counts(queue).locked == 0
    assert load.of(sandbox).state["held"] == {"worker-1": []}
    rabbitmq.delete_queue(queue)
    assert not run(sandbox) and Load.objects.get().end == running.NO_QUEUE
    assert browsing.connections(sandbox.namespace) == []


@pytest.mark.parametrize(("name", "value"), [("rate", "5000"), ("senders", "x"), ("prefetch", "0"), ("work", "-1")])
def test_bad_input_starts_nothing_and_is_named_at_its_field(name, value, vera, handed_over, transactional_db):
    at, sandbox = sandbox_of(vera)
    page = vera.post(at, {"act": "load", **BUSY, name: value}, headers=FRAGMENT)
    assert page.status_code == 400 and f'id="load-{name}-error"' in body_of(page) and f'value="{value}"' in body_of(page)
    assert load.of(sandbox) is None and handed_over == []


def test_a_load_ends_after_its_time_with_its_queue_and_with_its_sandbox(vera, transactional_db):
    at, sandbox = sandbox_of(vera)
    vera.post(at, {"act": "load", **BUSY})
    Load.objects.update(until=timezone.now())
    assert load.progress(sandbox).end == running.OVER, "also without a worker"
    assert not run(sandbox) and Load.objects.get().end == running.OVER

    vera.post(at, {"act": "load", **BUSY})
    assert load.progress(sandbox).is_running
    entities.delete_queue(EntityAddress(sandbox.namespace, "work"))
    assert not run(sandbox) and Load.objects.get().end == running.NO_QUEUE
    assert vera.get(at).status_code == 200

    vera.post(at, {"act": "reset"})
    vera.post(at, {"act": "load", **BUSY})
    waiting = load.of(sandbox).pk
    sandboxes.remove(Sandbox.objects.get())
    assert not running.run(waiting) and not Load.objects.exists()


def test_a_load_ends_with_its_last_message(vera, monkeypatch, transactional_db):
    for module in (running, programs):
        monkeypatch.setattr(module, "MOST_MESSAGES", 20)
    at, sandbox = sandbox_of(vera)
    vera.post(at, {"act": "load", **BUSY})
    assert not run(sandbox, seconds=20)
    assert load.progress(sandbox).count["sent"] == 20 and load.progress(sandbox).end == running.SENT_ALL


def test_a_second_worker_leaves_a_load_alone_and_one_that_died_is_followed(vera, handed_over, transactional_db):
    at, sandbox = sandbox_of(vera)
    vera.post(at, {"act": "load", **BUSY})
    Load.objects.update(lease="other", leased_until=timezone.now() + running.LEASE)
    assert not running.run(load.of(sandbox).pk) and load.of(sandbox).lease == "other"
    Load.objects.update(leased_until=timezone.now() - timedelta(seconds=1))
    assert load.progress(sandbox).is_waiting and load.progress(sandbox).is_running
    vera.post(at, {"act": "load", **BUSY})
    assert len(handed_over) == 1, "it may come yet"
    Load.objects.update(leased_until=timezone.now() - 2 * running.LEASE)
    vera.post(at, {"act": "load", **BUSY})
    assert handed_over == [load.of(sandbox).pk] * 2, "Apply hands it to another worker"
    assert running.run(load.of(sandbox).pk, seconds=0.2) and load.of(sandbox).lease != "other"


def test_a_site_runs_few_loads_at_a_time(vera, as_, transactional_db):
    for _ in range(load.settings.MOST_RUNNING):
        client = as_("viewer")
        client.post(start(client, SLUG), {"act": "load", **BUSY})
    at, sandbox = sandbox_of(vera)
    refused = vera.post(at, {"act": "load", **BUSY}, headers=FRAGMENT)
    assert refused.status_code == 409 and "loads run on this site" in body_of(refused) and load.of(sandbox) is None
    Load.objects.update(end="Stopped")
    assert vera.post(at, {"act": "load", **BUSY}, headers=FRAGMENT).status_code == 200


def test_only_the_owner_of_a_sandbox_sets_its_load_and_only_in_a_lesson_with_one(vera, as_, transactional_db):
    at, _ = sandbox_of(vera)
    assert as_("administrator").post(at, {"act": "load", **BUSY}).status_code == 404
    other = start(vera, "peek-lock")
    assert vera.post(other, {"act": "load", **BUSY}, headers=FRAGMENT).status_code == 400
    with pytest.raises(NotAllowed):
        load.change(Sandbox.objects.get(lesson="peek-lock"), LoadSettings())


@pytest.mark.parametrize("slug", SLUGS)
def test_the_lesson_can_be_completed_and_followed(slug, vera, as_, transactional_db):
    at, sandbox = sandbox_of(vera, slug)
    vera.post(at, {"act": "load", **BUSY})
    Load.objects.update(state={"count": {"sent": 500, "completed": 400, "lost": 3, "dead-lettered": 2}})
    link = re.search(r"/learn/follow/\w+/", body_of(vera.post(at, {"act": "present"}, follow=True)))[0]
    followed = body_of(as_("viewer").get(link))
    assert "500" in followed and 'name="rate"' not in followed and "stop_load" not in followed
    for step in catalog.lesson(slug).steps:
        page = vera.get(at)
        assert page.context["run"].step is step
        if step.ask:
            vera.post(at, {"act": "answer", "answer": step.ask.right})
        assert vera.get(at).context["done"], step.title
        vera.post(at, {"act": "next"})
    assert "Lesson completed" in body_of(vera.get(at)) and 'name="rate"' in body_of(vera.get(at))


# Scenarios


@pytest.mark.parametrize("slug", [slug for slug in SLUGS if slug != SLUG])
def test_a_saved_load_of_each_family_is_started_again_and_run_by_a_command(slug, vera, tmp_path, transactional_db):
    at, sandbox = sandbox_of(vera, slug)
    vera.post(at, {"act": "load", **BUSY, "failures": "25"})
    vera.post(at, {"act": "save_load", "name": "Busy"})
    saved = Scenario.objects.get()
    vera.post(at, {"act": "stop_load"})
    assert vera.post(f"/learn/scenarios/{saved.pk}/start/")["Location"] == at
    assert load.progress(sandbox).settings == LoadSettings.read({**BUSY, "failures": "25"})
    file = tmp_path / "busy.toml"
    file.write_text(saved.text.replace('"1 min"', '"2 s"'))
    call_command("scenario", str(file))


def test_a_load_is_saved_exported_imported_and_started_again(vera, as_, tmp_path, handed_over, transactional_db):
    at, sandbox = sandbox_of(vera)
    entities.update_queue(EntityAddress(sandbox.namespace, "work"), max_delivery_count=7)
    vera.post(at, {"act": "load", **BUSY, "failures": "25"})
    assert vera.post(at, {"act": "save_load", "name": "Friday evening"}, headers=FRAGMENT).status_code == 200
    listed = body_of(vera.get("/learn/"))
    assert "Friday evening" in listed and "25 % failing" in listed
    saved = Scenario.objects.get()
    exported = vera.get(f"/learn/scenarios/{saved.pk}/scenario.toml")
    assert exported["Content-Disposition"] == 'attachment; filename="friday-evening.toml"'
    text = exported.content.decode()
    assert text == vera.get(f"{at}scenario.toml").content.decode().replace("Your own load", "Friday evening")

    other = as_("viewer")
    for what in ("start/", "delete/"):
        assert other.post(f"/learn/scenarios/{saved.pk}/{what}").status_code == 404
    assert other.get(f"/learn/scenarios/{saved.pk}/scenario.toml").status_code == 404
    other.post("/learn/scenarios/", {"file": SimpleUploadedFile("a.toml", text.encode())})
    theirs = Scenario.objects.get(owner=other.user)
    assert theirs.text == text and theirs.name == "Friday evening"

    vera.post(at, {"act": "stop_load"})
    again = vera.post(f"/learn/scenarios/{saved.pk}/start/")
    assert again["Location"] == at, "in the sandbox for loads, which begins anew"
    assert load.progress(sandbox).settings == LoadSettings.read({**BUSY, "failures": "25"})
    assert load.progress(sandbox).is_running and len(handed_over) == 2
    assert entities.get_queue(EntityAddress(sandbox.namespace, "work")).settings.max_delivery_count == 7

    file = tmp_path / "friday.toml"
    file.write_text(text.replace('"1 min"', '"2 s"'))
    call_command("scenario", str(file))
    vera.post(f"/learn/scenarios/{saved.pk}/delete/")
    assert not Scenario.objects.filter(owner=vera.user).exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "is missing"),
        (b"title =", "is not a scenario"),
        (b"\xff\xfe", "UTF-8"),
        (b"x" * (saved_scenarios.LARGEST + 1), "characters"),
        (b'title="a"\nfamily="service_bus"\n[[step]]\ntitle="b"\nsay="c"', "has no load"),
        (
            b'title="a"\nfamily="service_bus"\nload="work"\n[[step]]\ntitle="b"\nsay="c"\n'
            b'do={action="load", queue="work", for="1 s", rate=5000}',
            "rate: must be between 0 and 50",
        ),
        (
            b'title="a"\nfamily="service_bus"\n[[step]]\ntitle="b"\nsay="c"\ndo={action="load", queue="work", for="1 s"}',
            "load: is missing",
        ),
    ],
)
def test_a_file_that_is_no_scenario_with_a_load_is_refused(text, problem, vera, transactional_db):
    page = vera.post("/learn/scenarios/", {"file": SimpleUploadedFile("a.toml", text)}, follow=True)
    told = re.sub(r"<[^>]*>", " ", body_of(page)).replace("&#x27;", "'")
    assert problem.replace("rate: ", "") in told and not Scenario.objects.exists(), told[-2000:]


def test_a_scenario_that_this_version_cannot_read_is_listed_and_can_be_deleted(vera, transactional_db):
    text = 'title="a"\nfamily="service_bus"\n[[step]]\ntitle="b"\nsay="c"\ndo={action="of an earlier version"}'
    old = Scenario.objects.create(owner=vera.user, name="Old one", text=text)
    listed = body_of(vera.get("/learn/"))
    assert "Old one" in listed and "Cannot be started: the file is not a scenario" in listed
    page = vera.post(f"/learn/scenarios/{old.pk}/start/", follow=True)
    assert page.status_code == 200 and "is not a scenario" in body_of(page)
    vera.post(f"/learn/scenarios/{old.pk}/delete/")
    assert not Scenario.objects.exists()


def test_a_person_has_a_limited_number_of_scenarios(vera, monkeypatch, transactional_db):
    monkeypatch.setattr(saved_scenarios, "MOST_OF_ONE", 1)
    at, _ = sandbox_of(vera)
    vera.post(at, {"act": "load", **BUSY})
    assert vera.post(at, {"act": "save_load", "name": "one"}, headers=FRAGMENT).status_code == 200
    assert vera.post(at, {"act": "save_load", "name": "one"}, headers=FRAGMENT).status_code == 200, "in its place"
    assert vera.post(at, {"act": "save_load", "name": "two"}, headers=FRAGMENT).status_code == 409
    assert vera.post(at, {"act": "save_load", "name": " "}, headers=FRAGMENT).status_code == 400
    assert [saved.name for saved in Scenario.objects.all()] == ["one"]


# In a browser: the last ones, as commands do not run while a browser's event loop is in this thread.


@pytest.fixture
def worker(monkeypatch):
    """Runs the loads that are handed over, as a worker does."""
    threads = []

    def work(load_id):
        try:
            while running.run(load_id, seconds=1.0):
                pass
        finally:
            connection.close()
            connections.close_all_of_this_thread()

    def hand_over(load_id):
        threads.append(threading.Thread(target=work, args=(load_id,)))
        threads[-1].start()

    monkeypatch.setattr(running, "request_slice", hand_over)
    yield
    Load.objects.update(end="Stopped")
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.slow
def test_the_lesson_your_own_load_is_played(live_site, new_context, sign_in, person, handed_over, worker):
    context = new_context(viewport=DESK, bypass_csp=True)
    vera = person("viewer", "vera")
    sign_in(context, vera)
    page = context.new_page()
    page.goto(f"{live_site}/learn/")
    page.get_by_role("button", name="Start: Your own load", exact=True).click()
    expect(page.locator("#load")).to_contain_text("No load yet")
    assert problems(page) == []
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#load .state")).to_contain_text("running")
    chart = page.locator("#load .chart.column .series-sent").last
    expect(chart).to_have_attribute("d", re.compile("M"))
    first = chart.get_attribute("d")
    eventually(lambda: page.wait_for_timeout(100) or chart.get_attribute("d") != first, 30)
    expect(page.locator("#go-on")).to_have_text("Continue", timeout=30_000)

    typed = page.get_by_label("Failing")
    typed.fill("100")
    page.wait_for_timeout(1500)
    expect(typed).to_have_value("100")
    expect(typed).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".notice").last).to_contain_text("Load changed")
    expect(page.locator("#load .load-state")).not_to_contain_text("· 0 failed")
    expect(page.locator("#p-dead")).to_be_visible()
    assert problems(page) == []

    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#load .state")).to_contain_text("Stopped")
    page.locator("#load-save summary").click()
    page.get_by_label("Name of the scenario").fill("All fail")
    page.keyboard.press("Enter")
    expect(page.locator(".notice").last).to_contain_text("Saved All fail")
    page.set_viewport_size(PHONE)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.set_viewport_size(DESK)

    page.goto(f"{live_site}/learn/")
    page.get_by_role("button", name=re.compile("Start.*All fail")).click()
    expect(page.locator("#load .state")).to_contain_text("running")
    expect(page.get_by_label("Failing")).to_have_value("100")
    expect(page.get_by_role("button", name="Apply")).to_be_visible()
