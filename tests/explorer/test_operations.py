"""The pages of operations, and the buttons of lists that start them."""

import re
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from broker_core import operations as core
from broker_core import reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.operations import State
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.models import AuditRecord
from explorer.operations import runner
from tests.html import body_of

from .conftest import FRAGMENT
from .test_accessibility import browser  # noqa: F401


def last():
    return core.newest(limit=1)[0]


def open_on(pages):
    return core.newest(open_only=True, entity_id=reads.entity(pages.shop).id)


def undo_in(page):
    """Where the Undo button of a notice posts to."""
    [found] = re.findall(r'action="(/operations/\d+/change/\?action=undo[^"]*)"', page)
    return found.replace("&amp;", "&")


def test_selected_messages_are_discarded_immediately_and_restored_from_the_notice(pages, as_):
    client = as_("operator")
    back = f"/entities/{pages.at}?tab=active"
    data = {"kind": "discard", "tab": "active", "numbers": ["4", "5"], "next": back}
    page = body_of(client.post(f"/operate/{pages.at}", data, follow=True))
    assert "Discarded 1 message. Skipped: 1 held by worker." in page
    assert reads.message(pages.shop, 5) is None and reads.message(pages.shop, 4) is not None
    act = AuditRecord.objects.latest("id")
    assert (act.action, act.outcome, act.target) == ("discard", "done", "messages 4, 5")
    response = client.post(undo_in(page))
    assert response["Location"] == back and "Undone: 1 message returned." in body_of(client.get(back))
    assert reads.message(pages.shop, 5) is not None and last().state is State.UNDONE


def test_an_operation_can_be_undone_for_30_minutes_from_its_page_and_from_the_list(pages, as_):
    client = as_("operator")
    client.post(f"/operate/{pages.at}", {"kind": "discard", "tab": "active", "numbers": ["5"]})
    url = f"/operations/{last().id}/"
    listed, shown = body_of(client.get("/operations/")), body_of(client.get(url))
    assert "30 min left" in listed and f'action="{url}change/"' in listed
    assert "(30 min left)" in shown and "The messages return with their numbers" in shown
    connections.current().execute("UPDATE vitrine_operation SET kept_until = clock_timestamp()")
    assert "left)" not in body_of(client.get(url)) and f'action="{url}change/"' not in body_of(client.get("/operations/"))
    late = body_of(client.post(f"{url}change/", {"action": "undo"}, follow=True))
    assert "could be undone for 30 minutes" in late and reads.message(pages.shop, 5) is None


def test_after_deleting_a_queue_its_operations_cannot_be_undone(pages, as_):
    client, admin = as_("operator"), as_("administrator")
    client.post(f"/operate/{pages.at}", {"kind": "discard", "tab": "active", "numbers": ["5"]})
    url = f"/operations/{last().id}/"
    asked = body_of(admin.get(f"/delete/{pages.at}"))
    text = "can then no longer be undone, unless the deletion is undone."
    assert f'1 message of <a href="{url}">operation {last().id}</a> {text}' in asked
    assert admin.post(f"/delete/{pages.at}", {"name": pages.shop.path}).status_code == 302
    shown = body_of(client.get(url))
    assert 'value="undo"' not in shown and 'value="undo"' not in body_of(client.get("/operations/"))
    assert f"{pages.shop} was deleted at" in shown and "UTC; nothing can be undone." in shown
    late = body_of(client.post(f"{url}change/", {"action": "undo"}, follow=True))
    assert late.count("nothing can be undone") == 2 and last().state is State.DONE


@pytest.mark.slow
def test_the_undo_notice_counts_down_and_pauses_on_hover(transactional_db, pages, browser):  # noqa: F811
    """By keyboard: select, discard, undo."""
    page = browser("operator")
    page.goto(f"/entities/{pages.at}?tab=active")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("d")
    notice = page.locator("#notices .has-undo")
    expect(notice).to_contain_text("Discarded 1 message")
    running = "one => one.getAnimations({subtree: true}).map(a => [a.animationName, a.playState])"
    assert ["notice-leaves", "running"] in notice.evaluate(running)
    notice.get_by_role("button", name="Undo", exact=True).focus()
    assert {state for _, state in notice.evaluate(running)} == {"paused"}
    notice.evaluate("one => one.getAnimations().forEach(a => { a.currentTime = 4200 })")
    counter = "one => getComputedStyle(one).getPropertyValue('--seconds-left')"
    assert notice.locator(".countdown").evaluate(counter) == "6"
    notice.evaluate("one => one.getAnimations().forEach(a => a.finish())")
    expect(notice).to_have_count(0)


