"""The page of a message, and the same in the pane beside a list: what each says, and for whom."""

import base64
import gzip
import re
from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from tests.html import body_of

from .conftest import FRAGMENT, WORKER

pytest_plugins = ["tests.explorer.rabbitmq_office"]
PANE = {**FRAGMENT, "HX-Target": "aside#pane"}


def pane_of(page):
    return page[page.index('id="pane"') : page.index("</aside>", page.index('id="pane"'))]


# The split view


def test_a_list_shows_the_open_message_in_a_pane(pages, as_):
    page = body_of(as_("operator").get(f"/entities/{pages.at}?tab=dead-letter&m=2"))
    pane = pane_of(page)
    assert "Dead-lettered: PaymentRefused" in pane and "no <money>." in pane and "Timeline" in pane
    assert f'href="/messages/{pages.at}/2?tab=dead-letter"' in pane, "the full page knows the list"
    assert 'href="?tab=dead-letter"' in pane, "closing needs no JavaScript"
    assert f'href="/messages/{pages.at}/2"' in page, "the row is still there"


def test_without_a_message_the_pane_is_hidden(pages, as_):
    assert "hidden" in pane_of(body_of(as_("viewer").get(f"/entities/{pages.at}")) + "</aside>").split(">")[0]


@pytest.mark.parametrize("m", ["x", "-1", "1.5", "9" * 30, "a/b"])
def test_a_link_with_an_invalid_number_is_refused_with_a_reason(pages, as_, m):
    response = as_("viewer").get(f"/entities/{pages.at}", {"m": m})
    assert response.status_code == 400 and "There is no message" in body_of(response)


def test_an_unknown_message_leaves_the_list_usable(pages, as_):
    page = body_of(as_("viewer").get(f"/entities/{pages.at}?m=999"))
    assert "999" in pane_of(page) and f'href="/messages/{pages.at}/5"' in page


def test_an_htmx_request_for_a_message_returns_only_the_pane(pages, as_):
    page = body_of(as_("operator").get(f"/messages/{pages.at}/4?tab=locked&m=4", headers=PANE))
    assert page.lstrip().startswith("<aside") and "Locked by worker," in page and "<h1" not in page


@pytest.mark.parametrize("at", ["stored", "rabbit"])
def test_storage_and_rabbitmq_lists_have_the_message_pane(pages, office, as_, at):
    address = f"/entities/{pages.stored}?m=2" if at == "stored" else f"/entities/{office.at}/scans?m=1"
    pane = pane_of(body_of(as_("viewer").get(address)))
    assert ("Leased by worker," if at == "stored" else "Unacknowledged, held by worker") in pane


def test_an_action_in_the_pane_returns_the_pane_or_without_javascript_the_list(pages, as_):
    client = as_("operator")
    page = body_of(client.post(f"/messages/{pages.at}/2?tab=dead-letter&m=2", {"action": "resubmit"}, headers=PANE))
    assert page.lstrip().startswith("<aside") and f"Resubmitted by {client.user.username} (you)" in page
    back = f"/entities/{pages.at}?m=6"
    assert client.post(f"/messages/{pages.at}/6", {"action": "cancel", "back": back})["Location"] == back
    elsewhere = client.post(f"/messages/{pages.at}/5", {"action": "cancel", "back": "https://example.org/"})
    assert "example.org" not in elsewhere["Location"]


# What it says


def test_a_dead_letter_is_never_shown_as_deliverable(pages, as_):
    page = body_of(as_("operator").get(f"/messages/{pages.at}/2"))
    assert "in dead letters for <" in page and " so far</div>" in page
    assert "It stays in the dead-letter queue until it is resubmitted, received there or deleted." in page
    for hopeful in ("Ready", "next in line", "Next in line", "can be delivered", "ahead.", "never expires"):
        assert hopeful not in page, hopeful


def test_a_dead_letter_shows_its_delivery_count_before_dead_lettering(namespace, as_):
    """SB-103: in the dead-letter queue the stored count begins at 0."""
    queue = entities.create_queue(EntityAddress(namespace, "labels"), max_delivery_count=3).address
    service_bus.send(queue, [Message(b"x")])
    for _ in range(3):
        [message] = service_bus.receive(queue)
        service_bus.abandon(queue, [message.lock_token])

    def delivery_count():
        page = body_of(as_("viewer").get(f"/messages/{queue}/1"))
        return re.sub("<[^>]*>| +", " ", page.partition("Delivery count")[2].partition("Enqueued")[0])

    assert delivery_count().split() == ["3", "of", "3", "failed", "before", "it", "was", "dead-lettered"]
    connections.current().execute("DELETE FROM vitrine_message_event WHERE entity_id = %s", [reads.entity(queue).id])
    assert delivery_count().split() == ["0", "counted", "anew", "in", "the", "dead-letter", "queue"]


