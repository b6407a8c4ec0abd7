"""Before and after: the computation as tables, marking deploys, and the pages."""

import math
import random
from datetime import UTC, datetime, timedelta
from io import StringIO

import pyarrow as pa
import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Message
from broker_core.history import archive as archiving
from broker_core.history import schema
from broker_core.history.configuration import Revision
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import changes, hot
from explorer.analysis.reports.changes import Change, Metric
from explorer.analysis.reports.scope import Range
from explorer.models import AuditRecord, Sandbox
from explorer.roles import OPERATOR
from tests.html import body_of

from .conftest import NOON, a_life
from .test_pages import signed_in

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
CHANGE = Change(NOON, "the deploy of x", "user:a")
PAGE = "/analyses/mark-deploy/"


def life(at: float, wait=1.0, work=2.0, **changes) -> dict:
    """A message that entered so many seconds after the change."""
    since = NOON + at * SECOND
    received = since + wait * SECOND
    times = {
        "enqueued_at": since,
        "first_received_at": received,
        "last_received_at": received,
        "ended_at": received + work * SECOND,
    }
    return a_life(**times | {"deliveries": 1, "locks_lost": 0} | changes)


def compared(rows, change=CHANGE):
    lives = hot.judged(pa.Table.from_pylist([row | {"sequence_number": i} for i, row in enumerate(rows)], schema=schema.LIFE))
    return {one.name: one for one in changes.metrics(changes.of_change(lives, change, HOUR), change.at)}


def test_what_differs_before_and_after():
    """Waiting doubles, a third fails afterwards, processing stays."""
    rows = [life(-10 * i - 100) for i in range(60)] + [life(10 * i, wait=2) for i in range(60)]
    rows += [life(10 * i, wait=2, outcome=outcomes.DEAD_LETTERED, locks_lost=1) for i in range(30)]
    found = compared(rows)
    assert (found["waiting, median"].before, found["waiting, median"].after) == ((1_000_000,) * 3, (2_000_000,) * 3)
    assert found["failed"].before[0] == 0 and found["failed"].after[0] == pytest.approx(1 / 3)
    assert {name: one.differs for name, one in found.items() if one.differs} == {
        "waiting, median": "longer", "waiting, 95 %": "longer", "failed": "more", "lost": "more", "lost a lock": "more",
    }  # fmt: skip
    assert changes.sentence(CHANGE, list(found.values()), "").startswith(
        "After the deploy of x at 2026-03-01 12:00: waiting, median longer (1.0 s → 2.0 s); "
    )


def test_only_messages_near_the_change_and_of_its_queue_count():
    rows = [life(-100 - i) for i in range(40)] + [life(i) for i in range(40)]
    far = [life(-3700 - i, wait=9) for i in range(50)] + [life(3700 + i, wait=9) for i in range(50)]
    elsewhere = [life(i, wait=9, entity_id=2) for i in range(50)]
    found = compared(rows + far + elsewhere, Change(NOON, "x", "", 1))
    assert found["waiting, median"].after == (1_000_000,) * 3 and not any(one.differs for one in found.values())


def test_too_few_messages_are_not_compared():
    found = compared([life(-100 - i) for i in range(29)] + [life(i) for i in range(40)])
    assert found["waiting, median"].before is None and found["failed"].differs == ""
    assert "fewer than 30 messages" in changes.sentence(CHANGE, list(found.values()), "")
    assert "nothing differs" in changes.sentence(CHANGE, [Metric("failed", False, (0, 0, 1), (0, 0, 1))], "")


def test_the_band_of_a_quantile_covers_the_truth():
    """Of 300 samples with the median 0 and the 95 % quantile 1.645, about 95 % of the bands do."""
    dice = random.Random(5)
    for share, truth in ((0.5, 0.0), (0.95, 1.6449)):
        bands = [changes.quantile_band(took(round(dice.gauss(0, 1e6)) for _ in range(200)), share) for _ in range(300)]
        assert 0.93 <= sum(low <= 1e6 * truth <= high for _, low, high in bands) / 300 <= 0.99
    assert changes.quantile_band(took([1] * 29), 0.5) is None


def took(observed, at_least=()):
    us = [*observed, *at_least]
    return changes.times(pa.array(us), pa.array([i < len(us) - len(at_least) for i in range(len(us))]))


def test_quantiles_of_observed_times_are_their_ranks():
    assert changes.quantile_band(took(range(1, 101)), 0.5) == (50, 41, 61)
    assert changes.quantile_band(took(range(1, 101)), 0.95) == (95, 91, 100)


