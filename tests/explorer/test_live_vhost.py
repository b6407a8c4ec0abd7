"""The pages of a virtual host that are live, and its connections on the page of all."""

import time
from datetime import timedelta
from urllib.parse import unquote

import pytest
from channels.db import database_sync_to_async
from playwright.sync_api import expect

from broker_core import namespaces, rabbitmq, reads
from broker_core.common.types import EntityAddress
from explorer.live import feed as feeds
from explorer.live.page import FOLLOW_SECONDS, comparable
from explorer.rabbitmq import queues
from explorer.rabbitmq.queues import CONSUMERS_SECONDS

from .rabbitmq_office import publish
from .test_accessibility import browser  # noqa: F401
from .test_live import _host_is_allowed, cookie, frame, opened, rows, text_of  # noqa: F401

pytest_plugins = ["tests.explorer.rabbitmq_office"]


@pytest.fixture
def committed(transactional_db, office):
    """The feed has a connection of its own."""
    return office


@pytest.fixture
def queue_ids(committed):
    rows = rabbitmq.list_queues(committed.vhost)
    return {row.name: f"e-{row.id}" for row in rows}


def page_of(office, name):
    return f"/rabbitmq/{name}/{unquote(office.at)}/"


in_thread = database_sync_to_async


async def test_a_queues_row_follows_its_messages_and_consumers(committed, cookie, queue_ids):  # noqa: F811
    viewer, first = await opened(page_of(committed, "queues"), cookie())
    assert list(rows(first)) == [queue_ids[name] for name in ("dead", "mail", "scans", "spare")]
    await in_thread(publish)(committed.vhost, "mail.fourth")
    mail, dead = queue_ids["mail"], queue_ids["dead"]
    told = await frame(viewer, lambda f: mail in rows(f) and comparable_row(f, mail) != comparable_row(first, mail))
    assert list(rows(told)) == list(rows(first)) and comparable_row(told, dead) == comparable_row(first, dead)
    channel = await in_thread(committed.connection.channel)()
    await in_thread(channel.consume)("dead", tag="reader")
    await frame(
        viewer, lambda f: dead in rows(f) and comparable_row(f, dead) != comparable_row(first, dead)
    )  # consumers leave no event
    await viewer.disconnect()


def comparable_row(told, row_id):
    return comparable(rows(told).get(row_id, ""))


@pytest.mark.slow
async def test_new_and_deleted_queues_are_shown(committed, cookie, queue_ids):  # noqa: F811
    viewer, first = await opened(page_of(committed, "queues"), cookie())
    new = await in_thread(rabbitmq.declare_queue)(EntityAddress(committed.vhost, "letters"))
    told = await frame(viewer, lambda f: len(rows(f)) == 5)
    assert list(rows(told))[1] not in rows(first)
    await in_thread(rabbitmq.delete_queue)(new.address)
    await frame(viewer, lambda f: len(rows(f)) == 4)
    await viewer.disconnect()


async def test_a_list_sorted_by_a_number_is_reordered_at_intervals(committed, cookie, queue_ids):  # noqa: F811
    viewer, first = await opened(page_of(committed, "queues") + "?sort=-ready", cookie())
    began = time.monotonic()
    assert list(rows(first))[0] == queue_ids["mail"]
    for _ in range(9):
        await in_thread(publish)(committed.vhost, "a.scan")
    told = await frame(viewer, rows, seconds=FOLLOW_SECONDS + CONSUMERS_SECONDS + 2)
    assert list(rows(told))[0] == queue_ids["scans"]
    assert time.monotonic() - began > FOLLOW_SECONDS - 1, "rows turn about under the reader"
    await viewer.disconnect()