def test_each_remaining_time_is_shown_once(pages, as_):
    for number in (4, 6):
        page = body_of(as_("operator").get(f"/messages/{pages.at}/{number}"))
        state = page[page.index('id="state-title"') : page.index("Properties")]
        assert state.count('role="timer"') == 1 and "for another" not in state


def test_only_the_lock_holder_gets_settlement_buttons(pages, as_):
    page = body_of(as_("operator").get(f"/messages/{pages.at}/4"))
    assert "Release lock" in page and 'value="complete"' not in page
    assert "requires the operator role" in body_of(as_("viewer").get(f"/messages/{pages.at}/4"))
    client = as_("operator")
    actor = Actor("user", client.user.username, Right.ALL)
    [held] = service_bus.receive(pages.shop, 1, actor=actor)
    page = body_of(client.get(f"/messages/{pages.at}/{held.sequence_number}"))
    assert f"Locked by {client.user.username} (you)," in page and 'value="complete"' in page


def test_the_count_of_properties_agrees_with_the_list(pages, as_):
    page = body_of(as_("viewer").get(f"/messages/{pages.at}/1"))
    listed = page[page.index('<dl class="properties" id="properties"') :]
    rows = listed[: listed.index("</dl>")].count("<dt>")
    assert re.search(rf'Properties <span class="quiet">{rows}</span>', page) and rows > 2


def test_empty_and_invisible_parts_of_properties_are_shown_and_copied_as_sent(pages, as_):
    sent = {"nul": "", "na\u200bme": "<b>", "file": "invoice\u202egpj.exe\x07", "lines": "one\ntwo"}
    [number] = service_bus.send(pages.shop, [Message(b"x", subject="pla\u00adced", properties=sent)])
    page = as_("viewer").get(f"/messages/{pages.at}/{number}").content.decode()
    point = '<span class="code-point">U+{}</span>'.format
    assert '<span class="quiet">(empty)</span>' in page and '<span class="type">string</span>' in page
    assert f"na{point('200B')}me" in page and f"invoice{point('202E')}gpj.exe{point('0007')}" in page
    assert f"pla{point('00AD')}ced" in page and "one\ntwo" in page and "&lt;b&gt;" in page
    assert 'data-text="invoice\u202egpj.exe\x07"' in page and 'data-text=""' in page and 'data-text="&lt;b' not in page


def test_typed_values_are_formatted_for_reading(pages, as_):
    [number] = service_bus.send(pages.shop, [Message(b"x", properties={"patience": timedelta(minutes=90)})])
    page = body_of(as_("viewer").get(f"/messages/{pages.at}/{number}"))
    assert "1 h 30 min" in page and "PT1H30M" in page and "5400000000" not in page


def test_a_rabbitmq_expiration_is_a_duration(office, as_):
    properties = rabbitmq.Properties(expiration="90000")
    rabbitmq.publish(office.vhost, [rabbitmq.Publication(b"x", routing_key="spare", properties=properties)])
    page = body_of(as_("viewer").get(f"/messages/{office.at}/spare/1"))
    assert "1 min 30 s" in page and "90000 ms" in page


def test_related_messages_are_links(pages, as_):
    sent = Message(b"x", message_id="q-1", correlation_id='c "1"', reply_to="eu/orders")
    [number] = service_bus.send(pages.shop, [sent, Message(b"y", reply_to="nowhere")])[:1]
    page = body_of(as_("viewer").get(f"/messages/{pages.at}/{number}"))
    assert "correlation%3D%22c%20%5C%221%5C%22%22" in page and "correlation%3Dq-1" in page and "id%3D%22c%20" in page
    assert f'href="/entities/{pages.at}">eu/orders</a>' in page
    assert "no such entity here" in body_of(as_("viewer").get(f"/messages/{pages.at}/{number + 1}"))


def test_both_messages_of_a_resubmission_link_to_each_other(pages, as_):
    [(old, new)] = service_bus.resubmit(pages.shop.dead_letter, [2], actor=WORKER).items()
    client = as_("viewer")
    at = f"/messages/{pages.at}"
    gone, made = body_of(client.get(f"{at}/{old}")), body_of(client.get(f"{at}/{new}"))
    assert "Resubmitted as" in gone and f'href="{at}/{new}"' in gone
    assert "Resubmitted from" in made and f'href="{at}/{old}"' in made