def test_quantiles_count_messages_that_still_wait():
    """Of 100 that were observed for 60 s, 20 were received within 1 s; of 100 others, 70; none at all in the third case."""
    assert changes.quantile_band(took([1] * 20, [60] * 80), 0.5) == (math.inf, 60, math.inf)
    assert changes.quantile_band(took([1] * 70, [60] * 30), 0.5) == (1, 1, 1)
    assert changes.quantile_band(took([], range(1, 101)), 0.5) == (math.inf, 71, math.inf)
    assert changes.quantile_band(took([10] * 30, [1] * 30), 0.5) == (10, 10, 10)  # of those that could be observed, all
    assert Metric("waiting, median", True, (1e6, 0, 2e6), (4e6, 3e6, 5e6)).words == "waiting, median longer (1.0 s → 4.0 s)"
    stopped = Metric("waiting, median", True, (1e6, 1e6, 1e6), (math.inf, 12e6, math.inf))
    assert stopped.words == "waiting, median longer (1.0 s → over 12 s)" and stopped.columns[4:7] == (None, 12 * SECOND, None)


def revision(entity_id, hours, **settings):
    return Revision(entity_id, "q", NOON + hours * HOUR, None, "user:a", settings)


def test_changes_of_settings():
    span = Range(NOON, NOON + 10 * HOUR)
    given = [
        revision(1, -1, lock_duration="00:00:30", options={}), revision(1, 1, lock_duration="00:01:00", options={}),
        revision(1, 2, lock_duration="00:01:00", options={"max_length": 5}, updated_at="x"),
        revision(1, 3, lock_duration="00:01:00", options={"max_length": 5}, updated_at="y"),
        revision(2, 4, lock_duration="00:00:05"),
    ]  # fmt: skip
    assert [(one.at - NOON, one.words, one.entity_id) for one in changes.of_revisions(given, span)] == [
        (HOUR, "lock duration: 00:00:30 → 00:01:00", 1), (2 * HOUR, "max length: none → 5", 1),
    ]  # fmt: skip


def test_a_link_opens_its_change_and_not_another_one_of_the_same_minute():
    """A script changes three queues, two of them at the same instant."""
    at = [NOON, NOON, NOON + 2 * SECOND]
    known = [Change(one, "x", "", entity_id) for entity_id, one in enumerate(at, 1)]
    assert [changes.chosen_of(known, one.at, one.entity_id) for one in known] == known
    assert changes.chosen_of(known, NOON + 3 * SECOND, None) == known[2]
    assert changes.chosen_of(known, NOON + MINUTE, None).entity_id == 3
    assert changes.chosen_of(known, NOON + 3 * SECOND, 9) == known[2]
    assert changes.chosen_of(known, NOON + HOUR, 1) == Change(NOON + HOUR, "the change", "")
    assert changes.chosen_of(known, None, 3) == known[0] and changes.chosen_of([], None, None) is None


@pytest.fixture
def queue(archive):
    """A queue with 40 completed messages, whose lock duration is changed then, and 40 more that are dead-lettered."""
    address = EntityAddress("reports", "q")
    namespaces.ensure_namespace("reports")
    entities.create_queue(address, lock_duration=30 * SECOND)
    for settle in (service_bus.complete, service_bus.dead_letter):
        service_bus.send(address, [Message(b"x") for _ in range(40)])
        settle(address, [one.lock_token for one in service_bus.receive(address, 40)])
        if settle is service_bus.complete:
            entities.update_entity(address, lock_duration=MINUTE)
    archiving.archive_events()
    return Entity.objects.get(path="q")


def test_the_page_says_what_a_change_did(viewer, report_of, queue):
    body = report_of("changes", queue=queue.pk, compare="week")
    assert "After lock duration: 00:00:30 → 00:01:00 at" in body
    assert "failed more (0.0 % → 100.0 %)" in body and "A week earlier there were too few messages." in body
    link = body.split('<th scope="row">')[-1].split('href="')[1].split('"')[0]
    chosen = body_of(viewer.get("/analyses/changes/" + link.replace("&amp;", "&")))
    assert "failed more (0.0 % → 100.0 %)" in chosen


def test_the_changes_of_two_queues_within_a_second_have_pages_of_their_own(viewer, report_of, queue):
    other = EntityAddress("reports", "other")
    entities.create_queue(other, lock_duration=30 * SECOND)
    entities.update_entity(other, lock_duration=2 * MINUTE)
    tomorrow, yesterday = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M}" for days in (1, -1))
    body = report_of("changes", namespace="reports", range="custom", start=yesterday, end=tomorrow, compare="week")
    links = [part.split('"')[0].replace("&amp;", "&") for part in body.split('<th scope="row"><a href="')[1:]]
    pages = [body_of(viewer.get("/analyses/changes/" + link)) for link in links if "at=" in link]
    said = [page.split('<p class="finding">')[1].split(" at ")[0] for page in pages]
    assert said == ["After lock duration: 00:00:30 → 00:02:00 of other", "After lock duration: 00:00:30 → 00:01:00 of q"]
    shown = pages[1].split('name="at" value="')[1].split('"')[0]
    assert len(shown) == len("2026-01-01T00:00:00.000") and f'name="of" value="{queue.pk}"' in pages[1]


