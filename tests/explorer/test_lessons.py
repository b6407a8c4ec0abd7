"""Lessons: each one played to its end against the real broker, with right and with wrong predictions."""

import io
import re
import threading
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from cachetools import TTLCache
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import example, given
from hypothesis import strategies as st
from playwright.sync_api import expect

from broker_core import namespaces, operations, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.operations import Kind, State
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.reads import EventFilter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, compile_action
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections, driver
from broker_core.store.statements import SQL
from explorer import audit
from explorer import operations as bulk
from explorer.frames.family import pages_of
from explorer.frames.recent import Recent
from explorer.lessons import catalog, following, lesson, pages, sandboxes, words
from explorer.lessons import parts as screen_parts
from explorer.lessons.scenario import in_words
from explorer.lessons.stage import Stage
from explorer.live.page import View, comparable
from explorer.models import AuditRecord, FollowerAnswer, LessonProgress, Sandbox
from explorer.operations import runner
from explorer.operations.starting import DIRECT
from explorer.pages import navigation, tail
from explorer.people.roles import actor_for
from tests.eventually import eventually
from tests.html import body_of

from .conftest import FRAGMENT
from .test_accessibility import DESK, PHONE, problems

LESSONS = [one.slug for one in catalog.lessons() if not one.load]  # those of a load: test_load.py
LOOKED_AT = "expiry-under-lock"  # its steps, by axe-core


@pytest.fixture
def vera(as_):
    return as_("viewer")


def start(client, slug):
    """Start a lesson. Returns the address of its screen."""
    response = client.post("/learn/sandboxes/", {"lesson": slug})
    assert response.status_code == 302 and response["Location"].startswith("/learn/sandboxes/learn")
    return response["Location"]


def play(client, at):
    """Play the lesson to its end; every other prediction is right. Returns what the screen said after each step."""
    said, asked = [], 0
    for _ in range(60):
        page = client.get(at)
        run = page.context["run"]
        if run.is_over:
            return said
        where = f"{run.index + 1}, {run.step.title}"
        if run.step.ask and run.answer is None:
            assert not run.is_done, where
            asked += 1
            answer = (run.step.ask.right + asked % 2) % len(run.step.ask.choices)
            client.post(at, {"act": "answer", "answer": answer})
        elif not run.is_done:
            assert not run.is_performed, f"{where}: {body_of(page)}"
            client.post(at, {"act": "do"})
            done = client.get(at)
            awaited = done.context.get("awaited", ())
            assert done.context["done"], f"{where}: {list(awaited)}, {[str(m) for m in done.context['messages']]}"
        else:
            said.append(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body_of(page))))
            client.post(at, {"act": "next"})
    raise AssertionError("the lesson does not end")


@pytest.mark.slow
@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_can_be_completed_and_explains_wrong_predictions(slug, vera, transactional_db):
    at = start(vera, slug)
    said = play(vera, at)
    asked = sum(step.ask is not None for step in catalog.lesson(slug).steps)
    assert len(said) == len(catalog.lesson(slug).steps) and 5 <= len(said) <= 10
    assert sum("Your prediction was wrong." in one for one in said) == asked - asked // 2
    assert sum("Your prediction was right." in one for one in said) == asked // 2
    assert all("What the broker did" in one or "And now" in one for one in said if "Your prediction was wrong." in one)
    assert f"{asked // 2} of {asked} prediction" in body_of(vera.get(at))
    progress = LessonProgress.objects.get(owner=vera.user, lesson=slug)
    assert progress.completed_at


def test_a_step_is_completed_by_the_state_of_the_broker_whatever_caused_it(vera, transactional_db):
    at = start(vera, "peek-lock")
    namespace = at.rstrip("/").rpartition("/")[2]
    vera.post(f"/send/{namespace}/orders", {"body": "by hand", "message_id": "order-1", "copies": 1})
    page = vera.get(at)
    assert page.context["done"] and not page.context["run"].is_performed
    vera.post(at, {"act": "next"})
    vera.post(f"/receive/main/{namespace}/orders", {"action": "receive", "count": "1", "mode": "peek-lock"})
    assert vera.get(at).context["done"]


@pytest.mark.parametrize("slug", LESSONS)
def test_a_part_of_the_screen_appears_with_the_step_that_uses_it_and_stays(slug):
    steps, needed = catalog.lesson(slug).steps, screen_parts.needed
    at = [needed(steps, i, has_messages=False) for i in range(len(steps))]
    assert all(before <= after for before, after in pairwise(at))
    assert "board" not in at[0] and "board" in at[1] and "board" in needed(steps, 0, has_messages=True)
    assert "speed" not in at[-2] and at[-1] == screen_parts.EXCEPT_LOAD
    for i, step in enumerate(steps[:-1]):
        uses_clock = step.show == "clock" or any(do.action == "advance" for do in step.do)
        assert ("clock" in at[i]) == (uses_clock or i > 0 and "clock" in at[i - 1])
        assert ("timeline" in at[i]) == (step.show == "timeline" or i > 0 and "timeline" in at[i - 1])


def test_the_first_step_shows_only_what_it_needs(vera, transactional_db):
    at = start(vera, "peek-lock")
    first = body_of(vera.get(at))
    hidden = re.findall(r'id="(\w[\w-]*)"[^>]*\bhidden\b', first)
    assert {"places", "timeline", "time-bar"} <= set(hidden)
    assert "60×" not in first and "Look back" not in first and ">Play<" not in re.sub(r"\s+|<svg.*?</svg>", "", first)
    for step in range(6):
        vera.post(at, {"act": "answer", "answer": "1"})
        vera.post(at, {"act": "do"})
        shown = body_of(vera.get(at))
        assert 'id="places" hidden' not in shown, step
        vera.post(at, {"act": "next"})
    last = body_of(vera.get(at))
    assert "60×" in last and "Look back" in last and not re.search(r'id="(places|timeline|time-bar)"[^>]*\bhidden\b', last)


def test_the_glossary_is_a_tab_of_its_own(vera, transactional_db):
    lessons, glossary = body_of(vera.get("/learn/")), body_of(vera.get("/learn/glossary/"))
    assert 'id="locked"' not in lessons and "learn.js" in lessons
    for anchor in ("locked", "peek-lock", "filters", "attention-dead"):
        assert f'id="{anchor}"' in glossary, anchor
    assert vera.get("/words/")["Location"] == "/learn/glossary/"
    words = len(re.sub(r"(?s)<(script|svg|style).*?</\1>|<[^>]*>", " ", lessons[lessons.index("<main") :]).split())
    assert words < 600, words


def test_a_message_that_was_not_sent_yet_has_no_timeline(vera, transactional_db):
    page = body_of(vera.get(f"{start(vera, 'peek-lock')}?queue=orders&m=1"))
    assert "Message 1 has not been sent yet." in page and "history is off" not in page and "of message 1</span>" not in page