def test_a_late_settlement_is_explained(pages, as_):
    namespaces.pause_clock(pages.shop.namespace)
    slow, [held] = (
        Actor("process", "slow", Right.ALL),
        service_bus.receive(pages.shop, 1, actor=Actor("process", "slow", Right.ALL)),
    )
    namespaces.step_clock(pages.shop.namespace, timedelta(minutes=2))
    service_bus.complete(pages.shop, [held.lock_token], actor=slow)
    page = body_of(as_("viewer").get(f"/messages/{pages.at}/{held.sequence_number}"))
    assert "Complete refused: 1 min too late, slow at" in page and "never renewed, ended at" in page


def test_decoded_bodies_name_their_layers_and_can_be_shown_as_sent(pages, as_):
    body = base64.b64encode(gzip.compress(b'{"n": 1}'))
    [number] = service_bus.send(pages.shop, [Message(body)])
    client, at = as_("operator"), f"/messages/{pages.at}"
    assert "JSON in gzip in base64" in body_of(client.get(f"{at}/{number}"))
    assert body.decode() in body_of(client.get(f"{at}/{number}?body=raw"))
    assert "00000000  " in body_of(client.get(f"{at}/{number}?body=hex"))
    assert "Hex" not in body_of(as_("viewer").get(f"{at}/{number}")), "without the right to see bodies"


# Next and previous


@pytest.mark.parametrize(
    ("query", "number", "previous", "following"),
    [
        ("", 5, 6, 4),
        ("?order=oldest", 5, 4, 6),
        ("?tab=active&order=oldest", 5, None, 7),
        ("?tab=active&q=id%3Aorder-", 4, 5, None),
        ("?tab=active", 7, None, 5),
        ("?tab=active", 4, 5, None),
        ("?tab=history", 5, None, None),
    ],
)
def test_the_page_links_to_its_neighbours_in_the_lists_order_and_filter(pages, as_, query, number, previous, following):
    page = body_of(as_("operator").get(f"/messages/{pages.at}/{number}{query}"))
    for rel, other in (("prev", previous), ("next", following)):
        assert (f'rel="{rel}"' in page) is (other is not None)
        if other:
            assert f'rel="{rel}" href="/messages/{pages.at}/{other}{query}"' in page


def test_records_of_the_history_link_to_their_neighbours(pages, as_):
    service_bus.purge(pages.shop, actor=WORKER)
    url = f"/messages/{pages.at}"
    newest, *_, oldest = [e.sequence_number for e in reads.gone(pages.shop).rows]
    page = body_of(as_("viewer").get(f"{url}/{newest}?tab=history"))
    assert 'rel="next"' in page and 'rel="prev"' not in page
    assert 'rel="prev"' in body_of(as_("viewer").get(f"{url}/{oldest}?tab=history"))
    alone = body_of(as_("viewer").get(f"{url}/1?tab=history&outcome=COMPLETED"))
    assert 'rel="next"' not in alone and 'rel="prev"' not in alone


def test_an_operator_dead_letters_a_waiting_message_from_its_page(pages, as_):
    url = f"/messages/{pages.at}"
    active = body_of(as_("operator").get(f"{url}/5"))
    assert 'class="button little danger"' in active and 'value="dead-letter-unlocked"' in active
    assert 'value="dead-letter-unlocked"' not in body_of(as_("operator").get(f"{url}/4"))  # locked
    viewer = body_of(as_("viewer").get(f"{url}/5"))
    assert "Acting on messages requires the operator role." in viewer
    page = as_("operator").post(f"{url}/5", {"action": "dead-letter-unlocked", "reason": "poison"}, follow=True)
    assert "Dead-lettered message 5: poison." in body_of(page) and "Dead-lettered: poison" in body_of(page)
    assert service_bus.peek(pages.shop.dead_letter, 5)[-1].dead_letter_reason == "poison"
    again = as_("operator").post(f"{url}/4", {"action": "dead-letter-unlocked", "reason": "x"}, follow=True)
    assert "Message 4 was not dead-lettered" in body_of(again)


def test_messages_of_the_other_families_are_paged_in_their_own_order(pages, office, as_):
    stored = body_of(as_("viewer").get(f"/messages/{pages.stored}/7?tab=visible"))
    assert f'rel="prev" href="/messages/{pages.stored}/8?tab=visible"' in stored and 'rel="next"' not in stored
    queued = body_of(as_("viewer").get(f"/messages/{office.at}/mail/3"))
    assert 'rel="next"' in queued and 'rel="prev"' in queued


