"""Now: the sentence, the problems and the charts, as the page and as a live update draw them."""

import re
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from broker_core import queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress, EntityStatus
from broker_core.reads import Times, TrafficPoint
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections, driver
from explorer import audit
from explorer.charts import sparklines
from explorer.demo import parts
from explorer.demo.designed import DesignedFailures
from explorer.demo.parts import DesignedFailure
from explorer.frames import recent
from explorer.live.page import View
from explorer.map import pages as live_map
from explorer.pages import attention, navigation, now
from explorer.people.roles import actor_for
from tests.fixtures import vhost  # noqa: F401 - fixture
from tests.rabbitmq import shortcuts

from .conftest import WORKER

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def body_of(response):
    return " ".join(response.content.decode().split())


def page_of(client, namespace):
    return client.get("/", {"namespace": namespace})


def test_entities_that_need_attention_are_listed_with_a_reason_and_an_action(shop, as_):
    answer = page_of(as_("operator"), shop.namespace)
    [entry] = answer.context["entries"]
    assert (entry.item.rule, entry.item.headline, entry.item.more) == ("dead", "1 dead letter", 1)
    assert entry.item.text == "PaymentRefused: no <money>."
    html = body_of(answer)
    assert "1 problem." in html and "PaymentRefused: no &lt;money&gt;." in html and "+1 in 5 min" in html
    assert entry.action.url == f"/dead-letters/dead-letter/{shop.namespace}/{shop.path}?q=reason%3DPaymentRefused"
    assert entry.action.word == "Review" and f'href="{entry.action.url}"' in html
    assert "no &lt;money&gt;" in body_of(as_("operator").get(entry.action.url))


def test_without_entries_the_page_says_that_all_is_well(broker_database, as_, namespace):
    entities.create_queue(EntityAddress(namespace, "quiet"))
    answer = page_of(as_("viewer"), namespace)
    assert "All is well." in body_of(answer) and answer.context["entries"] == []
    assert 'aria-label="What needs a person" hidden' in body_of(answer)


def test_a_namespace_shows_only_its_own_entries_and_an_unknown_namespace_is_not_found(shop, jobs, as_):
    client = as_("viewer")
    assert shop.namespace not in [e.item.entity.address.namespace for e in page_of(client, jobs.namespace).context["entries"]]
    answer = page_of(client, "nowhere")
    assert answer.status_code == 404 and "There is no namespace named nowhere." in body_of(answer)


def test_the_poison_queue_of_a_storage_queue_is_listed(jobs, as_):
    entries = page_of(as_("viewer"), jobs.namespace).context["entries"]
    assert [(e.item.rule, e.item.entity.address.path) for e in entries][0] == ("poison", "jobs-poison")
    assert entries[0].action.url == f"/dead-letters/main/{jobs.namespace}/jobs-poison"
    chart = reads.namespace_traffic(jobs.namespace)
    assert chart[-1].dead == reads.entity(EntityAddress(jobs.namespace, "jobs-poison")).counts.active > 0 == chart[0].dead
    assert as_("viewer").get(entries[0].action.url).status_code == 200


def test_a_poison_queue_of_any_name_is_listed_after_many_queues_that_are_fuller(account, as_):
    """It is a candidate for its poison messages, not among the queues without a receiver."""
    failed = EntityAddress(account, "failed")
    queue_storage.create_queue(failed)
    queue_storage.create_queue(EntityAddress(account, "jobs"), max_dequeue_count=2, poison_queue="failed")
    queue_storage.put(failed, "x")
    for name in ("one", "two"):
        queue_storage.create_queue(EntityAddress(account, name))
        queue_storage.put_all(EntityAddress(account, name), ["x", "y"])
    entries = reads.attention(reads.EntityFilter(namespace=account), most=1)
    assert {fact.entity.address.path for fact in entries.facts} == {"failed", "one"}
    [first, *_] = page_of(as_("viewer"), account).context["entries"]
    assert (first.item.rule, first.item.entity.address, first.item.headline) == ("poison", failed, "1 poison message")


