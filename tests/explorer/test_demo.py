"""The demonstration: its set-up, its programs against a clock that the test moves, and its menus."""

import random
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
from cachetools import TTLCache
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import BrokerUnavailable
from broker_core.common.types import EntityAddress, EventKind, Family, MessageState
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.reads import EventFilter
from broker_core.service_bus import tokens
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.wire.clients import Registry
from broker_core.wire.http import clients
from explorer.demo import faults, parts, set_up
from explorer.demo.runner import PauseButton, Runner
from explorer.frames.presenters import actor_name
from explorer.models import AuditRecord, Demonstration, Fault, FaultKind
from explorer.queue_storage import demo as photolab_demo
from explorer.service_bus.demo import messages, traffic
from explorer.service_bus.demo import shop as shop_entities
from explorer.service_bus.demo.http_queue import HttpQueue, Refused
from tests.html import body_of

OUTCOMES = {
    "orders": {EventKind.COMPLETED, EventKind.ABANDONED, EventKind.DEAD_LETTERED, EventKind.RESUBMITTED, EventKind.PURGED},
    "payments": {EventKind.COMPLETED, EventKind.LOCK_LOST, EventKind.RENEWED},
    "invoices": {EventKind.COMPLETED, EventKind.DEFERRED, EventKind.DEAD_LETTERED},
    "notifications": {EventKind.COMPLETED, EventKind.ABANDONED, EventKind.DEAD_LETTERED},
    "reminders": {EventKind.SCHEDULED, EventKind.ACTIVATED, EventKind.CANCELLED, EventKind.COMPLETED},
    "stock-levels": {EventKind.RECEIVED_AND_DELETED, EventKind.EXPIRED},
    "parcels": {EventKind.COMPLETED, EventKind.RENEWED},
    shop_entities.EVENTS: {EventKind.PUBLISHED},
    shop_entities.SUBSCRIPTION_PATHS["everything"]: {EventKind.COMPLETED},
    shop_entities.SUBSCRIPTION_PATHS["large-orders"]: {EventKind.COMPLETED},
    shop_entities.SUBSCRIPTION_PATHS["returns"]: {EventKind.COMPLETED, EventKind.DEAD_LETTERED},
}
MOST_TURNS = 4500  # some 25 minutes of the shop; a tenth is enough as a rule


@pytest.fixture
def shop(live_site):
    """The demonstration in a namespace whose clock the test moves, without history. Messages are removed with their queues."""
    namespaces.create_namespace(shop_entities.NAMESPACE, Family.SERVICE_BUS)
    namespaces.pause_clock(shop_entities.NAMESPACE)
    shop_entities.seed(history_messages=0)
    yield live_site
    for table in ("vitrine_shared_access_policy", "vitrine_rule", "vitrine_entity", "vitrine_namespace"):
        connections.current().execute(f"DELETE FROM {table}")


