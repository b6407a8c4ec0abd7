"""The clock of a namespace on its pages: seen, paused, stepped and resumed by who may; and what a browser makes of it."""

import re
from datetime import timedelta

import pytest

from broker_core import namespaces, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.models import AuditRecord
from tests.html import body_of

from .conftest import FRAGMENT

PAUSED = "is paused</strong>"


@pytest.fixture
def queue(shop):
    """A queue in the shop's namespace whose message 1 is locked for 30 s."""
    address = EntityAddress(shop.namespace, "parcels")
    entities.create_queue(address, lock_duration=timedelta(seconds=30))
    service_bus.send(address, [Message(body=b"1")])
    service_bus.receive(address, 1)
    return address


@pytest.fixture
def move(as_):
    """move(namespace, act="pause") -> what the page answers that follows, and who did it."""
    client = as_("administrator")

    def post(namespace, **given):
        return client.post(f"/clocks/{namespace}/", given, follow=True)

    return post


def notices(response) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def now_of(address):
    return namespaces.get_clock(address.namespace).now


@pytest.mark.slow
def test_every_page_of_a_namespace_says_that_its_clock_is_paused(pages, jobs, as_):
    client = as_("administrator")
    namespaces.pause_clock(pages.shop.namespace)
    namespaces.pause_clock(jobs.namespace)
    inside = [a for a in pages.all if pages.shop.namespace in a or f"/{jobs.namespace}/" in a]
    of_many_namespaces = r"/(\?|locks/|insights/|map/|tail/|templates/|dead-letters/\?)"
    inside = [a for a in inside if not re.match(rf"/(bodies|new-storage-queue)/|{of_many_namespaces}", a)]
    inside = [a for a in inside if "?at=" not in a]  # of the past, not of the clock
    of_keys = [
        a for a in inside if re.match("/administration/(keys|account-keys|new-signature)/", a)
    ]  # these expire in real time
    assert len(of_keys) == 5 and not any(PAUSED in body_of(client.get(a)) for a in of_keys)
    inside = [a for a in inside if a not in of_keys]
    assert len(inside) > 50
    silent = [a for a in inside if PAUSED not in body_of(client.get(a))]
    assert silent == []
    assert PAUSED not in body_of(client.get("/"))


def test_every_page_of_a_virtual_host_says_that_its_clock_is_paused(broker_database, as_):
    rabbitmq.create_vhost("clocked")
    rabbitmq.declare_queue(EntityAddress("clocked", "q"))
    namespaces.pause_clock("clocked")
    client = as_("administrator")
    places = ["vhosts", "queues", "exchanges", "policies", "definitions"]
    pages = [f"/rabbitmq/{place}/clocked/" for place in places]
    pages += ["/namespaces/clocked/", "/entities/clocked/q", "/rabbitmq/get/clocked/q"]
    assert [page for page in pages if body_of(client.get(page)).count(PAUSED) != 1] == []


def test_in_real_time_namespace_and_entity_pages_offer_to_pause_the_clock(queue, jobs, as_):
    client = as_("administrator")
    for page in (f"/namespaces/{queue.namespace}/", f"/entities/{queue}"):
        shown = body_of(client.get(page))
        assert "Clock: real time" in shown and 'value="pause"' in shown
    assert "Clock:" not in body_of(client.get(f"/send/{queue}"))
    namespaces.step_clock(jobs.namespace, timedelta(minutes=90))
    moved = body_of(client.get(f"/entities/{jobs}"))
    assert re.search(r"data-clock-now>[^<]+</time>, 1 h \d\d min ahead of real time", moved) and 'value="pause"' in moved


def test_the_page_of_a_clock_shows_its_time(queue, as_):
    page = body_of(as_("viewer").get(f"/clocks/{queue.namespace}/"))
    assert f"<time data-clock-now>{now_of(queue):%Y-%m-%d %H:}" in page and "Clock: real time" in page


def test_system_shows_the_time_of_each_clock_that_is_not_real(queue, as_):
    namespaces.pause_clock(queue.namespace)
    page = body_of(as_("viewer").get("/administration/"))
    assert f'<td class="nowrap">{now_of(queue):%Y-%m-%d %H:%M:%S}' in page