def test_a_rabbitmq_queue_that_only_collects_dead_letters_is_listed(vhost, as_):  # noqa: F811
    shortcuts.declare(vhost, "work", dead_letter_exchange="amq.fanout")
    undelivered = shortcuts.declare(vhost, "undelivered")
    rabbitmq.bind_queue(vhost, "undelivered", "amq.fanout")
    shortcuts.send(undelivered, "x")
    [entry] = page_of(as_("viewer"), vhost).context["entries"]
    assert (entry.item.rule, entry.item.headline) == ("poison", "1 dead letter")
    assert entry.item.text == "Dead-lettered to this queue, and nothing consumes them."


@pytest.mark.parametrize(("role", "word"), [("administrator", "Open settings"), ("operator", "Open queue")])
def test_an_action_is_offered_only_with_the_required_role(broker_database, as_, namespace, role, word):
    queue = EntityAddress(namespace, "off")
    entities.create_queue(queue, status=EntityStatus.DISABLED)
    [entry] = page_of(as_(role), namespace).context["entries"]
    assert (entry.item.rule, entry.action.word) == ("disabled", word)


def test_the_total_of_dead_letters_agrees_with_the_inbox(jobs, shop, as_):
    """Poison messages are among them, as in the list that the number links to."""
    client = as_("viewer")
    for namespace in (jobs.namespace, shop.namespace):
        [dead] = [total for total in page_of(client, namespace).context["totals"] if total.name == "dead"]
        assert (dead.text, dead.after) == ("1", "dead letter")
        assert client.get(dead.url).context["dead_groups"].total == 1


def test_three_problems_are_shown_and_the_others_are_folded(broker_database, as_, namespace, monkeypatch):
    for number in range(7):
        queue = EntityAddress(namespace, f"q{number}")
        entities.create_queue(queue)
        service_bus.send(queue, [Message(b"x")], actor=WORKER)
    client = as_("viewer")
    answer = page_of(client, namespace)
    assert (len(answer.context["entries"]), len(answer.context["folded"])) == (3, 4)
    assert "<summary>4 more</summary>" in (html := body_of(answer)) and "Show all" not in html
    assert f'href="{reverse("explorer:glossary")}#attention"' in html
    monkeypatch.setattr(now, "FOLDED", 1)
    assert "<summary>4 more</summary>" in (html := body_of(page_of(client, namespace))) and "Show all" in html
    answer = client.get("/", {"namespace": namespace, "list": "all"})
    assert len(answer.context["entries"]) == 7 and "charts" not in answer.context
    assert "Show less" in body_of(answer)


def test_failures_of_the_demo_are_told_apart_and_ranked_last(broker_database, as_, namespace, monkeypatch):
    """What the demo does not do, such as another reason of dead letters, is a real problem."""
    meant, also, real = (EntityAddress(namespace, name) for name in ("a-meant", "b-also", "real"))
    for queue, reason in ((meant, "Meant"), (also, "Other"), (real, "Meant")):
        entities.create_queue(queue)
        service_bus.send(queue, [Message(b"x")] * 2, actor=WORKER)
        first, second = service_bus.receive(queue, 2, actor=WORKER)
        service_bus.dead_letter(queue, [first.lock_token], "Meant", "not", actor=WORKER)
        service_bus.dead_letter(queue, [second.lock_token], reason, "not", actor=WORKER)

    class Part:
        NAMESPACE = namespace
        DESIGNED = [DesignedFailure(path, "dead", "For show.", frozenset({"Meant"})) for path in ("a-meant", "b-also")]

    monkeypatch.setattr(now, "designed_failures", lambda: DesignedFailures([Part]))
    answer = page_of(as_("viewer"), namespace)
    shown = [(entry.item.entity.address.path, entry.text) for entry in answer.context["entries"]]
    assert shown[-1] == ("a-meant", "For show.") and {path for path, _ in shown[:2]} == {"b-also", "real"}
    html = body_of(answer)
    assert "2 problems, 1 by design of the demo." in html and html.count("demo, by design") == 1
    assert html.count('<li class="rising"') == 2, "what the demo is made to do is not red"


def test_queues_of_a_paused_demo_have_no_receivers_by_design():
    class Part:
        NAMESPACE = "shop"
        DESIGNED = [DesignedFailure("quiet", "receivers", "For you.")]

    running, paused = (DesignedFailures([Part], is_paused=is_paused) for is_paused in (False, True))
    assert running.why("shop", "quiet", "receivers") == "For you."
    assert not running.why("shop", "busy", "receivers") and paused.why("shop", "busy", "receivers") == "The demo is paused."
    assert not paused.why("shop", "busy", "dead") and not paused.why("mine", "busy", "receivers")