class Stopwatch:
    """The runner's clock; the namespace's goes with it."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def forward(self, seconds: float) -> None:
        self.seconds += seconds
        namespaces.step_clock(shop_entities.NAMESPACE, shop_entities._seconds(seconds))


def _runner(site: str, clock: Stopwatch) -> Runner:
    programs = traffic.Traffic(shop_entities.NAMESPACE, site, random.Random(5)).programs()
    return Runner(programs, is_paused=PauseButton(), clock=clock)


def _play(runner: Runner, clock: Stopwatch, *, turns: int, until=lambda: False) -> None:
    for turn in range(turns):
        clock.forward(max(0.3, runner.tick()))
        if turn % 150 == 149 and until():
            return


def _address(path: str) -> EntityAddress:
    return EntityAddress(shop_entities.NAMESPACE, path)


def _events(path: str, kinds=()) -> list[reads.Event]:
    entity = reads.entity(_address(path))
    return list(reads.events(EventFilter(entity_id=entity.id, kinds=tuple(kinds)), limit=2000).rows)


def _missing() -> dict[str, set[EventKind]]:
    """Outcomes that have not occurred yet, by queue."""
    seen = {path: {event.kind for event in _events(path)} for path in OUTCOMES}
    return {path: wanted - seen[path] for path, wanted in OUTCOMES.items() if wanted - seen[path]}


@pytest.mark.slow
def test_every_outcome_occurs_and_few_messages_are_dead_lettered(shop, monkeypatch):
    monkeypatch.setattr(traffic, "MOST_DEAD", 4)
    monkeypatch.setattr(traffic, "LEFT_DEAD", 2)
    clock = Stopwatch()
    runner = _runner(shop, clock)
    most_dead = []

    def satisfied() -> bool:
        most_dead.append(max(reads.counts(_address(path)).dead_letter for path in shop_entities.CONSUMED))
        return not _missing()

    _play(runner, clock, turns=MOST_TURNS, until=satisfied)
    runner.rest()
    assert _missing() == {}
    assert max(most_dead) < 60  # an operator comes every 20 s at the latest; about one a second can die in between
    reasons = {event.reason for path in shop_entities.CONSUMED for event in _events(path, [EventKind.DEAD_LETTERED])}
    assert {"MaxDeliveryCountExceeded", "TTLExpiredException"} <= reasons
    assert reasons & {reason for reason, _ in traffic.REJECTIONS}
    assert not any(reads.counts(_address(path)).locked for path in ("orders", "invoices", "reminders", "parcels")), (
        "rest gives back"
    )
    assert not [event for event in _events(shop_entities.PLAYGROUND) if event.actor != "process:guide"], (
        "nobody plays in the playground"
    )


def test_each_actor_of_the_shop_has_the_name_of_its_program(shop):
    """The live map, the live tail, the board, the history and Faults show the same names."""
    clock = Stopwatch()
    runner = _runner(shop, clock)
    _play(runner, clock, turns=400)
    paths = [row.address.path for row in reads.overview(shop_entities.NAMESPACE)]
    actors = {actor_name(event.actor) for path in paths for event in _events(path) if event.actor}
    assert actors >= {"orders-1", "courier-1", "approver", "web-shop", "mobile-app", "dashboard"}
    assert actors - {"guide", "broker"} <= traffic.DOES.keys()


def test_each_subscription_gets_what_its_rule_takes(shop):
    clock = Stopwatch()
    _play(_runner(shop, clock), clock, turns=400)
    published = _events(shop_entities.EVENTS, [EventKind.PUBLISHED])
    subjects = [event.properties["subject"] for event in published]
    large = [
        e for e in published if e.properties["subject"] == "order.placed" and float(e.application_properties["total"][1]) >= 150
    ]
    expected = {"everything": len(published), "large-orders": len(large), "returns": subjects.count("parcel.returned")}
    assert {name: len(_events(path, [EventKind.SENT])) for name, path in shop_entities.SUBSCRIPTION_PATHS.items()} == expected
    assert all(expected.values())


def test_the_events_of_a_parcel_are_in_order(shop):
    clock = Stopwatch()
    _play(_runner(shop, clock), clock, turns=400)
    parcels = {event.sequence_number: event.session_id for event in _events("parcels", [EventKind.SENT])}
    done: dict[str, list[int]] = {}
    for event in reversed(_events("parcels", [EventKind.COMPLETED])):
        done.setdefault(parcels[event.sequence_number], []).append(event.sequence_number)
    assert len(done) > 3 and all(numbers == sorted(numbers) for numbers in done.values())


def test_a_message_unknown_to_the_shop_is_dead_lettered_with_a_reason(shop):
    sent = [Message(b"hello?"), Message(b"[1, 2]"), Message(b'{"order": "SO-1"}')]
    service_bus.send(_address("orders"), sent)
    clock = Stopwatch()
    _play(_runner(shop, clock), clock, turns=120)
    dead = service_bus.peek(_address("orders").dead_letter)
    unreadable = [message for message in dead if message.dead_letter_reason == "UnreadableMessage"]
    assert {bytes(message.body) for message in unreadable} == {message.body for message in sent}


def test_a_paused_demo_sends_and_receives_nothing(shop):
    row = Demonstration.objects.create(pk=Demonstration.ONLY)
    clock = Stopwatch()
    runner = _runner(shop, clock)
    _play(runner, clock, turns=60)
    Demonstration.objects.update(is_paused=True)
    clock.forward(2)
    runner.tick()
    before = {path: len(_events(path)) for path in shop_entities.QUEUES}
    assert sum(before.values()) > 30
    _play(runner, clock, turns=30)
    assert {path: len(_events(path)) for path in shop_entities.QUEUES} == before
    row.save()
    _play(runner, clock, turns=60)
    assert len(_events("orders")) > before["orders"]


def test_a_failing_program_restarts_and_is_logged_once(caplog):
    clock, calls = Stopwatch(), []

    def program():
        calls.append(clock.seconds)
        yield 1
        raise BrokerUnavailable("The database is away.")

    runner = Runner({"shop": program}, is_paused=lambda: False, clock=clock)
    for _ in range(60):
        clock.seconds += runner.tick()
    assert calls[:3] == [0, 3, 6]
    assert not caplog.records, "it works again each time"

    def broken():
        raise BrokerUnavailable("The database is away.")
        yield

    runner = Runner({"shop": broken, "till": broken}, is_paused=lambda: False, clock=clock)
    for _ in range(60):
        clock.seconds += runner.tick()
    assert [record.getMessage() for record in caplog.records] == [
        "Demo program shop failed and will retry: The database is away."
    ]


def test_a_replaced_key_is_read_again(shop, monkeypatch):
    monkeypatch.setattr(tokens, "_cached", TTLCache(1, 0))
    client = HttpQueue(shop, _address("orders"), shop_entities.SHOP_KEY)
    client.send(messages.order(random.Random(1)))
    shared_access.regenerate_key(_address("orders"), shop_entities.SHOP_KEY)
    with pytest.raises(Refused, match="401"):
        client.send(messages.order(random.Random(2)))
    client.send(messages.order(random.Random(3)))
    client.close()
    assert reads.counts(_address("orders")).active == 2


def test_programs_over_http_name_themselves(shop, monkeypatch):
    monkeypatch.setattr(clients, "registry", registry := Registry())
    monkeypatch.setattr(clients, "_clients", {})
    HttpQueue(shop, _address("orders"), shop_entities.SHOP_KEY).send(messages.order(random.Random(1)))
    assert [client.product for client in registry.clients.values()] == ["web-shop"]


def test_the_playground_has_a_message_in_each_state(shop):
    counts = reads.counts(_address(shop_entities.PLAYGROUND))
    assert (counts.active, counts.deferred, counts.scheduled, counts.dead_letter) == (4, 1, 1, 2)
    assert counts.locked == 0
    reasons = {message.dead_letter_reason for message in service_bus.peek(_address(shop_entities.PLAYGROUND).dead_letter)}
    assert reasons == {"AddressUnknown", "MaxDeliveryCountExceeded"}
    scheduled = [m for m in service_bus.peek(_address(shop_entities.PLAYGROUND)) if m.state is MessageState.SCHEDULED]
    assert len(scheduled) == 1


@pytest.mark.django_db
def test_the_demo_is_set_up_once(monkeypatch):
    calls = []
    for part in parts.parts():
        monkeypatch.setattr(part, "seed", partial(calls.append, part.NAMESPACE))
    monkeypatch.setattr(set_up.namespaces, "update_namespace", lambda name, **settings: None)  # none was created
    set_up.set_up_once()
    set_up.set_up_once()
    assert calls == [part.NAMESPACE for part in parts.parts()]
    assert {shop_entities.NAMESPACE, photolab_demo.NAMESPACE} < set(calls)


@pytest.mark.django_db
def test_the_programs_of_a_deleted_namespace_do_not_run(photolab):
    """The demo's parts are found through the families' registry; of them, only the photo lab's namespace exists here."""
    found = parts.programs(random.Random(4), "http://127.0.0.1:1")
    assert found.keys() == photolab_demo.programs(photolab, random.Random(4)).keys()