def test_the_actions_of_a_step_wait_for_the_prediction_and_the_next_step_for_the_broker(vera, transactional_db):
    at = start(vera, "expiry-under-lock")
    assert vera.post(at, {"act": "next"}, follow=True).context["run"].index == 0
    for _ in range(2):
        vera.post(at, {"act": "do"})
        vera.post(at, {"act": "next"})
    page = vera.post(at, {"act": "do"}, follow=True)
    assert page.context["run"].step.ask and "make your prediction first" in body_of(page)
    for wrong in ("7", "-1", "9" * 5000):
        page = vera.post(at, {"act": "answer", "answer": wrong}, follow=True)
        assert "must be one of the choices" in body_of(page)
    vera.post(at, {"act": "answer", "answer": "0"})
    vera.post(at, {"act": "answer", "answer": "1"})
    assert vera.get(at).context["run"].answer == 0, "the first prediction counts"
    vera.post(at, {"act": "do"})
    assert vera.get(at).context["done"]


def test_the_address_of_the_next_step_has_no_selected_message(vera, transactional_db):
    at = start(vera, "peek-lock")
    looked_at = f"{at}?queue=orders&m=1&words=rabbitmq"
    refused = vera.post(looked_at, {"act": "next"}, headers=FRAGMENT)
    assert refused.status_code == 400 and "HX-Replace-Url" not in refused
    assert "HX-Replace-Url" not in vera.post(looked_at, {"act": "do"}, headers=FRAGMENT)
    assert f'action="{at}?words=rabbitmq"' in body_of(vera.get(looked_at))
    assert vera.post(looked_at, {"act": "next"}, headers=FRAGMENT)["HX-Replace-Url"] == f"{at}?words=rabbitmq"


def test_a_step_that_the_broker_has_not_confirmed_is_reported(vera, transactional_db):
    at = start(vera, "peek-lock")
    namespace = at.rstrip("/").rpartition("/")[2]
    vera.post(at, {"act": "do"})
    vera.post(at, {"act": "next"})
    vera.post(f"/receive/main/{namespace}/orders", {"action": "receive", "count": "1", "mode": "receive-and-delete"})
    vera.post(at, {"act": "do"})
    shown = body_of(vera.get(at))
    assert "The broker has not confirmed this step yet." in shown and "message 1 in orders: locked" in shown
    vera.post(at, {"act": "reset"})
    page = vera.get(at)
    assert page.context["run"].index == 0 and not page.context["done"]


def test_a_viewer_has_all_rights_only_in_the_own_sandbox(vera, as_, shop, transactional_db):
    at = start(vera, "peek-lock")
    namespace = at.rstrip("/").rpartition("/")[2]
    assert vera.post(f"/clocks/{namespace}/", {"step": "5 s", "page": "/"}).status_code == 302
    assert vera.post(f"/send/{namespace}/orders", {"body": "x", "copies": 1}).status_code == 302
    assert vera.post(f"/send/{shop.namespace}/{shop.path}", {"body": "x", "copies": 1}).status_code == 403
    assert vera.post(f"/clocks/{shop.namespace}/", {"step": "5 s", "page": "/"}, headers=FRAGMENT).status_code == 403
    other = as_("viewer")
    assert other.get(at).status_code == 404
    assert other.post(f"/send/{namespace}/orders", {"body": "x", "copies": 1}).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_the_sandbox_of_another_user_is_neither_named_nor_readable(role, vera, as_, transactional_db):
    """Regression: the live map named it, and its pages opened."""
    namespace = start(vera, "peek-lock").rstrip("/").rpartition("/")[2]
    service_bus.send(EntityAddress(namespace, "orders"), [Message(b"x")])
    other, administrator = as_(role), as_("administrator")
    paths = [
        f"/namespaces/{namespace}/", f"/entities/{namespace}/orders", f"/entities/{namespace.upper()}/orders",
        f"/messages/{namespace}/orders/1", f"/filter-suggestions/{namespace}/orders", f"/?namespace={namespace}",
        f"/map/?namespace={namespace}", f"/map/?entity={namespace}/orders", f"/insights/?entity={namespace}/orders",
        f"/tail/?q=namespace:{namespace}", f"/dead-letters/?q=namespace:{namespace}", f"/locks/?q=namespace:{namespace}",
    ]  # fmt: skip
    for path in paths:
        assert other.get(path).status_code == 404, path
        assert administrator.get(path).status_code == vera.get(path).status_code != 404, path
    for path in (
        "/",
        "/map/",
        "/map/?view=table",
        "/entities/?all=1",
        "/tail/",
        "/insights/",
        "/administration/activity/",
        "/messages/?q=x",
    ):
        page = other.get(path)
        assert page.status_code == 200 and namespace not in body_of(page), path
    assert namespace not in body_of(administrator.get("/map/"))


def test_the_owner_of_a_sandbox_exports_and_undoes_as_an_operation(vera, as_, transactional_db):
    """A viewer may otherwise only download small exports. The addresses of operations name no namespace."""
    at = vera.post("/learn/sandboxes/", {"family": "service_bus"})["Location"]
    place = EntityAddress(at.rstrip("/").rpartition("/")[2], "queue")
    service_bus.send(place, [Message(b"x")] * (DIRECT + 1))
    begun = vera.get(f"/operate/{place}?kind=export&tab=active")
    assert begun.status_code == 200 and "Export" in body_of(begun)
    vera.post(f"/operate/{place}", {"kind": "export", "tab": "active", "all": "1", "confirmed": "1", "pace": "1000"})
    [export] = operations.newest(parts=[str(place)], limit=1)
    runner.run(export, seconds=None)
    assert len(list(vera.get(f"/operations/{export.id}/file/").streaming_content)) > 0
    assert as_("viewer").get(f"/operations/{export.id}/file/").status_code == 404

    vera.post(f"/operate/{place}", {"kind": "discard", "tab": "active", "numbers": ["1"]})
    [discarded] = operations.newest(parts=[str(place)], limit=1)
    url = f"/operations/{discarded.id}/"
    assert as_("viewer").post(f"{url}change/", {"action": "undo"}).status_code == 404
    assert operations.find(discarded.id).state is State.DONE
    assert f'action="{url}change/"' in body_of(vera.get(url))
    vera.post(f"{url}change/", {"action": "undo"})
    assert operations.find(discarded.id).state is State.UNDONE


def test_the_rights_of_an_actor_can_be_limited_to_one_namespace():
    actor = Actor("user", "vera", Right.ALL, namespace="learnvera1", rights_elsewhere=Right.BROWSE)
    actor.require(Right.MANAGE, "learnVera1")
    actor.require(Right.SEND | Right.LISTEN, EntityAddress("learnvera1", "orders"))
    actor.require(Right.BROWSE, EntityAddress("shop", "orders"))
    for place in ("shop", "all namespaces", "connection 7", EntityAddress("shop", "learnvera1")):
        with pytest.raises(NotAuthorized):
            actor.require(Right.OPERATE, place)


def test_an_address_with_nul_is_refused(vera, transactional_db):
    at = start(vera, "peek-lock")
    for place in ("%00/", "learn%00/", "%00/scenario.toml"):
        for ask in (vera.get, vera.post):
            assert ask(f"/learn/sandboxes/{place}").status_code in (404, 405), place
    for query in ("queue=%00", "queue=%00&m=1", "m=%00", "words=%00", "present=%00", "at=%00"):
        assert vera.get(f"{at}?{query}").status_code in (200, 400), query
    assert vera.post(f"{at}?queue=%00&m=1", {"act": "do"}, headers=FRAGMENT).status_code in (200, 400)