# What is gone


@pytest.fixture
def removed(pages, as_):
    """A queue that was deleted with two messages."""
    address = EntityAddress(pages.shop.namespace, "season")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"1", message_id="gone-1"), Message(b"2")], actor=WORKER)
    as_("administrator").post(f"/delete/{address}", {"name": address.path})
    return address


def test_a_message_of_a_deleted_entity_is_a_read_only_record(removed, as_):
    page = body_of(as_("operator").get(f"/messages/{removed}/1"))
    assert "The queue was deleted. This is the record of the message." in page
    assert "gone-1" in page and "Deleted with its queue by administrator-" in page and "Timeline" in page and "season" in page
    assert 'value="resubmit"' not in page and "Duplicate" not in page


def test_the_timeline_of_a_message_of_a_deleted_entity_names_the_deleting_user(removed, as_):
    connections.current().execute("UPDATE vitrine_soft_deleted SET until = now() - interval '1 s'")
    sweeps.remove_deleted_entities()
    page = body_of(as_("viewer").get(f"/messages/{removed}/1"))
    state, timeline = page.split('class="timeline"')
    [deleter] = re.findall(r"Deleted with its queue by (administrator-\w+)", state)
    assert f'href="/actors/user/{deleter}/"' in timeline and "/actors/broker/" not in timeline


def test_a_new_entity_of_the_same_name_does_not_hide_the_record_of_the_deleted_one(removed, as_):
    client = as_("viewer")
    old = reads.deleted_entity(removed)
    entities.create_queue(removed)
    service_bus.send(removed, [Message(b"new", message_id="new-1")])
    assert "new-1" in body_of(client.get(f"/messages/{removed}/1"))
    page = body_of(client.get(f"/messages/{removed}/1?of={old.id}"))
    assert "gone-1" in page and "new-1" not in page
    assert client.get(f"/messages/{removed}/9?of={old.id}").status_code == 404


def test_a_deleted_queue_of_the_other_families_keeps_its_records(pages, as_):
    poison = EntityAddress(pages.jobs.namespace, "jobs-poison")
    queue_storage.delete_queue(poison, actor=WORKER)
    assert "The queue was deleted." in body_of(as_("viewer").get(f"/messages/{poison}/1"))


def test_a_duplicate_of_a_removed_message_has_its_properties_and_a_note_on_the_body(pages, as_):
    page = as_("operator").get(f"/send/{pages.at}?like=1")
    assert "Message 1 is gone, and its body with it." in body_of(page)
    assert page.context["form"]["subject"].value() == "placed" and page.context["form"]["body"].value() == ""
    assert "nothing is known of message 999" in body_of(as_("operator").get(f"/send/{pages.at}?like=999"))
    assert "nothing is known of message x" in body_of(as_("operator").get(f"/send/{pages.stored}?like=x"))


# Compare


def test_two_messages_are_compared_by_property_and_by_line(pages, as_):
    sent = [
        Message(b'{"n": 1, "same": true}', message_id="left", properties={"region": "eu"}),
        Message(b'{"n": 2, "same": true}', message_id="right", properties={"region": "us"}),
    ]
    a, b = service_bus.send(pages.shop, sent)
    client = as_("operator")
    response = client.post(f"/compare/{pages.at}", {"numbers": [a, b]})
    assert response["Location"] == f"/compare/{pages.at}?a={a}&b={b}"
    page = client.get(response["Location"])
    names = [row.name for row in page.context["different"]]
    assert "Message ID" in names and "region (string)" in names and "State" not in names
    kinds = [line.kind for line in page.context["lines"]]
    assert kinds.count("changed") == 1 and "equal" in kinds
    assert "region (string)<span" in body_of(page) and ", differs" in body_of(page)


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?a=5", 400), ("?a=5&b=x", 400), ("?a=5&b=999", 404)])
def test_invalid_comparisons_are_refused(pages, as_, query, status):
    assert as_("viewer").get(f"/compare/{pages.at}{query}").status_code == status


def test_a_selection_of_other_than_two_messages_is_refused(pages, as_):
    response = as_("viewer").post(f"/compare/{pages.at}", {"numbers": [5]})
    assert response.status_code == 400 and "Select two messages to compare" in body_of(response)


def test_messages_of_two_entities_and_removed_messages_can_be_compared(pages, as_):
    page = body_of(as_("operator").get(f"/compare/{pages.at}?a=1&b={pages.stored}/8"))
    assert "Entity" in page and "one is removed with its message" in page