async def test_connections_are_shown_with_their_messages_until_they_close(committed, cookie):  # noqa: F811
    viewer, first = await opened("/connections/", cookie("viewer"))
    own = f"k-rabbitmq-{committed.connection.id}"
    assert list(rows(first)) == [own] and "scanner-1" in rows(first)[own] and "Close" not in rows(first)[own]
    other = await in_thread(rabbitmq.connect)(committed.vhost, "second")
    new = f"k-rabbitmq-{other.id}"
    await frame(viewer, lambda f: set(rows(f)) == {own, new})
    channel = await in_thread(other.channel)()
    await in_thread(channel.get)("mail")
    await frame(viewer, lambda f: "1 unsettled" in rows(f).get(new, "") and "mail" in rows(f)[new])
    await in_thread(other.close)()
    await frame(viewer, lambda f: list(rows(f)) == [own])
    await viewer.disconnect()


async def test_the_virtual_hosts_summary_follows_its_numbers(committed, cookie, queue_ids):  # noqa: F811
    viewer, first = await opened(page_of(committed, "vhosts"), cookie())
    assert text_of(first, "v-connections") == "1" and queue_ids["mail"] in rows(first)
    await in_thread(rabbitmq.connect)(committed.vhost, "second")
    await frame(viewer, lambda f: text_of(f, "v-connections") == "2")
    await viewer.disconnect()


@pytest.mark.slow
async def test_the_virtual_hosts_summary_follows_the_fullest_queues(committed, cookie, queue_ids):  # noqa: F811
    viewer, first = await opened(page_of(committed, "vhosts"), cookie())
    assert list(rows(first))[0] == queue_ids["mail"]
    for _ in range(9):
        await in_thread(publish)(committed.vhost, "a.scan")
    await frame(viewer, lambda f: rows(f) and list(rows(f))[0] == queue_ids["scans"], seconds=8)
    for n in range(9):
        new = await in_thread(rabbitmq.declare_queue)(EntityAddress(committed.vhost, f"new{n}"))
    row = f"e-{(await in_thread(reads.entity)(new.address)).id}"
    with pytest.raises(TimeoutError):
        await frame(viewer, lambda f: row in rows(f), seconds=FOLLOW_SECONDS + 1)
    await in_thread(publish)(committed.vhost, "new8", exchange="")
    await frame(viewer, lambda f: row in rows(f))
    await viewer.disconnect()


async def test_the_database_is_read_once_for_many_viewers(committed, cookie, monkeypatch):  # noqa: F811
    looks = []
    real = queues.lines_of
    monkeypatch.setattr(queues, "lines_of", lambda *given: looks.append(1) or real(*given))
    monkeypatch.setattr(feeds, "BEAT_SECONDS", 60)
    viewers = [(await opened(page_of(committed, "queues"), cookie()))[0] for _ in range(5)]
    assert 0 < len(looks) < 5
    looks.clear()
    new = await in_thread(rabbitmq.declare_queue)(EntityAddress(committed.vhost, "letters"))
    shown = f"e-{(await in_thread(reads.entity)(new.address)).id}"
    for viewer in viewers:
        await frame(viewer, lambda f: shown in rows(f))
    assert 0 < len(looks) < 5
    for viewer in viewers:
        await viewer.disconnect()


async def test_a_clock_change_is_sent_immediately(committed, cookie):  # noqa: F811
    viewer, first = await opened(page_of(committed, "queues"), cookie())
    assert first["clock"]["rate"] == 0
    await in_thread(namespaces.step_clock)(committed.vhost, timedelta(hours=1))
    told = await frame(viewer, lambda f: "clock" in f, seconds=2)
    assert told["clock"]["now"] - first["clock"]["now"] >= 3_600_000
    await viewer.disconnect()


# In a browser


def names_in(page, table):
    return page.eval_on_selector_all(f"{table} tbody .row-link", "links => links.map(link => link.textContent.trim())")