def test_each_program_is_described():
    for part in parts.parts():
        assert part.DOES.keys() == part.programs(part.NAMESPACE, random.Random(4), "").keys(), part.NAMESPACE


def _act(client, **fields):
    return client.post(reverse("explorer:demonstration"), fields, follow=True)


def test_operators_pause_the_demo_and_come_back_to_their_page(as_):
    Demonstration.objects.create(pk=Demonstration.ONLY)
    operator, viewer = as_("operator"), as_("viewer")
    assert b"<b>Pause demo</b>" in operator.get("/entities/").content
    answer = _act(operator, do="pause", next="/locks/")
    assert answer.redirect_chain == [("/locks/", 302)]
    assert b"<b>Resume demo</b>" in answer.content and b"Demo paused." in answer.content
    page = body_of(viewer.get("/locks/"))
    assert "Demo paused" in page and "Pausing and faults require the operator role." in page
    _act(viewer, do="resume")
    row = Demonstration.objects.get()
    assert (row.is_paused, row.changed_by) == (True, f"user:{operator.user.username}")
    assert [(r.action, r.outcome) for r in AuditRecord.objects.order_by("id")] == [
        ("pause demonstration", "done"),
        ("resume demonstration", "refused"),
    ]
    assert _act(operator, do="resume", next="//elsewhere.example/").redirect_chain == [("/", 302)]
    assert not Demonstration.objects.get().is_paused
    assert _act(operator, do="dance").status_code == 400