def test_the_z_key_undoes_the_last_operation(transactional_db, pages, browser):  # noqa: F811
    page = browser("operator")
    page.goto(f"/entities/{pages.at}?tab=active&q=id:order-5")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("d")
    expect(page.locator("#notices .has-undo")).to_be_visible()
    page.keyboard.press("z")
    expect(page.locator("#notices")).to_contain_text("Undone: 1 message returned.")
    expect(page.locator("#notices-said")).to_contain_text("Undone: 1 message returned.")  # it came with the page
    assert reads.message(pages.shop, 5) is not None


def test_the_buttons_count_and_act_on_the_filtered_messages(pages, as_):
    client = as_("operator")
    page = body_of(client.get(f"/entities/{pages.at}?tab=active&q=id:order-5"))
    assert "Purge 1 that match" in page and "Purge all" not in page
    [text] = set(re.findall(r'name="filter" value="([^"]*)"', page))
    data = {"kind": "purge", "tab": "active", "filter": text, "all": "1", "numbers": ["4"]}
    client.post(f"/operate/{pages.at}", data)
    assert (last().counted, last().done, last().selection.filter) == (1, 1, "id:order-5")
    assert reads.message(pages.shop, 5) is None
    assert "Purge all" in body_of(client.get(f"/entities/{pages.at}?tab=active"))


def test_messages_that_arrived_after_the_page_was_rendered_are_not_affected(pages, as_):
    client = as_("operator")
    page = body_of(client.get(f"/entities/{pages.at}?tab=active"))
    up_to = re.search(r'name="up_to" value="(\d+)"', page)[1]
    [late] = service_bus.send(pages.shop, [Message(b"late")])
    client.post(f"/operate/{pages.at}", {"kind": "purge", "tab": "active", "all": "1", "up_to": up_to})
    assert reads.message(pages.shop, late) is not None and reads.message(pages.shop, 5) is None


def test_a_single_session_can_be_purged(pages, as_):
    client, carts = as_("operator"), EntityAddress(pages.shop.namespace, "carts")
    service_bus.send(carts, [Message(b"x", session_id=session) for session in ("a", "b", "a&c", "a")])
    page = body_of(client.get(f"/entities/{carts}?tab=sessions"))
    [link] = [
        text for text in re.findall(r'href="(/operate/[^"]*filter=[^"]*)"', page) if "c" in unquote(text).split("session")[-1]
    ]
    asked = body_of(client.get(link.replace("&amp;", "&")))
    assert "Purge 1 message" in asked
    client.post(f"/operate/{carts}", {"kind": "purge", "tab": "active", "filter": "session=a", "all": "1", "confirmed": "1"})
    assert [message.session_id for message in service_bus.peek(carts)] == ["b", "a&c"]


def test_an_operation_on_many_messages_is_confirmed_and_run_by_a_worker(pages, as_, monkeypatch):
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    for _ in range(3):
        service_bus.send(pages.shop, [Message(b"x") for _ in range(500)])
    client = as_("operator")
    data = {"kind": "discard", "tab": "active", "filter": "", "all": "1"}
    asked = body_of(client.post(f"/operate/{pages.at}", data))
    assert "Discard 1,50" in asked and "after 30 minutes they are deleted" in asked and not open_on(pages)
    response = client.post(f"/operate/{pages.at}", {**data, "confirmed": "1", "pace": "100000"})
    operation = last()
    assert response["Location"] == f"/operations/{operation.id}/" and operation.state is State.QUEUED
    for action, state in (("pause", "paused"), ("resume", "waiting for a worker")):
        client.post(f"/operations/{operation.id}/change/", {"action": action})
        assert state in body_of(client.get(f"/operations/{operation.id}/")), action
    assert "Running" in body_of(client.get("/operations/"))
    runner.run(core.find(operation.id), seconds=None)
    page = body_of(client.get(f"/operations/{operation.id}/"))
    assert "Undo 1,50" in page and "Can be undone until" in page
    assert client.post(f"/operations/{operation.id}/change/", {"action": "pace", "pace": "0"}).status_code == 302
    assert "Pace: must be 0.1 to 100,000 messages per second" in body_of(client.get(f"/operations/{operation.id}/"))
    stopped = client.post(f"/operations/{operation.id}/change/", {"action": "stop"}, follow=True)
    assert "so it cannot stop now. Nothing was changed." in body_of(stopped)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"kind": "explode", "numbers": ["2"]}, "There is no kind"),
        ({"kind": "purge", "numbers": ["x"]}, "sequence numbers"),
        ({"kind": "purge"}, "select messages first"),
        ({"kind": "purge", "tab": "history", "all": "1"}, "is not a list of messages"),
        ({"kind": "move", "tab": "active", "all": "1", "confirmed": "1", "to": ""}, "This field is required"),
        ({"kind": "move", "tab": "active", "all": "1", "confirmed": "1", "to": "x", "pace": "0"}, "must be 0.1 to 100,000"),
        ({"kind": "repair", "tab": "dead-letter", "all": "1", "confirmed": "1", "merge_patch": "{"}, "This is not JSON"),
        ({"kind": "repair", "tab": "dead-letter", "all": "1", "confirmed": "1", "merge_patch": "[]"}, "Enter a JSON object"),
        (
            {"kind": "repair", "tab": "dead-letter", "all": "1", "confirmed": "1", "merge_patch": '{"a": 1e999}'},
            "1e999 is larger than a number can be",
        ),
        ({"kind": "purge", "tab": "active", "all": "1", "filter": "body:"}, ""),
    ],
)
def test_an_operation_that_cannot_start_shows_the_reason(pages, as_, data, text):
    response = as_("operator").post(f"/operate/{pages.at}", data, headers=FRAGMENT)
    assert response.status_code == 400 and text in body_of(response)
    assert reads.counts(pages.shop).dead_letter == 1