def test_a_clock_is_paused_stepped_and_resumed_without_javascript(queue, move):
    page = f"/entities/{queue}?tab=locked"
    answer = move(queue.namespace, act="pause", page=page)
    assert answer.redirect_chain == [(page, 302)] and PAUSED in body_of(answer)
    at = now_of(queue)
    move(queue.namespace, by="10 s", step="", page=page)
    move(queue.namespace, step="1 min 30 s", page=page)
    assert now_of(queue) == at + timedelta(seconds=100)
    [told] = notices(move(queue.namespace, act="resume", page=page))
    assert "Resumed the clock" in told
    assert reads.now(queue.namespace).rate == 1
    kept = AuditRecord.objects.order_by("id").values_list("action", "target", "outcome")
    assert list(kept) == [
        ("pause clock", queue.namespace, "done"),
        ("step clock", f"{queue.namespace}: 10 s", "done"),
        ("step clock", f"{queue.namespace}: 1 min 30 s", "done"),
        ("resume clock", queue.namespace, "done"),
    ]


def test_a_clock_can_be_stepped_to_an_instant(queue, move):
    namespaces.pause_clock(queue.namespace)
    at = now_of(queue).replace(microsecond=0) + timedelta(days=2)
    move(queue.namespace, step=f"{at:%Y-%m-%d %H:%M:%S}")
    assert now_of(queue) == at


def test_a_step_to_the_next_change_goes_exactly_there_and_shows_its_result(queue, move, as_):
    namespaces.pause_clock(queue.namespace)
    [row] = reads.list_messages(queue, reads.Tab.LOCKED).rows
    shown = body_of(as_("administrator").get(f"/entities/{queue}"))
    assert re.search(r'id="clock-next">the lock of message 1 ends, \d+ s from now<', shown)
    [told] = notices(move(queue.namespace, act="next", entity=queue.path))
    assert now_of(queue) == row.locked_until
    assert "1 lock ended" in told
    [row] = reads.list_messages(queue, reads.Tab.ACTIVE).rows
    assert (row.delivery_count, row.locked_until) == (1, None)  # swept, not only seen to be over
    [told] = notices(move(queue.namespace, act="next", entity=queue.path))
    assert told == "No timed change is pending, so the clock was not moved."
    answer = as_("administrator").post(f"/clocks/{queue.namespace}/", {"act": "next", "entity": queue.path}, headers=FRAGMENT)
    assert answer.status_code == 200 and 'role="alert"' not in body_of(answer)


def test_every_page_shows_a_clock_that_is_not_in_real_time(queue, as_, move):
    client = as_("administrator")
    move(queue.namespace, act="pause")
    move(queue.namespace, by="5 min")
    move(queue.namespace, act="resume")
    for page in (f"/messages/{queue}/1", f"/send/{queue}", f"/settings/{queue}"):
        assert re.search(r"data-clock-now>[^<]+</time>, \d min(?: \d+ s)? ahead of real time", body_of(client.get(page))), page
    assert body_of(client.get(f"/entities/{queue}")).count("ahead of real time<") == 1


def test_a_refused_step_names_durations_as_the_field_does(queue, as_):
    for step in ("", "soon"):
        answer = as_("administrator").post(f"/clocks/{queue.namespace}/", {"step": step, "control": "1"}, headers=FRAGMENT)
        assert "for example 90 s, 2 h or 2030" in body_of(answer)


def test_resuming_in_real_time_jumps_to_the_present(queue, move):
    namespaces.pause_clock(queue.namespace)
    namespaces.resume_clock(queue.namespace, 0.001)
    namespaces.pause_clock(queue.namespace)
    before = reads.now(queue.namespace)
    move(queue.namespace, act="catch-up")
    after = reads.now(queue.namespace)
    assert after.rate == 1 and abs(after.now - after.real_now) < timedelta(seconds=1)
    assert before.now < before.real_now


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_other_roles_see_the_clock_and_the_role_required_to_change_it(queue, as_, role):
    namespaces.pause_clock(queue.namespace)
    client, at = as_(role), now_of(queue)
    shown = body_of(client.get(f"/entities/{queue}"))
    assert PAUSED in shown and "Changing the clock requires the administrator role." in shown and 'value="resume"' not in shown
    for form_data in ({"act": "resume"}, {"by": "1 s"}, {"act": "next", "entity": queue.path}):
        assert client.post(f"/clocks/{queue.namespace}/", form_data, headers=FRAGMENT).status_code == 403
    assert now_of(queue) == at
    assert set(AuditRecord.objects.values_list("outcome", flat=True)) == {"refused"}


@pytest.mark.parametrize(
    "given", [{"step": ""}, {"step": "soon"}, {"step": "never"}, {"step": "2001-01-01"}, {"by": "200 years"}, {"act": "back"}]
)
def test_a_bad_step_is_refused_at_its_field(queue, as_, given):
    namespaces.pause_clock(queue.namespace)
    at = now_of(queue)
    answer = as_("administrator").post(f"/clocks/{queue.namespace}/", given, headers=FRAGMENT)
    assert answer.status_code == 400 and 'role="alert"' in body_of(answer) and 'id="clock"' in body_of(answer)
    assert now_of(queue) == at


