"""The inbox of dead letters and the workbench of a group, in all families."""

import html
import re
import uuid
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core import operations as core
from broker_core.common.types import EntityAddress, Family, SubQueue
from broker_core.rabbitmq import Properties, Publication
from broker_core.reads import EntityFilter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.frames.filtering import group_url
from explorer.models import AuditRecord, DeadLetterNote
from explorer.operations import runner

from .conftest import FRAGMENT, WORKER
from .test_accessibility import browser  # noqa: F401


@pytest.fixture
def orders(db):
    """A queue with dead letters: 1 to 3 for one reason, with different details; 4 for another one; 5 is no JSON."""
    address = EntityAddress(f"dead-{uuid.uuid4().hex[:8]}", "eu/orders")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    bodies = [b'{"total": 1, "currency": "DM"}'] * 4 + [b"no json"]
    service_bus.send(address, [Message(body, message_id=f"order-{n}") for n, body in enumerate(bodies, 1)], actor=WORKER)
    why = [("Schema", f"order {n}: unknown 'DM'") for n in (1, 2, 3)] + [("Late", None), ("Schema", "order 5: unknown 'x'")]
    for message, (reason, text) in zip(service_bus.receive(address, 5, actor=WORKER), why, strict=True):
        service_bus.dead_letter(address, [message.lock_token], reason, text, actor=WORKER)
    return address


def group_of(address, reason="Schema"):
    """The address of the workbench of a group, as the inbox links to it."""
    groups = reads.dead_groups(EntityFilter(namespace=address.namespace)).groups
    [group] = [candidate for candidate in groups if candidate.reason == reason]
    return group_url(group.address, group.filter)


def body_of(response):
    return " ".join(response.content.decode().split())


def numbers_in(text):
    return [int(number) for number in re.findall(r'<tr\s+id="m-\d+-\d+-(\d+)"', text)]


def test_the_inbox_lists_groups_with_counts_and_links(orders, as_):
    text = body_of(as_("viewer").get(f"/dead-letters/?q={orders.namespace}"))
    assert "order *: unknown *" in text and "Late" in text and "<strong>5</strong> dead letters in 2 groups" in text
    assert "80 %" in text and "+4" in text
    only = body_of(as_().get(f"/dead-letters/?q={orders.namespace}+reason:late", headers=FRAGMENT))
    assert "Late" in only and "Schema" not in only
    assert "No groups match" in body_of(as_().get("/dead-letters/?q=nothing-of-this-name"))


def test_a_group_shows_its_messages_and_opens_the_newest(orders, as_):
    text = body_of(as_().get(group_of(orders)))
    assert numbers_in(text) == [5, 3, 2, 1]
    assert "4 dead letters" in text and "Resubmit 4" in text
    assert text.count('<td class="header"> Schema <span') == 4 and text.count('data-label="attempts"> 1 <') == 4
    assert "Message 5" in text and "no json" in text
    opened = body_of(as_().get(f"{group_of(orders)}&m=2"))
    assert "order-2" in opened and "&quot;currency&quot;: &quot;DM&quot;" in opened and 'rel="next"' in opened


def test_a_note_is_saved_shown_and_removed(orders, as_):
    client, url = as_(), group_of(orders)
    assert client.post(url, {"action": "note", "note": "  Ada looks  at it "}).status_code == 302
    by = rf'Ada looks at it <span class="quiet"><a class="actor"[^>]*><svg.*?</svg>{client.user.username}</a>, <time'
    assert re.search(by, body_of(client.get(url))) and re.search(by, body_of(as_("viewer").get(url)))
    inbox = body_of(client.get(f"/dead-letters/?q={orders.namespace}"))
    assert inbox.count("Ada looks at it") == 1 and re.search(by, inbox)
    assert client.post(url, {"action": "note", "note": "x" * 301}).status_code == 400
    assert client.post(url, {"action": "note", "note": ""}).status_code == 302
    assert not DeadLetterNote.objects.filter(namespace=orders.namespace).exists()
    assert as_("viewer").post(url, {"action": "note", "note": "x"}).status_code == 403