def test_the_menu_is_on_pages_about_messages_of_the_demo(as_, shop):
    Demonstration.objects.create(pk=Demonstration.ONLY)
    namespaces.ensure_namespace("another", Family.SERVICE_BUS)
    client = as_("operator")
    for page, has_menu in (
        ("/", True), ("/map/", True), ("/entities/demo/orders", True), ("/?namespace=demo", True), ("/locks/", True),
        ("/?namespace=another", False), ("/namespaces/another/", False), ("/administration/", False), ("/learn/", False),
    ):  # fmt: skip
        assert ('id="demo-menu"' in client.get(page).content.decode()) == has_menu, page


def test_a_site_without_demo_has_no_menu_and_no_faults(as_, settings):
    assert b"demo-menu" not in as_("operator").get("/entities/").content, "it was never set up"
    Demonstration.objects.create(pk=Demonstration.ONLY)
    settings.VITRINE_DEMO = False
    assert b"demo-menu" not in as_("operator").get("/entities/").content
    assert _act(as_("operator"), do="pause").status_code == 404


# Faults on demand


class Faults:
    """The faults of the runner, set by the test."""

    def __init__(self, clock):
        self._clock, self._running = clock, {}

    def __call__(self):
        return self._running

    def start(self, target, kind):
        now = timezone.now()
        self._running = {target: Fault(target=target, kind=kind, started_at=now, until=now + timedelta(minutes=1))}

    def end(self):
        self._running = {}


@pytest.fixture
def faulty(shop):
    """The shop's runner with two consumers of `orders`, its clock and its faults; ten orders wait."""
    service_bus.send(_address("orders"), [messages.order(random.Random(number)) for number in range(10)])
    clock = Stopwatch()
    programs = traffic.Traffic(shop_entities.NAMESPACE, shop, random.Random(5)).programs()
    both = {name: programs[name] for name in ("orders-1", "orders-2")}
    faults_of_test = Faults(clock)
    runner = Runner(both, is_paused=lambda: False, faults=faults_of_test, clock=clock)
    _play(runner, clock, turns=3)
    return runner, clock, faults_of_test


def _held_by(consumer: str) -> int:
    return sum(row.locked_by == f"process:{consumer}" for row in reads.list_messages(_address("orders")).rows)


def _events_of_first(*kinds: EventKind) -> list:
    return [event for event in _events("orders", list(kinds)) if "orders-1" in (event.actor or "")]


def test_a_killed_consumer_keeps_its_locks_until_they_end(faulty):
    runner, clock, running = faulty
    assert _held_by("orders-1")
    running.start("orders-1", FaultKind.KILLED)
    _play(runner, clock, turns=4)
    before = len(_events_of_first(EventKind.RECEIVED)), len(_events_of_first(EventKind.COMPLETED, EventKind.RELEASED))
    assert _held_by("orders-1"), "nothing was given back"
    _play(runner, clock, turns=80)
    assert not _held_by("orders-1") and _events("orders", [EventKind.LOCK_LOST])
    assert before == (len(_events_of_first(EventKind.RECEIVED)), len(_events_of_first(EventKind.COMPLETED, EventKind.RELEASED)))
    running.end()
    service_bus.send(_address("orders"), [messages.order(random.Random(number)) for number in range(6)])
    _play(runner, clock, turns=20)
    assert len(_events_of_first(EventKind.RECEIVED)) > before[0]