def test_the_clock_form_never_redirects_to_another_site(queue, move):
    answer = move(queue.namespace, act="pause", page="https://evil.example/")
    assert answer.redirect_chain[0][0] == "/"


def test_the_system_clock_cannot_be_changed(broker_database, as_, move):
    namespaces.ensure_namespace("system", Family.SERVICE_BUS, is_system=True)
    assert "runs on real time" in body_of(as_("viewer").get("/namespaces/system/"))
    [told] = notices(move("system", act="pause", page="/namespaces/system/"))
    assert "runs on real time" in told and not reads.now("system").is_manual


# In a browser


@pytest.fixture
def browser(transactional_db, live_site, new_context, sign_in, person):
    def start(role="administrator"):
        context = new_context(base_url=live_site)
        sign_in(context, person(role, username=f"{role}-of-clocks"))
        return context.new_page()

    return start


def texts(page, selector):
    return page.eval_on_selector_all(selector, "all => all.map(one => one.textContent)")


@pytest.fixture
def parcels(transactional_db, queue):
    namespaces.pause_clock(queue.namespace)
    return queue


@pytest.mark.slow
def test_countdowns_stop_while_paused_and_jump_on_a_step_by_keyboard(parcels, browser):
    page = browser()
    page.goto(f"/entities/{parcels}?tab=locked")
    page.wait_for_function("() => document.querySelector('#live')?.dataset.live === 'live'")
    page.wait_for_selector("#clock .notice >> text=is paused")
    before = texts(page, "[data-deadline]"), texts(page, "[data-clock-now]")
    page.evaluate("new Promise(done => setTimeout(done, 1300))")  # real time goes on: more than one tick of a second
    assert (texts(page, "[data-deadline]"), texts(page, "[data-clock-now]")) == before
    page.focus("button[name=by][value='10 s']")
    page.keyboard.press("Enter")
    page.wait_for_function("old => document.querySelector('[data-deadline]').textContent !== old", arg=before[0][0])
    page.wait_for_function("old => document.querySelector('[data-clock-now]').textContent !== old", arg=before[1][0])
    page.wait_for_function("() => document.activeElement.value === '10 s'")  # so that the next step is one key away
    page.wait_for_function("() => document.querySelector('#clock-next').textContent.includes('lock of message 1')")
    page.fill("#clock-typed", "1 min")
    page.keyboard.press("Enter")
    page.wait_for_function("() => !document.querySelector('#rows tr:not(:has(.state-gone))')")  # its lock ended: it left the list
    page.wait_for_function("() => document.querySelector('#notices').textContent.includes('by 1 min')")


def test_an_older_frame_does_not_set_the_clock_back(parcels, browser):
    page = browser()
    page.goto(f"/entities/{parcels}?tab=locked")
    page.wait_for_function("() => document.querySelector('#live')?.dataset.live === 'live'")
    tell = """frame => document.getElementById("live-connection").dispatchEvent(new CustomEvent("htmx:ws:before:message:incoming",
        {bubbles: true, cancelable: true, detail: {message: {data: JSON.stringify(frame)}}}))"""
    shown = texts(page, "[data-clock-now]")
    read = int(page.get_attribute("#clock", "data-read"))
    page.evaluate(tell, {"version": 0, "clock": {"now": 0, "rate": 0, "manual": True, "read": read - 60_000}})
    page.evaluate("new Promise(done => setTimeout(done, 400))")
    assert texts(page, "[data-clock-now]") == shown
    page.evaluate(tell, {"version": 0, "clock": {"now": 0, "rate": 0, "manual": True, "read": read + 3_600_000}})
    page.wait_for_function("() => document.querySelector('[data-clock-now]').textContent.startsWith('1970-01-01')")


def test_the_clock_notice_appears_and_disappears_on_open_pages(parcels, browser):
    namespaces.resume_clock(parcels.namespace)
    page = browser("viewer")
    page.goto(f"/entities/{parcels}")
    page.wait_for_function("() => document.querySelector('#live')?.dataset.live === 'live'")
    assert page.query_selector("#clock .notice") is None
    namespaces.pause_clock(parcels.namespace)
    page.wait_for_selector("#clock .notice", timeout=3000)
    namespaces.resume_clock(parcels.namespace)
    page.wait_for_selector("#clock .notice", state="detached", timeout=3000)