def test_each_change_is_compared_once_and_only_with_few_enough_messages(report_of, queue, monkeypatch):
    entities.update_entity(EntityAddress("reports", "q"), lock_duration=2 * MINUTE)
    made, of_change = [], changes.of_change
    monkeypatch.setattr(changes, "of_change", lambda lives, one, length: made.append(one) or of_change(lives, one, length))
    assert "too many messages to compare" not in report_of("changes", queue=queue.pk)
    assert len(made) == len(set(made)) == 2
    monkeypatch.setattr(changes, "MOST_READ", 80)
    none = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT%H:%M}"
    assert "too many messages to compare" not in report_of("changes", queue=queue.pk, at=none)
    monkeypatch.setattr(changes, "MOST_READ", 79)
    body = report_of("changes", queue=queue.pk, at=none)
    assert body.count("too many messages to compare") == 2 and "80 messages are near this change" not in body
    assert "80 messages are near this change; at most 79 are compared" in report_of("changes", queue=queue.pk)


def test_messages_that_have_not_left_count_after_consumers_stopped(report_of, archive):
    """40 messages are received at once; after the change, 40 others are not."""
    address = EntityAddress("reports", "q")
    namespaces.ensure_namespace("reports")
    namespaces.pause_clock("reports")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"x") for _ in range(40)])
    service_bus.complete(address, [one.lock_token for one in service_bus.receive(address, 40)])
    namespaces.step_clock("reports", MINUTE)
    change = namespaces.get_clock("reports").now
    service_bus.send(address, [Message(b"x") for _ in range(40)])
    namespaces.step_clock("reports", MINUTE)
    archiving.archive_events()
    body = report_of("changes", namespace="reports", at=f"{change:%Y-%m-%dT%H:%M:%S.%f}")
    assert "waiting, median longer (0.0 ms → over 60 s)" in body
    assert "40 messages that entered after it have not left yet." in body


def test_a_namespace_with_another_clock_needs_an_instant(report_of, queue):
    namespaces.pause_clock("reports")
    assert "Changes are recorded in real time" in report_of("changes", queue=queue.pk)
    assert "too few to compare" in report_of("changes", queue=queue.pk, at="2026-01-01T12:00")


def test_a_deploy_is_marked_and_compared(client, viewer, report_of, queue):
    operator = signed_in(client, OPERATOR)
    response = operator.post(f"{PAGE}?queue={queue.pk}", {"name": " shop 1.4 "})
    assert response.status_code == 302 and "/analyses/changes/" in response["Location"]
    assert "the deploy of shop 1.4" in report_of("changes", namespace="reports")
    assert operator.post(f"{PAGE}?queue={queue.pk}", {"name": " "}).status_code == 400
    assert operator.get(PAGE).status_code == 404
    client.force_login(get_user_model().objects.get(username="viewer"))
    assert "requires the operator role" in body_of(client.get(PAGE, {"queue": queue.pk}))
    assert client.post(f"{PAGE}?queue={queue.pk}", {"name": "x"}).status_code == 403
    marks = AuditRecord.objects.filter(action="mark deploy")
    assert [(one.outcome, one.target) for one in marks] == [("refused", "reports: x"), ("done", "reports: shop 1.4")]


def test_a_pipeline_marks_a_deploy(db):
    namespaces.ensure_namespace("reports")
    out = StringIO()
    call_command("mark_deploy", "shop 2", namespace=["REPORTS"], stdout=out)
    assert out.getvalue() == "Marked the deploy of shop 2 in reports.\n"
    assert AuditRecord.objects.get(action="mark deploy").actor == "process:mark_deploy"
    namespaces.ensure_namespace("learn-1")
    Sandbox.objects.create(namespace="learn-1", owner=get_user_model().objects.create_user("ada"))
    call_command("mark_deploy", "shop 3", stdout=out)
    assert "learn" not in out.getvalue().splitlines()[-1]
    assert not AuditRecord.objects.filter(target__startswith="learn").exists()
    call_command("mark_deploy", "shop 4", namespace=["learn-1"], stdout=out)
    assert AuditRecord.objects.filter(target="learn-1: shop 4").exists()
    for name, chosen in (("x", ["none"]), ("a\nb", ["reports"])):
        with pytest.raises(CommandError):
            call_command("mark_deploy", name, namespace=chosen)


def test_a_range_without_changes_says_so(report_of, queue):
    then = datetime.now(UTC) - timedelta(days=30)
    body = report_of(
        "changes", queue=queue.pk, range="custom", start=f"{then:%Y-%m-%dT%H:%M}", end=f"{then + HOUR:%Y-%m-%dT%H:%M}"
    )
    assert "No settings were changed and no deploys were marked in this range." in body and "Mark a deploy" in body