def test_the_sandboxes_of_several_users_are_isolated(vera, as_, transactional_db):
    first, second = start(vera, "peek-lock"), start(as_("operator"), "peek-lock")
    assert first != second
    vera.post(first, {"act": "do"})
    assert vera.get(first).context["done"]
    shown = as_("administrator").get("/entities/")
    names = [first.rstrip("/").rpartition("/")[2], second.rstrip("/").rpartition("/")[2]]
    assert not any(name in body_of(shown) for name in names), "sandboxes are left out of the pages about all namespaces"
    assert names[0] in body_of(as_("administrator").get("/entities/?all=1"))


def test_a_lesson_is_resumed_and_a_user_has_a_limited_number_of_sandboxes(vera, transactional_db):
    at = start(vera, "sessions")
    assert start(vera, "sessions") == at
    for _ in range(sandboxes.MOST_OF_ONE - 1):
        vera.post("/learn/sandboxes/", {"family": "queue_storage"})
    assert Sandbox.objects.filter(owner=vera.user).count() == sandboxes.MOST_OF_ONE
    page = vera.post("/learn/sandboxes/", {"family": "rabbitmq"}, follow=True)
    assert "You have 5 sandboxes, the maximum. Delete one of them first." in body_of(page)
    vera.post(at, {"act": "delete"})
    assert vera.get(at).status_code == 404
    assert vera.post("/learn/sandboxes/", {"family": "rabbitmq"})["Location"].startswith("/learn/sandboxes/")
    assert vera.post("/learn/sandboxes/", {"family": "elsewhere"}).status_code == 400
    assert vera.post("/learn/sandboxes/", {"lesson": "elsewhere"}).status_code == 404


def test_a_sandbox_without_a_lesson_cannot_be_presented(vera, transactional_db):
    at = vera.post("/learn/sandboxes/", {"family": "service_bus"})["Location"]
    page = vera.get(f"{at}?present=1")
    assert not page.context["is_presented"] and "Select Present" not in body_of(page)
    assert "Not shared. Select Present to create a link." in body_of(vera.get(f"{start(vera, 'peek-lock')}?present=1"))


def test_a_sandbox_without_a_lesson_has_its_own_actions(vera, transactional_db):
    for family in ("service_bus", "queue_storage", "rabbitmq"):
        at = vera.post("/learn/sandboxes/", {"family": family})["Location"]
        for tool, _ in enumerate(vera.get(at).context["tools"]):
            assert vera.post(at, {"act": "do", "tool": tool}).status_code == 302
        page = vera.get(at)
        assert "The broker refused" not in body_of(page) and page.context["entries"], family
        for wrong in ("99", "9" * 5000):
            assert vera.post(at, {"act": "do", "tool": wrong}, headers=FRAGMENT).status_code == 400


def test_a_sandbox_is_removed_a_day_after_it_was_started(vera, transactional_db):
    for family in ("service_bus", "queue_storage", "rabbitmq"):
        vera.post("/learn/sandboxes/", {"family": family})
    start(vera, "topics")
    assert sandboxes.remove_old() == {}
    Sandbox.objects.update(created_at=timezone.now() - sandboxes.LIFETIME * 1.01)
    assert sandboxes.remove_old() == {"removed": 4}
    assert not Sandbox.objects.exists()
    assert not [namespace.name for namespace in namespaces.list_namespaces() if namespace.name.startswith("learn")]


def test_a_lesson_whose_namespace_was_deleted_can_be_opened(vera, transactional_db):
    lesson = {"lesson": "visibility-timeout"}
    for visit in (
        lambda at: vera.get(at, follow=True),
        lambda at: vera.post(at, {"act": "reset"}, follow=True),
        lambda at: vera.post("/learn/sandboxes/", lesson, follow=True),
    ):
        at = vera.post("/learn/sandboxes/", lesson)["Location"]
        namespace = at.rstrip("/").rpartition("/")[2]
        assert vera.post(f"/delete-namespace/{namespace}/", {"name": namespace}).status_code == 302
        assert vera.get("/learn/").status_code == 200
        page = visit(at)
        assert page.redirect_chain[-1][0] == "/learn/" and f"{namespace} was deleted" in body_of(page)
        assert not Sandbox.objects.filter(owner=vera.user).exists() and vera.get(at).status_code == 404
    at = vera.post("/learn/sandboxes/", lesson)["Location"]
    assert vera.post(at, {"act": "delete"}, headers=FRAGMENT)["HX-Redirect"] == "/learn/"


@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_uses_terms_of_the_glossary_and_cites_its_source(slug):
    one = catalog.lesson(slug)
    assert one.summary and one.source[0] and one.source[1].startswith("https://")
    assert [words.unknown_terms(step.say) for step in one.steps if words.unknown_terms(step.say)] == []
    assert any(step.ask for step in one.steps)


def test_the_documentation_lists_all_keys_of_a_lesson_file():
    text = (Path(__file__).parents[2] / "docs" / "lessons.md").read_text()
    events = re.search(r"Values of `event`: ([^.]*)\.", text)[1]
    assert re.findall(r"`([^`]*)`", events) == list(lesson.EVENTS)
    of_one = re.search(r"need the `number` of a message: ([^.]*)\.", text)[1]
    actions = {name for family in Family for name, one in catalog.actions_of(family).items() if "number" in one.needs}
    assert set(re.findall(r"`([^`]*)`", of_one)) == actions


def test_a_step_can_be_shown_in_the_terms_of_another_family(vera, transactional_db):
    at = start(vera, "peek-lock")
    vera.post(at, {"act": "do"})
    vera.post(at, {"act": "next"})
    plain, rabbit = body_of(vera.get(at)), body_of(vera.get(f"{at}?words=rabbitmq"))
    assert "(ack, nack, reject)" in rabbit and "A consumer gets the delivery" in rabbit
    assert "(ack, nack, reject)" not in plain
    assert "visibility timeout" in body_of(vera.get(f"{at}?words=queue_storage"))
    assert vera.get(f"{at}?words=latin").context["words"] == "service_bus"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "is not TOML"),
        ('family = "service_bus"', "one.toml: title: is missing"),
        ('title = "a"\nfamily = "kafka"', "must be an installed family: service_bus, queue_storage, rabbitmq"),
        ('title = "a"\nfamily = "rabbitmq"', "add at least one [[step]]"),
        ('{t}[[step]]\ntitle = "b"', "step 1, say: is missing"),
        ('{s}speak = "d"', "step 1, speak: speak is unknown; use title, say"),
        ('{s}do = { action = "fly" }', "step 1, action: 'fly' is unknown; use one of abandon"),
        ('{s}do = { action = "complete", queue = "q" }', "step 1, action complete: needs number"),
        ('{s}do = { action = "advance", by = "soon" }', "'soon' must be a duration such as"),
        ('{s}expect = { event = "sung" }', "event 'sung' is unknown; use one of sent"),
        ('{s}expect = { }', "must name an event, or one of clock, deleted, policy and load"),
        ('{s}ask = { question = "q", choices = ["a", "b"], right = 3 }', "1 to 2"),
        ('{s}show = "moon"', "'moon' must be one of board, timeline, clock"),
    ],
)  # fmt: skip
def test_an_invalid_lesson_is_refused_with_the_file_the_step_and_the_remedy(text, problem):
    text = text.replace("{s}", '{t}[[step]]\ntitle = "b"\nsay = "c"\n').replace("{t}", 'title = "a"\nfamily = "service_bus"\n')
    with pytest.raises(lesson.BadLesson) as refused:
        lesson.read(text, "one", "one.toml", catalog.actions_of)
    assert str(refused.value).startswith("one.toml") and problem in str(refused.value)