def test_a_note_is_found_by_an_old_address_and_with_conditions_that_were_added_and_removed(orders, as_):
    client, url = as_(), group_of(orders)
    client.post(url.replace("?q=", "?filter="), {"action": "note", "note": "Ada looks at it"})
    assert "Ada looks at it" in body_of(client.get(url.replace("?q=", "?filter="), follow=True))
    narrowed = client.get(f"{url}+number>2")
    assert numbers_in(body_of(narrowed)) == [5, 3] and "Ada looks at it" not in body_of(narrowed)
    first, *_, last = narrowed.context["filter"].chips
    assert "Ada looks at it" in body_of(client.get(urlsplit(url).path + last.without)) and last.text == "number>2"
    assert numbers_in(body_of(client.get(urlsplit(url).path + first.without))) == [5, 3]


def test_conditions_of_a_group_are_links_that_forget_what_was_done_in_it(orders, as_):
    url = group_of(orders)
    field = as_().get(f"{url}&m=2&tried=3&op=4").context["filter"]
    assert [parse_qs(urlsplit(chip.without).query).keys() for chip in field.chips] == [{"q"}] * 2
    of_list = body_of(as_().get(f"/entities/{orders}?tab=dead-letter&q=reason%3DLate"))
    assert f'href="/dead-letters/dead-letter/{orders}?q=reason%3DLate"' in of_list


def test_a_trial_resubmission_shows_its_outcome(orders, as_):
    client, url = as_(), group_of(orders)
    answer = client.post(f"{url}&m=2", {"action": "try"})
    assert answer.status_code == 302 and parse_qs(urlsplit(answer.url).query)["tried"] == ["2"]
    assert "Message 2: Resubmitted as message 6" in body_of(client.get(answer.url)) or "Waiting for a receiver" in body_of(
        client.get(answer.url)
    )
    [message] = service_bus.receive(orders, 1, actor=WORKER)
    assert "Received" in body_of(client.get(answer.url))
    service_bus.dead_letter(orders, [message.lock_token], "Schema", "still wrong", actor=WORKER)
    text = body_of(client.get(answer.url))
    assert "Message 2: Failed again" in text and "still wrong" in text
    assert client.post(f"{url}&m=2", {"action": "try"}).status_code == 409


def test_a_repair_is_previewed_tested_and_completed(orders, as_):
    client, url = as_(), f"{group_of(orders)}&m=3"
    before = {"original": '{\n  "total": 1,\n  "currency": "DM"\n}', "properties": "fixed=yes", "patch": ""}
    form = {**before, "body": '{\r\n  "total": 1,\r\n  "currency": "EUR"\r\n}'}
    text = body_of(client.post(url, {**form, "action": "preview"}))
    assert "&quot;EUR&quot;" in text and 'class="removed"' in text and "{&quot;currency&quot;: &quot;EUR&quot;}" in text
    answer = client.post(url, {**form, "action": "try"})
    assert answer.status_code == 302
    [message] = service_bus.receive(orders, 1, actor=WORKER)
    assert message.body == b'{\n  "total": 1,\n  "currency": "EUR"\n}' and message.properties["fixed"] == "yes"
    service_bus.complete(orders, [message.lock_token], actor=WORKER)
    assert "Message 3: Completed" in body_of(client.get(answer.url))
    [operation] = core.newest(entity_id=reads.entity(orders).id)
    page = body_of(client.get(f"/messages/{orders.namespace}/{orders.path}/{message.sequence_number}"))
    assert f'body repaired by <a href="/operations/{operation.id}/">operation {operation.id}</a>' in page
    compare = html.unescape(re.search(r'href="([^"]+)"\s*>Compare with 3<', page)[1])
    assert "Message ID" in body_of(client.get(compare))