def test_each_designed_failure_of_the_demo_is_of_an_entity_and_a_rule_that_exist(broker_database):
    for part in parts.parts():
        part.seed()
        paths = {row.address.path for row in reads.overview(part.NAMESPACE)}
        for designed in part.DESIGNED:
            assert designed.path in paths and designed.rule in attention.RULES and designed.why.endswith("."), designed


def test_a_change_is_marked_in_the_charts(shop, as_):
    audit.done(WORKER, "purge", shop, target="all 4")
    audit.done(WORKER, "set policy", target=f"{shop.namespace}: ttl")
    audit.done(WORKER, "set policy", target="another: ttl")
    service_bus.send(shop, [Message(b"x")])
    answer = page_of(as_("viewer"), shop.namespace)
    assert [(mark.letter, mark.action, mark.where) for mark in answer.context["marks"]] == [
        ("A", "purge", f"{shop.namespace}/{shop.path}"),
        ("B", "set policy", f"{shop.namespace}: ttl"),
    ]
    html = body_of(answer)
    assert html.count('<g class="mark">') == 8 and "purge" in html


def test_the_totals_link_to_existing_pages(shop, as_):
    client = as_("viewer")
    for total in page_of(client, shop.namespace).context["totals"]:
        assert client.get(total.url).status_code == 200, total


def test_the_number_of_queries_does_not_grow_with_the_entities(broker_database, as_, namespace, monkeypatch):
    statements, execute = [], driver._execute
    own = threading.get_ident()

    def counted(step, connection):
        if threading.get_ident() == own:  # not: what other tests have left to work on
            statements.append(step)
        return execute(step, connection)

    monkeypatch.setattr(driver, "_execute", counted)

    def make(count, prefix):
        for number in range(count):
            queue = EntityAddress(namespace, f"{prefix}{number}")
            entities.create_queue(queue)
            service_bus.send(queue, [Message(b"x")], actor=WORKER)
            [got] = service_bus.receive(queue, actor=WORKER)
            service_bus.dead_letter(queue, [got.lock_token], "Why", "not", actor=WORKER)

    def queries():
        before = len(statements)
        answer = page_of(client, namespace)
        assert len(answer.context["entries"]) <= now.SHOWN
        return len(statements) - before

    monkeypatch.setattr(recent, "KEPT_SECONDS", 60.0)  # what all pages share is not read again
    for shared in (navigation._counts, navigation._namespaces, now._late_tasks):
        shared.clear()
    client = as_("viewer")
    make(1, "a")
    queries()
    few = queries()
    assert few > 5
    make(20, "b")
    assert queries() == few
    assert "At least 20 problems." in body_of(page_of(client, namespace))


def test_facts_have_the_trend_the_reason_and_the_quota(shop):
    [facts] = reads.attention(reads.EntityFilter(namespace=shop.namespace), fuller_than=0.0).facts
    assert (facts.dead[-1], facts.active[-1]) == (1, facts.entity.counts.active) and len(facts.dead) == 30
    assert facts.dead[0] == 0 and facts.active[0] == 0
    assert (facts.reason.reason, facts.reason.count, facts.reason.of) == ("PaymentRefused", 1, 1)
    assert facts.reason.all == {"PaymentRefused"}
    assert 0 < facts.quota_share < 0.001


def test_a_delayed_message_is_not_the_oldest_before_it_is_due(account):
    queue = EntityAddress(account, "mailings")
    queue_storage.create_queue(queue)
    queue_storage.put(queue, "tomorrow", visibility_timeout=timedelta(days=1))
    assert reads.entity(queue).oldest_active_at is None
    queue_storage.put(queue, "now")
    [got] = queue_storage.get(queue, visibility_timeout=timedelta(hours=1))
    assert reads.entity(queue).oldest_active_at == reads.message(queue, 2).row.enqueued_at, "a leased one has been due"


# Charts


def point(second, **values):
    return TrafficPoint(NOON + timedelta(seconds=second), 10, **({"sent": 0, "completed": 0, "dead_lettered": 0} | values))