def test_a_failing_consumer_abandons_its_messages(faulty):
    runner, clock, running = faulty
    running.start("orders-1", FaultKind.FAILING)
    _play(runner, clock, turns=12)
    assert len(_events_of_first(EventKind.ABANDONED)) > 2


def test_a_slow_consumer_takes_longer_and_a_disconnected_consumer_restarts():
    clock, calls, times = Stopwatch(), [], []

    def program():
        calls.append("start")
        while True:
            times.append(clock.seconds)
            yield 1

    running = Faults(clock)
    runner = Runner({"shop": program}, is_paused=lambda: False, faults=running, clock=clock)

    def play(turns):
        for _ in range(turns):
            clock.seconds += max(0.1, runner.tick())

    play(4)
    running.start("shop", FaultKind.SLOW)
    play(20)
    assert max(b - a for a, b in pairwise(times)) == pytest.approx(faults.SLOWER, abs=0.5)
    running.start("shop", FaultKind.DISCONNECTED)
    play(20)
    assert calls.count("start") == 2, "once, although the fault lasts some seconds"


def test_cut_connections_are_opened_again(faulty):
    runner, clock, running = faulty
    before = connections.current()
    running.start(faults.DATABASE, FaultKind.DISCONNECTED)
    _play(runner, clock, turns=20)
    assert before.closed and _events("orders", [EventKind.COMPLETED])


def test_faults_require_an_operator_and_end_automatically(as_, monkeypatch):
    Demonstration.objects.create(pk=Demonstration.ONLY)
    photolab_demo.seed()
    operator, viewer = as_("operator"), as_("viewer")
    menu = "/map/?namespace=photolab&actor=process:resizer"
    page = body_of(operator.get(menu))
    assert "Consumes thumbnails" in page and "<b>Kill</b>" in page and "Ends without releasing its locks" in page
    assert "Faults require the operator role." in body_of(viewer.get(menu))
    _act(viewer, do="start", kind="killed", target="resizer")
    assert not Fault.objects.exists()
    page = body_of(_act(operator, do="start", kind="killed", target="resizer", next=menu))
    assert "resizer is killed for 1 min." in page and "Demo · 1 fault" in page
    assert page.count('End<span class="visually-hidden"> the fault of resizer') == 2, "in the demo's menu and in the node's"
    assert (AuditRecord.objects.latest("id").action, AuditRecord.objects.latest("id").outcome) == ("start fault", "done")
    assert faults.RunningFaults()()["resizer"].kind == FaultKind.KILLED
    _act(operator, do="end", target="resizer")
    assert faults.running() == []
    for wrong in (
        {"kind": "dance", "target": "resizer"},
        {"kind": "killed", "target": "nobody"},
        {"kind": "killed", "target": ""},
    ):
        assert _act(operator, do="start", **wrong).status_code == 400
    monkeypatch.setitem(faults.LASTS, FaultKind.SLOW, timedelta(0))
    _act(operator, do="start", kind="slow", target="resizer")
    assert faults.RunningFaults()() == {} and not Fault.objects.exists()


def test_all_faults_are_ended_together(as_):
    Demonstration.objects.create(pk=Demonstration.ONLY)
    photolab_demo.seed()
    operator = as_("operator")
    for target in ("resizer", "camera"):
        _act(operator, do="start", kind="failing", target=target)
    assert "End all" in (page := body_of(operator.get("/"))) and "Demo · 2 faults" in page
    _act(as_("viewer"), do="end_all")
    assert Fault.objects.count() == 2
    _act(operator, do="end_all")
    assert not Fault.objects.exists() and "End all" not in body_of(operator.get("/"))