def test_a_move_asks_for_the_target_and_reports_a_missing_queue(pages, as_):
    client = as_("operator")
    asked = body_of(client.post(f"/operate/{pages.at}", {"kind": "move", "tab": "dead-letter", "numbers": ["2"]}))
    assert "Move 1 message" in asked and '<option value="carts">' in asked
    data = {"kind": "move", "tab": "dead-letter", "numbers": ["2"], "confirmed": "1", "to": "nowhere"}
    page = body_of(client.post(f"/operate/{pages.at}", data, follow=True))
    assert "nowhere" in page and reads.counts(pages.shop).dead_letter == 1
    assert "failed" in body_of(client.get("/operations/"))


def test_a_viewer_can_see_but_not_change_operations(pages, as_):
    as_("operator").post(f"/operate/{pages.at}", {"kind": "discard", "tab": "active", "numbers": ["5"]})
    viewer = as_("viewer")
    page = body_of(viewer.get(f"/operations/{last().id}/"))
    assert "Discard 1 message" in page and "Undo" not in page
    assert viewer.post(f"/operations/{last().id}/change/", {"action": "undo"}, follow=True).status_code == 200
    assert last().undone == 0
    assert viewer.get("/operations/999999999/").status_code == 404


def test_operations_are_filtered_and_archives_listed(pages, as_):
    client = as_("operator")
    for kind, number in (("archive", "5"), ("discard", "6")):
        client.post(f"/operate/{pages.at}", {"kind": kind, "tab": "active", "numbers": [number]})
    archive, discard = (f'href="/operations/{operation.id}/"' for operation in reversed(core.newest(limit=2)))
    here = f"q={pages.shop.namespace}"
    assert all(name in body_of(client.get(f"/operations/?{here}")) for name in (archive, discard))
    listed = body_of(client.get(f"/operations/?{here}+kind:archive+is:undoable"))
    assert archive in listed and discard not in listed and "Restore 1" in listed
    connections.current().execute("UPDATE vitrine_operation SET kept_until = clock_timestamp() WHERE kind = 'discard'")
    assert discard not in body_of(client.get(f"/operations/?{here}+is:undoable"))
    assert discard in body_of(client.get(f"/operations/?q=namespace:{pages.shop.namespace.upper()}"))
    ending = pages.shop.namespace[1:]  # another namespace, whose name this one ends with
    assert "No past operations match" in body_of(client.get(f"/operations/?q=namespace:{ending}", headers=FRAGMENT))
    assert "No past operations match" in body_of(client.get("/operations/?q=nothing-of-this-name", headers=FRAGMENT))
    assert client.get("/operations/?q=kind:explode").status_code == client.get("/operations/?before=x").status_code == 400


def test_an_archive_is_restored_from_the_list(pages, as_):
    client = as_("operator")
    client.post(f"/operate/{pages.at}", {"kind": "archive", "tab": "active", "numbers": ["5"]})
    assert reads.message(pages.shop, 5) is None
    assert "Restore 1" in body_of(client.get("/operations/")) and "Restore 1" not in body_of(as_("viewer").get("/operations/"))
    client.post(f"/operations/{last().id}/change/", {"action": "undo"})
    assert reads.message(pages.shop, 5) is not None