def test_a_message_resubmitted_unchanged_is_not_marked_as_repaired(orders, as_):
    as_().post(f"{group_of(orders)}&m=2", {"action": "try"})
    assert "repaired by" not in body_of(as_().get(f"/messages/{orders.namespace}/{orders.path}/6"))


def test_all_messages_are_repaired_by_a_merge_patch_after_a_preview_of_three(orders, as_):
    client, url = as_(), group_of(orders)
    text = body_of(client.post(url, {"action": "preview-all", "patch": '{"currency": "EUR"}'}))
    assert text.count('class="preview"') == 3 and "its body is not JSON" in text
    assert client.post(url, {"action": "repair", "patch": '{"currency": "EUR"}', "up_to": "5"}).status_code == 302
    assert [m.body for m in service_bus.receive(orders, 9)] == [b'{"total": 1, "currency": "EUR"}'] * 3
    assert numbers_in(body_of(client.get(url))) == [5]
    assert "its body is not JSON" in body_of(client.get(url))
    [operation] = core.newest(entity_id=reads.entity(orders).id)
    shown, hidden = (body_of(as_(role).get(f"/operations/{operation.id}/")) for role in ("operator", "viewer"))
    assert 'Repair: <code>merge patch {"currency": "EUR"}</code>' in html.unescape(shown) and "merge patch" not in hidden


def test_the_preview_names_the_messages_that_would_be_refused(orders, as_):
    """Also those that are not among the three that are shown."""
    client, url = as_(), group_of(orders)
    text = body_of(client.post(url, {"action": "preview-all", "patch": '{"currency": "EUR"}'}))
    assert "4 checked: 1 message cannot be repaired and would stay here." in text
    assert "Message 5</a>: its body is not JSON" in text
    large = {"action": "preview-all", "patch": '{"note": "%s"}' % ("x" * 60_000)}
    sql = "UPDATE vitrine_entity SET max_message_size_in_kilobytes = 32 WHERE id = %s"
    connections.current().execute(sql, [reads.entity(orders).id])
    text = body_of(client.post(url, large))
    assert "4 messages cannot be repaired" in text and "Message 1</a>: with its new body it has 60," in text
    assert "all can be repaired" in body_of(client.post(group_of(orders, "Late"), {"action": "preview-all", "patch": '{"a": 1}'}))


def test_the_preview_shows_changed_messages_and_counts_repairable_messages(orders, as_):
    """Also if the newest messages cannot be repaired."""
    sql = "UPDATE vitrine_message SET body = 'no json' WHERE entity_id = %s AND sequence_number IN (2, 3)"
    connections.current().execute(sql, [reads.entity(orders).id])
    text = body_of(as_().post(group_of(orders), {"action": "preview-all", "patch": '{"currency": "EUR"}'}))
    shown = re.findall(r'class="preview".*?<strong>Message (\d+)</strong>', text)
    assert shown == ["1", "5", "3"] and "Repair and resubmit 1 of 4" in text
    all_can = body_of(as_().post(group_of(orders, "Late"), {"action": "preview-all", "patch": '{"currency": "EUR"}'}))
    assert re.search(r"Repair and resubmit 1 <", all_can)