@pytest.mark.slow
def test_reordering_the_fullest_queues_keeps_focus_and_scroll_position(committed, browser):  # noqa: F811
    page = browser(viewport={"width": 900, "height": 420})
    page.goto(f"/rabbitmq/vhosts/{committed.at}/")
    page.wait_for_function("() => document.querySelector('#live')?.dataset.live === 'live'")
    assert names_in(page, "#fullest")[0] == "mail"
    page.focus("#fullest tbody tr:first-child a")
    page.evaluate(
        """() => {
            window.fetched = 0; window.lost = 0; window.before = document.querySelector("#fullest tbody");
            document.addEventListener("focusout", (event) => { if (!event.relatedTarget) window.lost += 1; });
            const real = window.fetch;
            window.fetch = (...given) => { window.fetched += 1; return real(...given); };
            window.scrollTo(0, 120); // the row with the focus is out of sight
        }"""
    )
    for _ in range(9):
        publish(committed.vhost, "a.scan")
    page.wait_for_function("() => document.querySelector('#fullest tbody .row-link').textContent === 'scans'", timeout=15_000)
    assert page.evaluate("document.activeElement.textContent") == "mail" and page.evaluate("window.lost") == 0
    drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    assert page.evaluate(f"{drawn}.then(() => scrollY)") == 120
    assert page.evaluate("window.before === document.querySelector('#fullest tbody')"), "the table is the same one"
    assert page.evaluate("window.fetched") == 0, "it was pushed"
    page.keyboard.press("Enter")
    page.wait_for_url("**/entities/**/mail")


@pytest.mark.slow
def test_a_namespaces_table_follows_its_sort_order_and_shows_new_queues(committed, browser):  # noqa: F811
    page = browser()
    page.goto(f"/namespaces/{committed.at}/?sort=-ready")
    page.wait_for_function("() => document.querySelector('#live')?.dataset.live === 'live'")
    rabbitmq.declare_queue(EntityAddress(committed.vhost, "newest"))
    for _ in range(5):
        publish(committed.vhost, "newest", exchange="")
    page.wait_for_function(
        "() => document.querySelector('#overview tbody .row-link')?.textContent.trim().endsWith('newest')", timeout=20_000
    )


@pytest.mark.slow
def test_connections_are_closed_by_keyboard_and_leave_the_list_automatically(committed, browser):  # noqa: F811
    page = browser("operator")
    page.goto(f"/rabbitmq/connections/{committed.at}/")
    page.wait_for_url("**/connections/?q=namespace*")
    page.wait_for_function("() => document.querySelector('#live')?.dataset.live === 'live'")
    other = rabbitmq.connect(committed.vhost, "second")
    page.wait_for_selector(f"#k-rabbitmq-{other.id}")
    page.focus(f"#k-rabbitmq-{committed.connection.id} button")
    other.close()
    page.wait_for_selector(f"#k-rabbitmq-{other.id}", state="detached")
    focused = "document.activeElement.closest('tr').id"
    assert page.evaluate(focused) == f"k-rabbitmq-{committed.connection.id}"  # nothing stole the focus
    page.keyboard.press("Enter")
    page.keyboard.type("a new version")
    third = rabbitmq.connect(committed.vhost, "third")
    page.wait_for_selector(f"#k-rabbitmq-{third.id}")
    assert page.evaluate("document.activeElement.value") == "a new version", "what is typed survives an update"
    third.close()
    page.wait_for_selector(f"#k-rabbitmq-{third.id}", state="detached")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.body.textContent.includes('No connections match')")
    expect(page.locator("#notices")).to_contain_text("Closed connection scanner: a new version")


@pytest.mark.slow
def test_new_queues_wait_while_the_live_updates_are_paused(committed, browser):  # noqa: F811
    page = browser()
    page.goto(f"/rabbitmq/queues/{committed.at}/")
    page.wait_for_function("() => document.querySelector('#live')?.dataset.live === 'live'")
    page.keyboard.press("p")
    rabbitmq.declare_queue(EntityAddress(committed.vhost, "aaa"))
    page.evaluate("new Promise(done => setTimeout(done, 2500))")
    assert page.query_selector_all("#rows tr .row-link")[0].inner_text() == "dead"
    page.keyboard.press("p")
    page.wait_for_function("() => document.querySelector('#rows tr .row-link').textContent === 'aaa'")