@given(duration=st.timedeltas(timedelta(0), timedelta(days=36_500)))
@example(duration=timedelta(days=14))
@example(duration=timedelta(seconds=61, microseconds=234567))
def test_a_duration_round_trips(duration):
    assert parse_human_or_iso(lesson.seconds(duration)) == duration


@given(text=st.text(st.characters(codec="utf-8")))
def test_a_text_round_trips(text):
    assert tomllib.loads(in_words({"text": text})) == {"text": text}


def run_scenario(text, tmp_path):
    """Run a scenario file by the command. Returns what it prints."""
    file = tmp_path / "scenario.toml"
    file.write_text(text)
    out = io.StringIO()
    call_command("scenario", str(file), stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("slug", ["schedule-and-defer", "visibility-timeout", "ttl-and-dead-letters"])
def test_a_lesson_is_a_scenario_and_its_steps_are_recorded_as_a_scenario(slug, vera, tmp_path, transactional_db):
    family = catalog.lesson(slug).family
    file = Path(catalog.__file__).parents[1] / str(family) / "lessons" / f"{slug}.toml"
    assert "all" in run_scenario(file.read_text(), tmp_path)
    at = start(vera, slug)
    play(vera, at)
    recorded = vera.get(f"{at}scenario.toml")
    assert recorded["Content-Disposition"] == f'attachment; filename="{slug}.toml"'
    assert "steps as expected" in run_scenario(recorded.content.decode(), tmp_path)
    assert not [namespace.name for namespace in namespaces.list_namespaces() if namespace.name.startswith("scenario")]


def test_actions_on_the_normal_pages_are_recorded(vera, as_, tmp_path, transactional_db):
    at = vera.post("/learn/sandboxes/", {"family": "service_bus"})["Location"]
    namespace = at.rstrip("/").rpartition("/")[2]
    sent = {"body": "x", "message_id": "order-1", "copies": 1, "time_to_live": "1 h", "subject": "placed"}
    assert vera.post(f"/send/{namespace}/queue", sent).status_code == 302
    vera.post(f"/receive/main/{namespace}/queue", {"action": "receive", "count": "1", "mode": "peek-lock"})
    vera.post(f"/clocks/{namespace}/", {"step": "31 s", "page": "/"})
    vera.post(at, {"act": "do", "tool": "3"})
    text = vera.get(f"{at}scenario.toml").content.decode()
    assert 'do = { action = "send", queue = "queue", ids = ["order-1"], body = "x", ttl = "3600 s", subject = "placed" }' in text
    assert 'action = "advance", by = "31 s"' in text and 'event = "lock lost", queue = "queue", number = 1, count = 1' in text
    assert 'action = "receive", as = "worker-1"' in text
    assert "all 4 steps as expected" in run_scenario(text, tmp_path)
    assert as_("viewer").get(f"{at}scenario.toml").status_code == 404


LIST_OF = {"service_bus": "active", "queue_storage": "all", "rabbitmq": "ready"}


@pytest.mark.parametrize("family", LIST_OF)
def test_manual_removals_are_recorded_and_unrepeatable_actions_are_named(family, vera, tmp_path, transactional_db):
    at = vera.post("/learn/sandboxes/", {"family": family})["Location"]
    namespace = at.rstrip("/").rpartition("/")[2]
    queue, person = EntityAddress(namespace, "queue"), Actor("user", vera.user.get_username(), Right.ALL)
    create_second(family, namespace)
    for _ in range(6):
        send(family, queue, b"x", person)
    removed = [operate(queue, family, number, person) for number in (1, 2)]
    operate(queue, family, 3, person, Kind.DISCARD)
    operate(queue, family, 4, person, Kind.MOVE, options={"to": pages_of(family).operations.target("second")})
    receive_manually(family, namespace, vera)
    bulk.change(removed[1], "undo", actor=person)
    text = vera.get(f"{at}scenario.toml").content.decode()
    assert '# not recorded: event = "restored", queue = "queue", number = 2' in text
    assert text.count("# not recorded") == 1
    for action in ("purge", "discard", "move"):
        assert f'do = {{ action = "{action}"' in text
    scenario = lesson.read(text, "scenario", "scenario.toml", catalog.actions_of)
    received = [step for step in scenario.steps if step.do[0].action in ("receive", "get")]
    assert [expectation.attributes["number"] for step in received for expectation in step.expect] == {"rabbitmq": [5, 5]}.get(
        family, [5]
    )
    assert "steps as expected" in run_scenario(text, tmp_path)


def create_second(family, namespace):
    queue = EntityAddress(namespace, "second")
    {"service_bus": entities.create_queue, "queue_storage": queue_storage.create_queue, "rabbitmq": rabbitmq.declare_queue}[
        family
    ](queue)


def operate(queue, family, number, actor, kind=Kind.PURGE, **how):
    """An operation on one message, as the buttons of its list start it."""
    chosen = bulk.selection(queue, Family(family), LIST_OF[family], numbers=[number])
    done = bulk.start(kind, chosen, actor=actor, **how)
    assert done.done == 1
    return done


def receive_manually(family, namespace, client):
    """Receive the message at the head, and delete or settle it where the page does so at once."""
    page, form = {
        "service_bus": ("receive/main", {"action": "receive", "count": "1", "mode": "receive-and-delete"}),
        "queue_storage": ("receive/main", {"action": "get", "numofmessages": "1", "visibilitytimeout": "30 s"}),
        "rabbitmq": ("rabbitmq/get", {"count": "1", "mode": "ack"}),
    }[family]
    answer = client.post(f"/{page}/{namespace}/queue", form)
    assert answer.status_code in (200, 302)


def test_a_failed_scenario_names_the_expectation_and_the_brokers_result(tmp_path, transactional_db):
    text = """title = "A bug report"
family = "service_bus"
[[setup]]
action = "create_queue"
queue = "q"
[[step]]
title = "Send"
say = "One."
do = { action = "send", queue = "q", ids = ["a"] }
expect = { event = "sent", queue = "q", number = 1 }
[[step]]
title = "Receive"
say = "It."
do = { action = "receive", queue = "q" }
expect = { event = "received", queue = "q", number = 2 }
"""
    with pytest.raises(CommandError) as failed:
        run_scenario(text, tmp_path)
    said = str(failed.value)
    assert failed.value.returncode == 1 and "FAILED  2. Receive" in said
    assert 'expected: event = "received", queue = "q", number = 2' in said
    assert 'the broker did: event = "received", queue = "q", number = 1' in said
    with pytest.raises(CommandError, match=r"scenario.toml: step 2, action: 'fly' is unknown"):
        run_scenario(text.replace('"receive", queue', '"fly", queue'), tmp_path)
    with pytest.raises(CommandError, match="refused:"):
        run_scenario(text.replace('"receive", queue = "q" }', '"receive_deferred", queue = "q", number = 9 }'), tmp_path)
    assert not [namespace.name for namespace in namespaces.list_namespaces() if namespace.name.startswith("scenario")]


def test_other_users_follow_a_presentation_and_their_answers_are_counted(vera, as_, transactional_db):
    at = start(vera, "expiry-under-lock")
    for _ in range(2):
        vera.post(at, {"act": "do"})
        vera.post(at, {"act": "next"})
    shared = vera.post(at, {"act": "present"})
    assert shared["Location"] == f"{at}?present=1"
    presented = body_of(vera.get(f"{at}?present=1"))
    link = re.search(r'href="(/learn/follow/\w+/)"', presented)[1]
    assert 'class="side"' not in presented and "Follow at" in presented and "0 answers" in presented
    followers = [as_("viewer") for _ in range(3)]
    for follower, choice in zip(followers, (1, 1, 0), strict=True):
        page = body_of(follower.get(link))
        assert "Following" in page and "Predict" in page and 'value="do"' not in page and "from followers" not in page
        assert follower.post(link, {"answer": choice}).status_code == 302
    for wrong in ("9", "9" * 5000):
        assert followers[0].post(link, {"answer": wrong}, headers=FRAGMENT).status_code == 400
    assert followers[0].post(link, {"act": "do", "answer": "1"}).status_code == 302
    page = vera.get(f"{at}?present=1")
    assert [(vote.count, vote.total) for vote in page.context["votes"]] == [(1, 3), (2, 3), (0, 3)]
    vera.post(at, {"act": "answer", "answer": "1"})
    vera.post(at, {"act": "do"})
    assert "Your prediction was right." in body_of(followers[0].get(link))
    assert "Your prediction was wrong." in body_of(followers[2].get(link)) and "3 answers" in body_of(followers[2].get(link))
    vera.post(f"{at}?present=1", {"act": "next"})
    assert followers[0].get(link).context["run"].index == 3
    stranger = as_(None)
    assert [stranger.get(link).status_code, stranger.post(link, {"answer": "0"}).status_code] == [403, 403]
    assert FollowerAnswer.objects.filter(follower=stranger.user).count() == 0
    vera.post(at, {"act": "end"})
    namespace = at.rstrip("/").rpartition("/")[2]
    done = AuditRecord.objects.filter(target=namespace, action__in=("present lesson", "end presentation")).order_by("id")
    assert [one.action for one in done] == ["present lesson", "end presentation"]
    assert followers[0].get(link).status_code == 404


@pytest.fixture
def statements(monkeypatch):
    """Those that the explorer sends to the broker's tables, by name."""
    counted = Counter()
    execute = driver._execute

    def counting(statement, connection):
        counted[getattr(statement, "name", "batch")] += 1
        return execute(statement, connection)

    monkeypatch.setattr(driver, "_execute", counting)
    return counted


def test_a_live_update_of_a_follower_needs_few_statements(vera, as_, statements, monkeypatch, transactional_db):
    """The feed draws a frame for each follower every second. What does not depend on the follower is read for the first one."""
    monkeypatch.setattr(following, "_shared", TTLCache(following.MOST_SHARED, 3600))
    at = start(vera, "expiry-under-lock")
    link = re.search(r"/learn/follow/\w+/", body_of(vera.post(at, {"act": "present"}, follow=True)))[0]
    followers = [as_("viewer") for _ in range(2)]
    views = [View.of(link, actor_for(follower.user), follower.user) for follower in followers]

    def frames():
        """What each follower sees, without what it predicted. Checks what that costs."""
        shown = []
        for view, most in zip(views, (31, 6), strict=True):
            statements.clear()
            with CaptureQueriesContext(connection) as queries:
                shown.append(view.draw().fragments)
            assert statements.total() <= most, statements
            assert len(queries) <= 7, [query["sql"] for query in queries]
        first, other = ({name: comparable(html) for name, html in one.items() if name != pages.LESSON} for one in shown)
        assert first == other
        return shown

    for step in catalog.lesson("expiry-under-lock").steps[:3]:
        assert all(step.title in frame[pages.LESSON] for frame in frames())
        for n, follower in enumerate(followers):
            if step.ask:
                follower.post(link, {"answer": str((step.ask.right + n) % 3)})
                vera.post(at, {"act": "answer", "answer": "0"})
        vera.post(at, {"act": "do"})
        done = [frame[pages.LESSON] for frame in frames()]
        assert all("lesson-result" in one for one in done), step.title
        if step.ask:
            assert ["was right" in one for one in done] == [True, False]
        vera.post(at, {"act": "next"})
    namespaces.step_clock(at.rstrip("/").rpartition("/")[2], timedelta(seconds=5), actor=sandboxes.BUILDER)
    before = frames()
    entities.create_queue(EntityAddress(at.rstrip("/").rpartition("/")[2], "later"))
    assert "later" not in before[1][pages.PLACES] and "later" in frames()[1][pages.PLACES]


FOREIGN = """INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number)
SELECT now(), %s, 0, 'process:foreign', 1, n FROM generate_series(1, 20000) AS n"""


def examined(plan):
    """How many events a plan examined."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    is_scan = plan.get("Relation Name", "").startswith("vitrine_message_event")
    return own * plan["Actual Loops"] * is_scan + sum(map(examined, plan.get("Plans", ())))


def test_a_sandbox_reads_few_events_of_a_busy_site(vera, shop, monkeypatch, transactional_db):
    """The events of a step are found, and neither its start nor a look reads again what happened elsewhere before."""
    read = []
    execute = driver._execute

    def reading(statement, on):
        if getattr(statement, "name", "") == "read_events_since":
            read.append(statement.params)
        return execute(statement, on)

    monkeypatch.setattr(driver, "_execute", reading)

    def last_read():
        """How many events the last statement of a page examines, and how many statements the page needed."""
        with connections.current().cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, FORMAT json) " + SQL["read_events_since"], read[-1])
            [[[found]]] = cursor.fetchall()
        statements = len(read)
        read.clear()
        return examined(found["Plan"]), statements

    def others():
        with connection.cursor() as cursor:
            cursor.execute(FOREIGN, [0])

    others()
    at = start(vera, "peek-lock")
    assert not vera.get(at).context["done"]
    assert last_read() == (0, 2)
    vera.post(at, {"act": "do"})
    others()
    page = vera.get(at)
    assert page.context["done"] and [event.kind.name for event in page.context["run"].events] == ["SENT"]
    assert len(page.context["time_bar"].past) == 1
    read.clear()
    others()
    vera.get(at)
    vera.get(at)
    assert last_read() == (0, 4)
    vera.post(at, {"act": "next"})
    read.clear()
    assert not vera.get(at).context["done"]
    assert last_read() == (0, 2)
    recorded = vera.get(f"{at}scenario.toml").content.decode()
    assert recorded.count("event = ") == 1 and 'event = "sent"' in recorded


def in_between(monkeypatch, act):
    """Do something in another tab while the actions of a step or of a sandbox are performed."""
    perform = Stage.perform

    def performed(stage, wanted):
        done = perform(stage, wanted)
        monkeypatch.setattr(Stage, "perform", perform)
        act()
        return done

    monkeypatch.setattr(Stage, "perform", performed)


def test_changes_of_another_tab_during_an_action_are_kept(vera, monkeypatch, transactional_db):
    at = start(vera, "peek-lock")
    vera.post(at, {"act": "present"})
    in_between(monkeypatch, lambda: vera.post(at, {"act": "end"}))
    vera.post(at, {"act": "do"})
    assert Sandbox.objects.get(owner=vera.user).code == "" and vera.get(at).context["done"]
    vera.post(at, {"act": "next"})
    for place in (at, vera.post("/learn/sandboxes/", {"family": "rabbitmq"})["Location"]):
        in_between(monkeypatch, lambda at=place: vera.post(at, {"act": "delete"}))
        vera.post(place, {"act": "do", "tool": "0"})
        assert not Sandbox.objects.filter(namespace=place.rstrip("/").rpartition("/")[2]).exists()


def test_receivers_of_a_sandbox_can_fail_until_its_clock_has_advanced(vera, as_, transactional_db):
    for family, tool, kinds in (
        ("service_bus", 4, {"failing": "abandoned", "slow": "received", "disconnected": "received"}),
        ("queue_storage", 3, {"failing": "abandoned", "slow": "received", "disconnected": "received"}),
        ("rabbitmq", 2, {"failing": "abandoned", "disconnected": "lock lost"}),
    ):
        at = vera.post("/learn/sandboxes/", {"family": family})["Location"]
        namespace = at.rstrip("/").rpartition("/")[2]
        label = vera.get(at).context["tools"][tool][1]
        assert label.startswith("Let worker-1") and "and" in label
        vera.post(at, {"act": "fault", "receiver": "worker-1", "kind": "killed"})
        vera.post(at, {"act": "do", "tool": "0"})
        refused = vera.post(at, {"act": "do", "tool": tool}, headers=FRAGMENT)
        assert "worker-1 is killed for another 1 min. Advance the clock, or end the fault." in body_of(refused)
        assert newest_event(namespace) == "sent"
        for kind, event in kinds.items():
            vera.post(at, {"act": "do", "tool": "0"})
            vera.post(at, {"act": "fault", "receiver": "worker-1", "kind": kind})
            assert f"worker-1 is {kind} for 1 min" in body_of(vera.get(at))
            vera.post(at, {"act": "do", "tool": tool})
            assert newest_event(namespace) == event, (family, kind)
        assert [receiver.fault.kind if receiver.fault else None for receiver in vera.get(at).context["receivers"]] == [kind, None]
        vera.post(f"/clocks/{namespace}/", {"step": "1 min", "page": "/"})
        assert not any(receiver.fault for receiver in vera.get(at).context["receivers"])
        vera.post(at, {"act": "do", "tool": tool})
        assert newest_event(namespace) == "completed", "the fault is over"
        vera.post(at, {"act": "fault", "receiver": "worker-1", "kind": "killed"})
        vera.post(at, {"act": "end_fault", "receiver": "worker-1"})
        assert not any(receiver.fault for receiver in vera.get(at).context["receivers"])
        for wrong in ({"receiver": "worker-9", "kind": "killed"}, {"receiver": "worker-1", "kind": "stopped"}):
            assert vera.post(at, {"act": "fault", **wrong}, headers=FRAGMENT).status_code == 400
        assert as_("administrator").post(at, {"act": "fault", "receiver": "worker-1", "kind": "killed"}).status_code == 404
        drawn = body_of(vera.get(f"/map/?namespace={namespace}"))
        menus = [unescape(url) for url in re.findall(r'"(/map/\?[^"]*actor=[^"]*)"', drawn)]
        assert any(f'"{at}#fault-worker-1"' in body_of(vera.get(url)) for url in menus), (family, menus)


def newest_event(namespace):
    """The kind of the newest event of a namespace, in words."""
    return reads.events(EventFilter(namespace=namespace), limit=1).rows[0].kind.name.lower().replace("_", " ")


LISTS = ("/locks/", "/dead-letters/", "/operations/")


def test_lists_about_all_namespaces_leave_out_sandboxes(vera, as_, transactional_db):
    """All of them; if they are asked for, those of others, except for administrators."""
    at = vera.post("/learn/sandboxes/", {"family": "service_bus"})["Location"]
    namespace = at.rstrip("/").rpartition("/")[2]
    vera.post(f"/send/{namespace}/queue", {"body": "x", "message_id": "secret-1", "copies": 2})
    stage = catalog.stage(namespace, catalog.lesson("peek-lock").family, sandboxes.BUILDER)
    receive, dead_letter = lesson.Do("receive", {"queue": "queue"}), lesson.Do("dead_letter", {"queue": "queue", "number": 1})
    assert stage.perform([receive, dead_letter, receive])[1] is None
    vera.post(f"/operate/{namespace}/queue", {"kind": "discard", "tab": "active", "numbers": ["2"]})
    people, place = (vera, as_("operator"), as_("administrator")), f"/{namespace}/queue"
    for address in (
        *(f"{message_list}?all=1" for message_list in LISTS),
        "/entities/?all=1",
        "/messages/?q=secret-1",
        "/administration/activity/",
    ):
        assert [place in body_of(client.get(address)) for client in people] == [True, False, True], address
    for address in (*LISTS, "/", "/entities/", "/map/", "/tail/"):
        assert [place in body_of(client.get(address)) for client in people] == [False, False, False], address
    for address in ("/analyses/", "/configuration/"):
        assert [namespace in body_of(client.get(address)) for client in people] == [True, False, False], address
    for address in (
        f"/namespaces/{namespace}/",
        f"/map/?namespace={namespace}",
        f"/?namespace={namespace}",
        f"/tail/?q=namespace:{namespace}",
    ):
        assert place in body_of(vera.get(address)), address


def test_a_sandbox_is_named_by_its_lesson(vera, as_, shop, monkeypatch, transactional_db):
    monkeypatch.setattr(navigation, "_namespaces", Recent(reads.namespaces))  # not those of the test before
    title, owner = catalog.lesson("peek-lock").title, vera.user.get_username()
    for of, at in (
        (f": {title}", start(vera, "peek-lock")),
        ("", vera.post("/learn/sandboxes/", {"family": "rabbitmq"})["Location"]),
    ):
        namespace = at.rstrip("/").rpartition("/")[2]
        for client, named in ((vera, f"Sandbox{of}"), (as_("administrator"), f"Sandbox of {owner}{of}")):
            page = body_of(client.get(f"/namespaces/{namespace}/"))
            assert f"<strong>{named}</strong>" in page and f"<h1>{named}</h1>" in page, named


def test_the_forms_of_a_lesson_are_sent_once(vera, transactional_db):
    """The screen drops what is pressed while its request runs, instead of sending it afterwards; what belongs to a step says to
    which, because the next step's button may be there before the answer."""
    lesson_at = start(vera, "peek-lock")
    sandbox_at = vera.post("/learn/sandboxes/", {"family": "service_bus"})["Location"]
    for at in (lesson_at, sandbox_at):
        page = body_of(vera.get(at))
        forms = re.findall(r'(?s)<form[^>]*hx-target="#lesson-screen".*?</form>', page)
        assert len(forms) >= 2 and all('hx-sync="this:drop"' in form or 'name="step"' in form for form in forms)


def test_a_button_of_a_completed_step_has_no_effect(vera, transactional_db):
    """Such as one that was pressed twice."""
    at = start(vera, "peek-lock")
    vera.post(at, {"act": "do", "step": "1"})
    for _ in range(2):
        assert vera.post(at, {"act": "next", "step": "1"}, headers=FRAGMENT).status_code == 200
    vera.post(at, {"act": "do", "step": "1"})
    run = vera.get(at).context["run"]
    assert (run.index, run.is_performed) == (1, False)
    assert 'name="step" value="2"' in body_of(vera.get(at))


def test_a_button_that_is_pressed_while_another_request_runs_waits_for_it(vera, transactional_db, monkeypatch):
    """The broker may say that a step is done before the request that performs it has written its end."""
    at = start(vera, "peek-lock")
    performed, may_end = threading.Event(), threading.Event()
    perform, noted = Stage.perform, len(Sandbox.objects.get().state["log"])

    def slow(stage, actions):
        done = perform(stage, actions)
        performed.set()
        assert may_end.wait(20)
        return done

    monkeypatch.setattr(Stage, "perform", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(posted, vera, at, {"act": "do", "step": "1"})
        assert performed.wait(20)
        assert vera.get(at).context["done"]
        second = threads.submit(posted, vera, at, {"act": "next", "step": "1"})
        eventually(lambda: waiting_for_locks() == 1, 20)
        may_end.set()
        first.result(20)
        second.result(20)
    run = vera.get(at).context["run"]
    assert (run.index, run.is_performed, len(run.state["log"])) == (1, False, noted + 1)


def posted(client, at, form):
    """The status of a request of a thread, which leaves no connection behind."""
    try:
        return client.post(at, form).status_code
    finally:
        connection.close()


def waiting_for_locks():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
        return cursor.fetchone()[0]


def test_the_activity_page_leaves_out_the_sandboxes_of_other_users(vera, as_, transactional_db):
    """Also with a sandbox as a whole, whose name its record has as the target, alone or with more words."""
    namespace = start(vera, "peek-lock").rstrip("/").rpartition("/")[2]
    vera.post(f"/clocks/{namespace}/", {"step": "5 s", "page": "/"})
    audit.done(Actor("user", "olga"), "note", target=f"{namespace}x, which only begins like it")
    shown = [body_of(client.get("/administration/activity/")) for client in (vera, as_("operator"))]
    assert [f"{namespace}: 5 s" in page for page in shown] == [True, False]
    assert all(f"{namespace}x, which" in page for page in shown)


def test_busy_sandboxes_do_not_fill_the_live_tail(vera, shop, transactional_db):
    namespace = start(vera, "peek-lock").rstrip("/").rpartition("/")[2]
    service_bus.send(EntityAddress(namespace, "orders"), [Message(b"x")] * (tail.ROWS + 1))
    assert f"/{shop.namespace}/{shop.path}" in body_of(vera.get("/tail/"))


def test_only_lists_with_own_sandboxes_are_rendered_for_each_user(vera, transactional_db):
    start(vera, "peek-lock")
    viewer = actor_for(vera.user)
    for page in (*LISTS, "/tail/"):
        own_locks = page == "/locks/"  # can be released without a dialog
        assert View.of(page, viewer, vera.user).draw().live.personal == own_locks, page
    for page in LISTS:
        assert View.of(f"{page}?all=1", viewer, vera.user).draw().live.personal, page


SENDS = {"service_bus": "send", "queue_storage": "put", "rabbitmq": "publish"}


@pytest.mark.parametrize("family", SENDS)
def test_a_recording_has_bodies_and_settings_and_runs_as_a_scenario(family, vera, tmp_path, transactional_db):
    at = vera.post("/learn/sandboxes/", {"family": family})["Location"]
    namespace = at.rstrip("/").rpartition("/")[2]
    configure(family, namespace)
    text, person = '{"total": "12 €"}\n', Actor("user", vera.user.get_username(), Right.ALL)
    for body in (text, "long " * 2000):
        send(family, EntityAddress(namespace, "queue"), body.encode(), person)
    recorded = vera.get(f"{at}scenario.toml").content.decode()
    scenario = lesson.read(recorded, "scenario", "scenario.toml", catalog.actions_of)
    sent = [do.arguments for step in scenario.steps for do in step.do if do.action == SENDS[family]]
    assert [one.get("body", one.get("text")) for one in sent] == [text, None] and sent[1]["size"] == 10_000
    with patch.object(sandboxes, "delete_namespace"):  # so that what it left can be compared
        assert "as expected" in run_scenario(recorded, tmp_path)
    [copy] = [one.name for one in namespaces.list_namespaces() if one.name.startswith("scenario")]
    own = catalog.configuration(copy, scenario.family, sandboxes.BUILDER)
    assert own == catalog.configuration(namespace, scenario.family, sandboxes.BUILDER)
    body = reads.body(EntityAddress(copy, "queue"), 1)
    assert body and body.content == text.encode()
    sandboxes.delete_namespace(copy, family)


def send(family, queue, body, actor):
    """As a person does it with the pages' own controls."""
    if family == "service_bus":
        service_bus.send(queue, [Message(body, content_type="application/json")], actor=actor)
    elif family == "queue_storage":
        queue_storage.put(queue, body.decode(), actor=actor)
    else:
        rabbitmq.publish(queue.namespace, [Publication(body, "", queue.path, Properties())], actor=actor)


def configure(family, namespace):
    """What a person sets with the pages' own controls: an entity of its own, and a change of one that was there."""
    queue = EntityAddress(namespace, "queue")
    if family == "service_bus":
        entities.create_queue(EntityAddress(namespace, "second"), lock_duration=timedelta(seconds=20), requires_session=True)
        topic = EntityAddress(namespace, "topic")
        entities.create_topic(topic)
        entities.create_subscription(topic.subscription("all"))
        large = Rule("Large", CorrelationFilter(subject="large", properties={"size": 3}), compile_action("SET sys.label = 'x'"))
        entities.create_rule(topic.subscription("all"), large)
        entities.update_queue(queue, max_delivery_count=5, default_message_time_to_live=timedelta(hours=2))
    elif family == "queue_storage":
        queue_storage.create_queue(EntityAddress(namespace, "second"), max_dequeue_count=4, poison_queue="bad")
        queue_storage.update_queue(queue, max_dequeue_count=9)
    else:
        rabbitmq.declare_queue(EntityAddress(namespace, "second"), arguments={"x-message-ttl": 60_000})
        rabbitmq.declare_exchange(namespace, "events", "topic")
        rabbitmq.bind_queue(namespace, "second", "events", "a.*")
        rabbitmq.set_policy(namespace, Policy("short", "^q", {"message-ttl": 5_000_000}, "queues", 3))


# The last ones: commands do not run while a browser's event loop is in this thread.


@pytest.mark.slow
@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_is_played_by_keyboard_alone(slug, live_site, new_context, sign_in, person):
    """Every other prediction is right."""
    vera = person("viewer", "vera")
    context = new_context(viewport=DESK, bypass_csp=True)
    sign_in(context, vera)
    page = context.new_page()
    if slug == LOOKED_AT:
        page.goto(f"{live_site}/learn/#peek-lock")
        page.wait_for_url("**/learn/glossary/#peek-lock")  # an address of earlier versions
        assert problems(page) == []
    page.goto(f"{live_site}/learn/")
    assert slug != LOOKED_AT or problems(page) == []
    lesson, asked = catalog.lesson(slug), 0
    page.get_by_role("button", name=re.compile(f"Start.*{re.escape(lesson.title)}")).focus()
    page.keyboard.press("Enter")
    for number, step in enumerate(lesson.steps, 1):
        expect(page.locator("#step-title")).to_have_text(step.title)
        expect(page.locator(".lesson-progress")).to_contain_text(f"Step {number} of {len(lesson.steps)}")
        if number == 1:
            page.locator("#go-on").focus()
        if step.ask:
            asked += 1
            expect(page.get_by_role("button", name="Predict")).to_be_visible()
            assert slug != LOOKED_AT or asked > 1 or problems(page) == []
            page.locator("input[name=answer]").first.focus()
            for _ in range((step.ask.right + (asked + 1) % 2) % len(step.ask.choices)):
                page.keyboard.press("ArrowDown")
            page.keyboard.press("Space")
            page.keyboard.press("Enter")
            expect(page.locator(".ask")).to_contain_text("Your prediction")
            page.locator("#go-on").focus()
        if step.do:
            page.keyboard.press("Enter")
            expect(page.locator("#go-on")).to_have_text(re.compile("Continue|Finish"))
            expect(page.locator("#go-on")).to_be_focused()
            if step.ask:
                told = "Your prediction was right." if asked % 2 else "Your prediction was wrong."
                expect(page.locator(".lesson-result")).to_contain_text(told)
                assert slug != LOOKED_AT or asked > 1 or problems(page) == []
        page.keyboard.press("Enter")
    right = (asked + 1) // 2
    expect(page.locator("#step-end")).to_contain_text(f"{right} of {asked} prediction")
    page.set_viewport_size(PHONE)
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.slow
def test_a_lesson_is_played_by_keyboard_before_scripts_run(live_site, new_context, sign_in, person):
    """Or without them: the button to go on has the focus on each new page."""
    context = new_context(viewport=DESK, java_script_enabled=False)
    sign_in(context, person("viewer", "vera"))
    page, lesson = context.new_page(), catalog.lesson("temporary-entities")
    page.goto(f"{live_site}/learn/")
    page.get_by_role("button", name=re.compile(f"Start.*{re.escape(lesson.title)}")).focus()
    page.keyboard.press("Enter")
    page.locator("#go-on").focus()
    for step in lesson.steps[:2]:
        expect(page.locator("#step-title")).to_have_text(step.title)
        page.keyboard.press("Enter")
        expect(page.locator("#go-on")).to_have_text("Continue")
        expect(page.locator("#go-on")).to_be_focused()
        page.keyboard.press("Enter")
    expect(page.locator("#step-title")).to_have_text(lesson.steps[2].title)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_button_changes_with_the_response_of_its_request(is_answered, live_site, new_context, sign_in, person):
    """And not before, by a frame of the live feed: it would be another button when it is pressed once more. If no answer comes,
    the feed shows the change."""
    context = new_context(viewport=DESK)
    sign_in(context, person("viewer", "vera"))
    page, frames, requests = context.new_page(), [], []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(str(frame))))
    page.goto(f"{live_site}/learn/")
    page.get_by_role("button", name=re.compile("Start.*Peek-lock")).click()
    page.wait_for_selector('#live[data-live="live"]')
    button = page.locator("#go-on")
    label = button.inner_text()
    page.route("**/learn/sandboxes/*/", lambda route: requests.append((route, route.fetch())))
    button.click()
    eventually(lambda: page.wait_for_timeout(50) or requests and any("Continue" in frame for frame in frames), 20)
    assert (button.inner_text(), label) == (label, label) and label != "Continue"
    route, answer = requests.pop()
    if is_answered:
        route.fulfill(response=answer)
    else:
        route.abort()
    expect(button).to_have_text("Continue")
    context.complaints.clear()  # of the browser, about the aborted request