def test_text_is_found_and_replaced_in_all_bodies(orders, as_):
    client, url = as_(), group_of(orders)
    change = {"patch": "", "find": "DM", "replace": "EUR"}
    text = body_of(client.post(url, {"action": "preview-all", **change}))
    assert "Message 5</a>: its body does not contain the text" in text
    answer = client.post(f"{url}&m=3", {"action": "try-repair", **change})
    [tried] = service_bus.receive(orders, 9)
    assert tried.body == b'{"total": 1, "currency": "EUR"}'
    assert "Repair and resubmit 3 as tried" in body_of(client.get(answer.url))
    assert client.post(answer.url, {"action": "repair-tried", "up_to": "5"}).status_code == 302
    assert len(service_bus.receive(orders, 9)) == 2 and numbers_in(body_of(client.get(url))) == [5]
    both = client.post(url, {"action": "repair", **change, "patch": '{"a": 1}'})
    assert both.status_code == 400 and "cannot be used together" in body_of(both)


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("", "is not JSON"),
        ("{'a': 1}", "line 1, column 2"),
        ("[1]", "must be a JSON object"),
        ("{}", "is empty"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1e999}', "1e999 is larger than a number can be"),
        ('{"a": 12345678901234567.89}', "it would be stored as 1.2345678901234568e+16"),
        ('{"a": %s}' % ("1" * 5_000), "has 5,000 digits; 1,000 are allowed"),
        ('{"a": 1, "a": 2}', 'an object has the key "a" twice'),
        ("[" * 5000, "cannot be used"),
    ],
)
def test_an_invalid_patch_is_explained_and_kept_in_the_form(orders, as_, patch, problem):
    text = body_of(as_().post(group_of(orders), {"action": "preview-all", "patch": patch}))
    assert problem in html.unescape(text)
    assert as_().post(group_of(orders), {"action": "repair", "patch": patch}).status_code == 400


def test_a_repaired_body_that_is_too_large_is_refused(orders, as_, monkeypatch):
    from explorer.dead_letters import repairs

    changed = repairs.change(1, b'{"a": 1}', {"merge_patch": {"a": "x" * 100}}, 50)
    assert changed.problem == "with its new body it has 109 bytes; 50 are allowed"


def test_a_group_is_resubmitted_at_a_pace_stopped_and_undone(orders, as_):
    client, url = as_(), group_of(orders)
    for pace in ("0", "1000000", "fast"):
        refused = client.post(url, {"action": "resubmit", "pace": pace})
        assert refused.status_code == 400 and "pace: must be 0.1 to 100,000 messages per second" in body_of(refused)
    assert client.post(url, {"action": "resubmit", "pace": "50", "up_to": "5"}).status_code == 302
    [operation] = core.newest(entity_id=reads.entity(orders).id)
    assert (operation.pace, operation.counted, operation.is_open) == (50.0, 4, True)
    assert f"operation {operation.id}" in body_of(client.get(url))
    assert client.post(url, {"action": "stop", "operation": operation.id}).status_code == 302
    assert client.post(url, {"action": "resubmit", "up_to": "5"}).status_code == 302
    newest = core.newest(entity_id=reads.entity(orders).id)[0]
    assert (newest.done, reads.entity(orders).counts.dead_letter) == (4, 1)
    assert "Undo 4" in body_of(client.get(url))
    assert "Undone: 4 messages returned." in body_of(client.post(url, {"action": "undo", "operation": newest.id}, follow=True))
    assert reads.entity(orders).counts.dead_letter == 5
    assert AuditRecord.objects.filter(action="resubmit dead letters").exists()


@pytest.mark.parametrize(("action", "word"), [("archive", "Archived"), ("discard", "Discarded")])
def test_a_group_is_archived_or_discarded_and_restored(orders, as_, action, word):
    client, url = as_(), group_of(orders, "Late")
    assert client.post(url, {"action": action}).status_code == 302
    assert reads.entity(orders).counts.dead_letter == 4
    assert f"{word} by {client.user.username} (you)" in body_of(client.get(f"/messages/{orders.namespace}/{orders.path}/4"))
    assert "No messages of this group are left" in body_of(client.get(url))
    [operation] = core.newest(entity_id=reads.entity(orders).id)
    client.post(url, {"action": "undo", "operation": operation.id})
    assert reads.entity(orders).counts.dead_letter == 5