def test_a_stopped_background_task_is_enabled_again(as_, monkeypatch):
    Demonstration.objects.create(pk=Demonstration.ONLY)
    every = IntervalSchedule.objects.create(every=7, period="seconds")
    task = PeriodicTask.objects.create(name="a task of the test", task="tests.none", interval=every)
    operator = as_("operator")
    assert f"<option>{task.name}</option>" in body_of(operator.get("/"))
    _act(operator, do="start", kind="stopped", target=task.name)
    task.refresh_from_db()
    assert not task.enabled
    _act(operator, do="start", kind="stopped", target=task.name)  # longer
    Fault.objects.update(until=timezone.now())
    faults.undo_ended()
    task.refresh_from_db()
    assert task.enabled
    PeriodicTask.objects.filter(pk=task.pk).update(enabled=False)
    assert _act(operator, do="start", kind="stopped", target=task.name).status_code == 200
    assert not Fault.objects.exists(), "a task that is not enabled is not enabled by a fault's end"


def test_the_address_of_the_faults_page_leads_to_the_map(as_):
    assert as_("viewer").get("/faults/").headers["Location"] == "/map/"


# The storage account


@pytest.fixture
def photolab(broker_database):
    """The demonstration's storage account, whose clock the test moves."""
    photolab_demo.seed()
    namespaces.pause_clock(photolab_demo.NAMESPACE)
    return photolab_demo.NAMESPACE


def _stored(name: str) -> EntityAddress:
    return EntityAddress(photolab_demo.NAMESPACE, name)


def test_the_photo_lab_begins_with_failed_and_waiting_messages(photolab):
    assert (reads.counts(_stored(photolab_demo.POISON)).active, reads.counts(_stored(photolab_demo.MAILINGS)).delayed) == (2, 3)
    assert reads.counts(_stored(photolab_demo.THUMBNAILS)).active == 5
    photolab_demo.seed()
    assert reads.counts(_stored(photolab_demo.POISON)).active == 2, "one that is there stays as it is"


def test_the_photo_lab_always_has_waiting_pictures(photolab):
    """Also while pictures come more slowly than they can be made smaller, expire, or fail."""
    seconds, waiting = 0.0, 0
    runner = Runner(photolab_demo.programs(photolab, random.Random(5)), is_paused=lambda: False, clock=lambda: seconds)
    for _ in range(400):
        wait = max(0.3, runner.tick())
        seconds += wait
        namespaces.step_clock(photolab, timedelta(seconds=wait))
        assert reads.list_messages(_stored(photolab_demo.THUMBNAILS)).rows, f"empty after {seconds} s"
        waiting = reads.counts(_stored(photolab_demo.THUMBNAILS)).active
    runner.rest()
    assert waiting < 20, "the resizer keeps pace"


def test_the_photo_lab_shows_every_reason_for_invisibility(photolab):
    seen, seconds = set(), 0.0
    runner = Runner(photolab_demo.programs(photolab, random.Random(3)), is_paused=lambda: False, clock=lambda: seconds)
    wanted = {DisplayState.VISIBLE, DisplayState.DELAYED, DisplayState.LEASED, DisplayState.EXTENDED}
    poison = reads.counts(_stored(photolab_demo.POISON)).active
    for _ in range(MOST_TURNS // 3):
        wait = max(0.3, runner.tick())
        seconds += wait
        namespaces.step_clock(photolab, timedelta(seconds=wait))
        rows = [
            row for name in (photolab_demo.THUMBNAILS, photolab_demo.MAILINGS) for row in reads.list_messages(_stored(name)).rows
        ]
        seen |= {row.display_state for row in rows}
        if wanted <= seen and reads.counts(_stored(photolab_demo.POISON)).active > poison:
            break
    runner.rest()
    assert wanted <= seen and reads.counts(_stored(photolab_demo.POISON)).active > poison
    rows = reads.list_messages(_stored(photolab_demo.THUMBNAILS)).rows
    held = [row.sequence_number for row in rows if row.display_state in (DisplayState.LEASED, DisplayState.EXTENDED)]
    texts = [reads.body(_stored(photolab_demo.THUMBNAILS), number).content for number in held]
    assert all(b"unreadable" in text for text in texts), "what a program held was given back, but for what it crashed over"