def test_points_are_summed_by_whole_minutes():
    points = [point(s, sent=1, completed=2, active=s, dead=1, waiting=Times(1.0, 1.0, (0, 1))) for s in range(30, 150, 10)]
    first, last = sparklines.minutes([*points[:-1], point(140, partial=True)])
    assert (first.at, first.sent, first.completed, first.active, first.waited.count) == (
        NOON + timedelta(minutes=1),
        6,
        12,
        110,
        6,
    )
    assert first.is_over and not last.is_over


def test_the_four_charts_have_their_numbers_as_text():
    points = [point(s, sent=2, completed=1, active=7, dead=s // 60, partial=s == 1790) for s in range(0, 1800, 10)]
    rates, backlog, wait, dead = sparklines.four(points)
    assert [(entry.value, entry.word) for entry in rates.legend] == [("12", "in"), ("6", "out")]
    assert backlog.legend[0].value == "7" and [t.text for t in backlog.y_ticks] == ["0", "4", "8"]
    assert wait.series == () and wait.legend[0].value == "–"
    assert (dead.legend[0].value, dead.legend[0].word) == ("29", "+5 in 5 min")
    assert [t.text for t in rates.x_ticks] == ["12:00", "12:10", "12:20"]
    assert all("NaN" not in s.path for chart in (rates, backlog, dead) for s in chart.series)


@pytest.mark.parametrize("numbers", [(), (0, 0)])
def test_without_numbers_there_is_no_trend(numbers):
    assert sparklines.trend(numbers, "Messages") is None


def test_a_trend_ends_at_its_last_number():
    found = sparklines.trend((0, 2, 1), "Dead letters")
    assert (found.x, found.y) == (120.0, 12.0) and found.words == "Dead letters in the last 3 minutes: from 0 to 1"


def test_a_new_dead_letter_is_found_among_many_entities_with_old_dead_letters(broker_database, namespace):
    """However many entities have a few old dead letters, they do not hide one with a new one."""
    for number in range(4):
        queue = EntityAddress(namespace, f"q{number}")
        entities.create_queue(queue)
        service_bus.send(queue, [Message(b"x")] * 3, actor=WORKER)
        for got in service_bus.receive(queue, 3 if number else 1, actor=WORKER):
            service_bus.dead_letter(queue, [got.lock_token], "Why", "not", actor=WORKER)
    old = [reads.entity(EntityAddress(namespace, f"q{number}")).id for number in (1, 2, 3)]
    connections.current().execute("UPDATE vitrine_count_delta SET at = at - interval '1 hour' WHERE entity_id = ANY(%s)", [old])
    wanted = reads.EntityFilter(namespace=namespace)
    entries = reads.attention(wanted, many_dead=100, most=1)
    assert [fact.entity.address.path for fact in entries.facts if fact.entity.counts.dead_letter] == ["q0"]
    assert len([fact for fact in reads.attention(wanted, many_dead=3).facts if fact.entity.counts.dead_letter]) == 4


# Live


def test_a_live_update_has_the_same_parts_as_the_page_with_their_ids(shop, as_):
    client = as_("viewer")
    user = client.user
    view = View.of(f"/?namespace={shop.namespace}", actor_for(user), user)
    html, fragments = page_of(client, shop.namespace).content.decode(), view.draw().fragments
    fragments.pop(live_map.NUMBERS)  # these are parts of the map
    ids = [html_text for text in fragments.values() for html_text in re.findall(r'\sid="([^"]+)"', text)]
    assert {"now-health", "now-attention", "now-charts", "n-entities", "t-dead"} <= set(ids) and len(ids) == len(set(ids))
    assert all(f'id="{part}"' in html for part in ids)


def test_a_live_update_reads_only_what_is_due(shop, as_, monkeypatch):
    client = as_("viewer")
    view = View.of(f"/?namespace={shop.namespace}", actor_for(client.user), client.user)
    monkeypatch.setattr(reads, "namespace_traffic", None)
    assert set(view.draw({now.HEALTH}).fragments) == {now.HEALTH}


def test_an_activity_links_to_its_entity_and_its_message(shop, as_):
    audit.done(WORKER, "abandon", shop, target="message 3")
    audit.done(WORKER, "purge", shop, target="messages 4, 5")
    html = body_of(as_("viewer").get("/administration/activity/"))
    assert html.count(f'href="/entities/{shop.namespace}/{shop.path}"') == 2
    assert re.findall(r'href="(/messages/\w[^"]*)"', html) == [f"/messages/{shop.namespace}/{shop.path}/3"]