def test_a_group_is_moved_to_another_queue(orders, as_):
    other = EntityAddress(orders.namespace, "other")
    entities.create_queue(other)
    client, url = as_(), group_of(orders)
    assert client.post(url, {"action": "move", "to": ""}).status_code == 400
    client.post(url, {"action": "move", "to": "other"})
    assert (reads.entity(orders).counts.dead_letter, reads.entity(other).counts.active) == (1, 4)


def test_messages_resubmitted_by_another_user_are_not_resubmitted_again(orders, as_):
    """What the first one resubmitted is not resubmitted again by the second, whose page is older."""
    ada, ben, url = as_(), as_(), group_of(orders)
    assert "Resubmit 4" in body_of(ada.get(url)) and "Resubmit 4" in body_of(ben.get(url))
    ada.post(url, {"action": "resubmit", "up_to": "5"})
    ben.post(url, {"action": "resubmit", "up_to": "5"})
    assert (reads.entity(orders).counts.active, reads.entity(orders).counts.dead_letter) == (4, 1)
    refused = ben.post(f"{url}&m=2", {"action": "try"}, headers=FRAGMENT)
    assert refused.status_code == 409
    text = body_of(refused)
    assert "Message 2 was not resubmitted: it is no longer in the list." in text and "Resubmitted 0" not in text


def test_a_running_operation_of_another_user_is_shown_beside_the_buttons(orders, as_, monkeypatch):
    """And afterwards it says how many had left before it reached them."""
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    ada, ben, url = as_(), as_(), group_of(orders)
    ada.post(url, {"action": "resubmit", "pace": "1", "up_to": "5"})
    [operation] = core.newest(entity_id=reads.entity(orders).id)
    text = body_of(ben.get(url))
    assert re.search(rf'operation {operation.id}</a> · queued · <a class="actor"[^>]*><svg.*?</svg>{ada.user.username}</a>', text)
    assert "0 of 4 done" in text
    ben.post(f"{url}&m=2", {"action": "try"})
    ben.post(url, {"action": "discard", "up_to": "5"})
    runner.run(operation, seconds=None)
    text = body_of(as_().get(group_url(EntityAddress(orders.namespace, orders.path, SubQueue.DEAD_LETTER), "")))
    assert "0 of 4 done · 4 left the list before" in text and 'max="4" value="4"' in text


def test_a_stopped_and_undone_operation_does_not_report_the_rest_as_gone(orders, as_, monkeypatch):
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    monkeypatch.setattr(runner, "BATCH", 3)
    client, url = as_(), group_of(orders)
    client.post(url, {"action": "resubmit", "pace": "10000", "up_to": "5"})
    [operation] = core.newest(entity_id=reads.entity(orders).id)
    assert runner.run(operation, seconds=0)
    for action in ("stop", "undo"):
        client.post(url, {"action": action, "operation": operation.id})
    text = body_of(client.get(url))
    assert "3 of 4 done · 3 undone · 1 not attempted" in text and "4 dead letters" in text
    report = body_of(client.get(f"/operations/{operation.id}/"))
    assert "<dt>Not attempted</dt> <dd>1</dd>" in report and "Left the list" not in report


def test_users_without_the_right_have_read_only_pages(orders, as_):
    viewer, url = as_("viewer"), group_of(orders)
    text = body_of(viewer.get(url))
    assert "Acting on messages requires the operator role" in text and "Resubmit 4" not in text
    assert "permission to view message bodies" in text and "no json" not in text
    for action in ("try", "resubmit", "archive", "discard"):
        assert viewer.post(f"{url}&m=1", {"action": action}).status_code == 403
    assert reads.entity(orders).counts.dead_letter == 5