COUNT_IS_BELOW_ICON = """() => {
    const place = document.querySelector(".nav a");
    const count = Object.assign(document.createElement("span"), { className: "nav-count", textContent: "316" });
    place.append(count);
    const apart = count.getBoundingClientRect().top - place.querySelector(".icon").getBoundingClientRect().bottom;
    count.remove();
    return apart >= 0;
}"""


@pytest.mark.slow
def test_a_viewer_follows_a_presentation_and_answers(live_site, new_context, sign_in, person):
    contexts = [new_context(viewport=size, bypass_csp=True) for size in ({"width": 1280, "height": 720}, PHONE)]
    for context, user in zip(contexts, (person("viewer", "paula"), person("viewer", "walt")), strict=True):
        sign_in(context, user)
    presenter, viewer = (context.new_page() for context in contexts)
    steps = catalog.lesson("expiry-under-lock").steps
    presenter.goto(f"{live_site}/learn/")
    presenter.get_by_role("button", name=re.compile("Start.*Expiry under lock")).click()
    expect(presenter.locator("#step-title")).to_have_text(steps[0].title)
    assert presenter.evaluate(COUNT_IS_BELOW_ICON), "in the sidebar, which is folded here"
    presenter.get_by_label("More actions").click()
    presenter.get_by_role("button", name="Present", exact=True).click()
    link = presenter.locator(".presented-bar a").first
    viewer.goto(f"{live_site}{link.get_attribute('href')}")
    viewer.wait_for_selector('#live[data-live="live"]')
    expect(viewer.locator("#step-title")).to_have_text(steps[0].title)
    for step in steps[:2]:
        expect(presenter.locator("#step-title")).to_have_text(step.title)
        press(presenter, "button[value=do]")
        press(presenter, "#go-on")
    expect(viewer.locator("#step-title")).to_have_text(steps[2].title)
    assert problems(viewer) == []
    assert viewer.locator("#lesson").bounding_box()["width"] >= PHONE["width"] - 40
    viewer.locator("input[name=answer]").nth(1).check()
    viewer.get_by_role("button", name="Predict").click()
    expect(viewer.locator(".ask")).to_contain_text("Your prediction:")
    expect(viewer.locator(".votes")).to_have_count(0)
    expect(presenter.locator(".votes")).to_contain_text("1 answer")
    expect(presenter.locator(".votes dd").nth(1)).to_contain_text("1")
    assert problems(presenter) == []
    presenter.locator("input[name=answer]").nth(steps[2].ask.right).check()
    press(presenter, ".ask button")
    press(presenter, "button[value=do]")
    expect(viewer.locator(".lesson-result")).to_contain_text(
        f"Your prediction was {'right' if steps[2].ask.right == 1 else 'wrong'}."
    )
    expect(viewer.locator(".votes")).to_contain_text("1 answer")


def press(page, button):
    """Press a button, and wait for the answer."""
    with page.expect_response(lambda response: response.request.method == "POST") as answered:
        page.locator(button).click()
    answered.value.finished()