def test_bad_addresses_are_refused(orders, as_):
    client, at = as_(), f"{orders.namespace}/{orders.path}"
    assert client.get(f"/dead-letters/dead-letter/{at}").status_code == 200
    assert client.get(f"/dead-letters/nowhere/{at}").status_code == 404
    assert client.get(f"/dead-letters/dead-letter/{orders.namespace}/none").status_code == 404
    refused = client.get(f"/dead-letters/dead-letter/{at}?q=colour:red")
    assert refused.status_code == 400 and 'aria-describedby="f-problem"' in body_of(refused)
    assert 'value="colour:red"' in body_of(refused) and "colour" in refused.context["filter"].problem.text
    assert as_("viewer").get(f"/dead-letters/dead-letter/{at}?q=body:x").status_code == 403
    assert client.get(f"/dead-letters/dead-letter/{at}?m=x").status_code == 400
    assert client.post(f"/dead-letters/dead-letter/{at}", {"action": "explode"}).status_code == 400
    assert client.post(f"/dead-letters/dead-letter/{at}", {"action": "stop", "operation": "999999"}).status_code == 400


def test_poison_messages_and_dead_letters_of_rabbitmq_are_groups_of_the_same_inbox(db, as_):
    jobs = EntityAddress(f"dead{uuid.uuid4().hex[:8]}", "jobs")
    queue_storage.create_account(jobs.namespace)
    queue_storage.create_queue(jobs, max_dequeue_count=1)
    namespaces.pause_clock(jobs.namespace)
    queue_storage.put_all(jobs, ["a", "b"])
    queue_storage.get(jobs, 2, visibility_timeout=timedelta(seconds=1))
    namespaces.step_clock(jobs.namespace, timedelta(seconds=2))
    queue_storage.get(jobs)
    mail = EntityAddress(f"dead {uuid.uuid4().hex[:6]}", "mail")
    rabbitmq.create_vhost(mail.namespace)
    rabbitmq.declare_exchange(mail.namespace, "graves", "fanout")
    rabbitmq.declare_queue(mail, arguments={"x-dead-letter-exchange": "graves"})
    rabbitmq.declare_queue(EntityAddress(mail.namespace, "dead"))
    rabbitmq.bind_queue(mail.namespace, "dead", "graves", "")
    rabbitmq.publish(mail.namespace, [Publication(b"x", routing_key="mail")] * 2)
    rabbitmq.reject(mail, [delivery.token for delivery in rabbitmq.take(mail, 2, owner_id=1_000_005)])
    client = as_()
    for address in (jobs, mail):
        [group] = reads.dead_groups(EntityFilter(namespace=address.namespace)).groups
        url = group_of(address, group.reason)
        text = body_of(client.get(url))
        assert numbers_in(text) == [2, 1]
        assert "no reason given" not in text.lower() and text.count(f'<td class="header"> {group.reason} </td>') == 2
        assert text.lower().count(f"failed in {address.name}") == 2  # above the list, and beside it
        assert re.findall(r'data-label="attempts"> (\S+) <', text) == ["1", "1"]
        assert client.post(f"{url}&m=1", {"action": "try"}).status_code == 302
        assert client.post(url, {"action": "resubmit", "up_to": "2"}).status_code == 302
        assert numbers_in(body_of(client.get(url))) == []
    assert reads.counts(mail).active == 2


@pytest.mark.parametrize("deaths", ["many", [{"count": "many"}], [{"count": 2**62}, {"count": 2**62}], [{"count": {}}, 7, {}]])
def test_an_x_death_header_of_a_publisher_may_be_anything(deaths, db):
    queue = EntityAddress(f"dead{uuid.uuid4().hex[:8]}", "mail")
    rabbitmq.create_vhost(queue.namespace)
    rabbitmq.declare_queue(queue)
    rabbitmq.publish(queue.namespace, [Publication(b"", routing_key="mail", properties=Properties(headers={"x-death": deaths}))])
    assert reads.failures(queue, reads.entity(queue).id, [1])[1].attempts is None


def test_normal_messages_beside_dead_letters_are_not_counted_as_dead_letters(db, as_):
    """RMQ-066: a message that has died has x-death. So the others of a queue that is also published to are left alone."""
    mail = EntityAddress(f"dead {uuid.uuid4().hex[:6]}", "mail")
    rabbitmq.create_vhost(mail.namespace)
    rabbitmq.declare_queue(mail, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
    work = EntityAddress(mail.namespace, "work")
    rabbitmq.declare_queue(work)
    rabbitmq.publish(mail.namespace, [Publication(b"dead", routing_key="mail")] * 2)
    rabbitmq.reject(mail, [delivery.token for delivery in rabbitmq.take(mail, 2, owner_id=1_000_005)])
    rabbitmq.publish(mail.namespace, [Publication(b"normal", routing_key="work")] * 30)
    groups = reads.dead_groups(EntityFilter(namespace=mail.namespace))
    [group] = groups.groups
    assert (group.count, groups.total, groups.examined, groups.scanned, groups.capped) == (2, 2, 2, 32, False)
    client = as_()
    text = body_of(client.get(f"/dead-letters/?q={mail.namespace}"))
    assert "<strong>2</strong> dead letters in 1 group" in text and "100 %" in text
    client.post(group_of(work, group.reason), {"action": "discard", "up_to": "99"})
    assert reads.counts(work).active == 30 and not reads.dead_groups(EntityFilter(namespace=mail.namespace)).groups


@pytest.mark.slow
def test_a_trial_and_a_resubmission_of_all_with_stop_and_undo_work_on_one_page(transactional_db, orders, browser):  # noqa: F811
    """By keyboard: open the group, try one, resubmit the rest at a pace, stop, undo."""
    page = browser("operator")
    page.goto(f"/dead-letters/?q={orders.namespace}")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead-letters/dead-letter/**")
    expect(page.locator("#work h1")).to_contain_text("4 dead letters")
    here = urlsplit(page.url).path
    page.get_by_role("button", name="Try 1").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**tried=5**")
    expect(page.locator("#fate")).to_contain_text("Message 5: ")
    [message] = service_bus.receive(orders, 1, actor=WORKER)
    service_bus.complete(orders, [message.lock_token], actor=WORKER)
    expect(page.locator("#fate")).to_contain_text("Message 5: Completed")
    page.locator("#pace").fill("0.1")
    page.get_by_role("button", name="Resubmit 3").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".operation")
    expect(page.locator(".operation")).to_contain_text("queued")
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".operation").first).to_contain_text("stopped")
    page.get_by_role("button", name="Resubmit 3").click()
    page.get_by_role("button", name="Undo 3").click()
    page.get_by_text("undone", exact=False).first.wait_for()
    expect(page.locator(".operation").first).to_contain_text("undone")
    expect(page.locator("#work h1")).to_contain_text("3 dead letters")
    assert urlsplit(page.url).path == here


def test_keys_move_through_the_messages_of_a_group_and_try_the_open_message(transactional_db, orders, browser):  # noqa: F811
    """As in every list: j and k walk, o opens, Esc closes, Enter opens the message's page."""
    page = browser("operator")
    page.goto(group_of(orders))
    title = page.locator("#pane-title")
    expect(title).to_contain_text("Message 5")
    expect(page.locator("#group-list tr.opened")).to_contain_text("order-5")
    page.keyboard.press("j")
    expect(title).to_contain_text("Message 3")
    page.keyboard.press("j")
    expect(title).to_contain_text("Message 2")
    expect(page).to_have_url(re.compile("m=2$"))
    expect(page.locator("#open-m")).to_have_value("2")
    page.keyboard.press("k")
    expect(page.locator("#open-m")).to_have_value("3")
    page.keyboard.press("Escape")
    expect(page.locator("#pane")).to_be_hidden()
    expect(page.locator("#open-m")).to_have_value("5")
    page.locator("#group-list tr", has_text="order-2").locator("td").nth(1).click(force=True)
    expect(title).to_contain_text("Message 2")
    expect(page.locator("#open-m")).to_have_value("2")
    page.get_by_role("button", name="Try 1").first.click()
    expect(page.locator("#fate")).to_contain_text("Message 2: ")
    page.locator("#group-list .row-link").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages/**")


def test_a_click_on_an_inbox_row_opens_the_group_and_links_in_it_still_work(
    transactional_db,
    orders,
    browser,  # noqa: F811
):
    page = browser("viewer")
    page.goto(f"/dead-letters/?q={orders.namespace}")
    row = page.locator("#inbox tbody tr").first
    row.locator("td").nth(4).click()
    page.wait_for_url("**/dead-letters/dead-letter/**")
    page.go_back()
    row.locator("td").nth(1).locator("a").click()
    page.wait_for_url(f"**/entities/{orders.namespace}/**")


def test_the_repair_form_keeps_the_list_and_the_buttons_visible(transactional_db, orders, browser):  # noqa: F811
    sent = [Message(b'{"currency": "DM"}', message_id=f"more-{number}") for number in range(40)]
    service_bus.send(orders, sent, actor=WORKER)
    for message in service_bus.receive(orders, 40, actor=WORKER):
        service_bus.dead_letter(orders, [message.lock_token], "Currency", "unknown 'DM'", actor=WORKER)
    page = browser("operator")
    page.goto(group_of(orders, "Currency"))
    page.get_by_role("link", name="Repair…").click()
    expect(page.locator("#repair-patch")).to_be_focused()
    expect(page.locator("#repair-patch")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Try 1").first).to_be_in_viewport()
    expect(page.locator("#group-list .row-link").first).to_be_in_viewport()


def test_the_repair_link_opens_its_form_and_keeps_it_open(transactional_db, orders, browser):  # noqa: F811
    page = browser("operator")
    page.goto(group_of(orders))
    fetched = []
    page.on("request", lambda request: fetched.append(request.url) if request.resource_type == "fetch" else None)
    page.keyboard.press("r")
    expect(page.locator("#repair-patch")).to_be_focused()
    page.keyboard.type('{"currency": "EUR"}')
    page.get_by_role("button", name="Preview three").click()
    expect(page.locator("#checked")).to_contain_text("1 message cannot be repaired")
    assert fetched == []


@pytest.mark.slow
def test_the_filter_of_a_group_is_used_by_keyboard(transactional_db, orders, browser):  # noqa: F811
    """As in every list: f, suggestions, Enter applies, Backspace removes. The keys of the page work at once afterwards."""
    page = browser("operator")
    page.goto(f"/dead-letters/dead-letter/{orders}")
    field, heading = page.locator("#f-q"), page.locator("#work h1")
    page.keyboard.press("f")
    expect(field).to_be_focused()
    page.keyboard.type("reason:La")
    expect(page.locator("#f-suggestions [role=option]")).to_contain_text("reason=Late")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(heading).to_contain_text("1 dead letter")
    expect(page.locator("[data-chip]")).to_have_text("reason=Late")
    expect(page).to_have_url(re.compile(r"/orders\?q=reason%3DLate$"))
    expect(page.locator("#pane-title")).to_contain_text("Message 4")
    page.wait_for_load_state()
    page.keyboard.press("f")
    page.keyboard.press("Backspace")
    expect(heading).to_contain_text("5 dead letters")
    page.wait_for_load_state()
    page.keyboard.press("f")
    page.keyboard.type("number<4")
    page.keyboard.press("Enter")
    expect(heading).to_contain_text("3 dead letters")
    expect(page.locator("#pane-title")).to_contain_text("Message 3")
    page.wait_for_load_state()
    page.keyboard.press("j")
    expect(page.locator("#pane-title")).to_contain_text("Message 2")
    expect(page).to_have_url(re.compile(r"q=number%3C4&m=2$"))
    page.keyboard.press("j")
    expect(page.locator("#pane-title")).to_contain_text("Message 1")
