"""Moving dead letters back from their queue's page: what is asked, what is done, what is written down, and who may."""

import re
from urllib.parse import quote

import pytest

from broker_core import rabbitmq, reads
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.rules.policies import Policy
from explorer.models import AuditRecord
from tests.html import body_of

from .conftest import FRAGMENT
from .rabbitmq_office import publish

pytest_plugins = ["tests.explorer.rabbitmq_office"]


def last_act():
    return AuditRecord.objects.order_by("-pk").first()


@pytest.fixture
def dead(office):
    """The queue for dead letters: of mail, 1 and 3 were rejected and 2 has expired; 4 never died."""
    publish(office.vhost, "mail.fourth", message_id="second")
    letter = office.channel.get("mail")
    while letter.properties.message_id != "second":
        letter = office.channel.get("mail")
    office.channel.reject(letter.delivery_tag, requeue=False)
    publish(office.vhost, "dead", exchange="", message_id="fresh")
    return EntityAddress(office.vhost, "dead")


def counts(office):
    return {queue.name: queue.messages for queue in rabbitmq.list_queues(office.vhost)}


def test_a_list_of_dead_letters_offers_to_move_messages_back(office, dead, as_):
    page = body_of(as_("operator").get(f"/entities/{office.at}/dead"))
    assert "Resubmit selected" in page and f'formaction="/rabbitmq/move/{quote(office.at)}/dead' in page
    assert page.count('name="numbers"') == 4
    page = body_of(as_("operator").get(f"/entities/{office.at}/scans"))
    assert "Move selected" in page
    assert page.count('name="numbers"') == 1, "a held one cannot be ticked"
    assert 'name="numbers"' not in body_of(as_("operator").get(f"/entities/{office.at}/mail?tab=expired"))


def test_a_viewer_sees_that_moving_requires_the_operator_role(office, dead, as_):
    page = body_of(as_("viewer").get(f"/entities/{office.at}/dead"))
    assert "Acting on messages requires the operator role." in page and "dead?to=back" not in page
    for method in ("get", "post"):
        response = getattr(as_("viewer"), method)(f"/rabbitmq/move/{office.at}/dead", {"to": "back", "numbers": ["1"]})
        assert response.status_code == 403
    assert counts(office)["dead"] == 4


def test_the_confirmation_names_the_count_and_the_targets(office, dead, as_):
    before = counts(office)
    asked = {"to": "back", "selected": "1", "numbers": ["1", "2", "3", "4"]}
    page = body_of(as_("operator").post(f"/rabbitmq/move/{office.at}/dead", asked))
    assert "Move the 4 selected messages?" in page and "3 messages move back to where they died last" in page
    assert "a consumer rejected it" in page and "expired" in page
    assert "1 message stays:</strong> no recorded death" in page
    assert "Move 3 messages" in page and 'value="back to where they died last"' in page
    assert counts(office) == before
    fragment = body_of(as_("operator").post(f"/rabbitmq/move/{office.at}/dead", asked, headers=FRAGMENT))
    assert 'id="ask-title"' in fragment and "<h1" not in fragment and "3 to <a" in fragment


def test_a_confirmed_move_is_executed_reported_and_audited(office, dead, as_):
    client = as_("operator")
    asked = {"to": "back", "selected": "1", "numbers": ["1", "4"], "confirmed": "back to where they died last"}
    response = client.post(f"/rabbitmq/move/{office.at}/dead", asked)
    assert response.status_code == 302 and response["Location"].endswith("/dead")
    page = body_of(client.get(response["Location"]))
    assert "Moved 1 message back to where they died last. Skipped: 1 no recorded death." in page
    record = last_act()
    assert (record.action, record.outcome, record.path) == ("move", "done", "dead")
    assert record.target == "messages 1, 4 back to where they died last" and "Moved 1 message" in record.detail
    assert counts(office)["dead"] == 3
    gone = body_of(client.get(f"/messages/{office.at}/dead/1"))
    assert "Moved to mail" in gone and "dead-lettered to mail" not in gone
    assert ">moved<" in body_of(client.get(f"/entities/{office.at}/dead?tab=history")).replace("</svg>", ">")


def test_a_target_other_than_the_confirmed_target_is_confirmed_again(office, dead, as_):
    before = counts(office)
    asked = {"to": "queue", "queue": "spare", "selected": "1", "numbers": ["1"], "confirmed": "back to where they died last"}
    page = body_of(as_("operator").post(f"/rabbitmq/move/{office.at}/dead", asked))
    assert "1 message moves to the queue spare" in page and counts(office) == before
    as_("operator").post(f"/rabbitmq/move/{office.at}/dead", {**asked, "confirmed": "to the queue spare"})
    assert counts(office) == {**before, "dead": before["dead"] - 1, "spare": 1}


def test_a_target_queue_that_would_drop_its_head_is_warned_about(office, dead, as_):
    rabbitmq.set_policy(office.vhost, Policy("small", "^spare$", {"max-length": 1}, "queues", 9))
    asked = {"to": "queue", "queue": "spare", "selected": "1", "numbers": ["1", "2"]}
    page = body_of(as_("operator").post(f"/rabbitmq/move/{office.at}/dead", asked))
    assert "spare would exceed its limit:</strong> its oldest messages are dropped." in page


def test_messages_are_moved_to_an_exchange_with_a_key(office, dead, as_):
    asked = {"to": "exchange", "exchange": "events", "routing_key": "mail.again", "selected": "1", "numbers": ["4"],
             "confirmed": "to the exchange events, key 'mail.again'"}  # fmt: skip
    assert as_("operator").post(f"/rabbitmq/move/{office.at}/dead", asked).status_code == 302
    assert last_act().target == "message 4 to the exchange events, key 'mail.again'"
    assert counts(office)["dead"] == 3


def test_all_messages_up_to_the_last_counted_message_are_moved(office, dead, as_):
    client = as_("operator")
    page = body_of(client.get(f"/rabbitmq/move/{office.at}/dead?to=back"))
    assert "Move all ready messages?" in page and 'name="up_to" value="4"' in page
    publish(office.vhost, "dead", exchange="", message_id="newer")
    confirmed = {"to": "queue", "queue": "spare", "up_to": "4", "confirmed": "to the queue spare"}
    client.post(f"/rabbitmq/move/{office.at}/dead", confirmed)
    assert (counts(office)["dead"], counts(office)["spare"]) == (1, 4)
    assert last_act().target == "all ready messages to the queue spare"


def test_all_messages_that_match_the_filter_are_moved(office, dead, as_):
    client = as_("operator")
    listed = body_of(client.get(f"/entities/{office.at}/dead?q=id:second"))
    assert "Move 1 that match…" in listed and "id%3Asecond" in listed
    page = body_of(client.get(f"/rabbitmq/move/{office.at}/dead?q=id:second&to=back"))
    assert "Move 1 message that matches the filter?" in page
    response = client.post(
        f"/rabbitmq/move/{office.at}/dead?q=id:second", {"to": "back", "confirmed": "back to where they died last"}
    )
    assert response["Location"].endswith("/dead?q=id%3Asecond") and counts(office)["dead"] == 3
    assert last_act().target == "1 message that matches the filter back to where it died last"


IN_MAIL = "those that died in mail: "


def test_a_single_group_of_the_preview_can_be_moved(office, dead, as_):
    client, before = as_("operator"), counts(office)
    page = body_of(client.get(f"/rabbitmq/move/{office.at}/dead?to=back"))
    assert re.findall(r'name="group" value="(\[.*?\])" aria-label="([^"]*)"', page) == [
        ('["mail", "rejected"]', f"This group only: {IN_MAIL}a consumer rejected it"),
        ('["mail", "expired"]', f"This group only: {IN_MAIL}expired"),
    ]
    asked = {"to": "back", "group": '["mail", "expired"]'}
    page = body_of(client.post(f"/rabbitmq/move/{office.at}/dead", asked))
    assert f"Move all ready messages, only {IN_MAIL}expired?" in page and "1 message moves back" in page
    assert "message stays" not in page and "This group only" not in page and "All groups" in page and counts(office) == before
    confirmed = {**asked, "up_to": "4", "confirmed": "back to where they died last"}
    assert client.post(f"/rabbitmq/move/{office.at}/dead", confirmed).status_code == 302
    assert counts(office) == {**before, "dead": 3, "mail": before["mail"] + 1}
    assert last_act().target == f"all ready messages, only {IN_MAIL}expired back to where they died last"
    assert "Left" not in last_act().detail


def test_only_selected_messages_of_the_group_are_moved(office, dead, as_):
    asked = {"to": "queue", "queue": "spare", "selected": "1", "numbers": ["1", "2", "4"], "group": "[null, null]",
             "confirmed": "to the queue spare"}  # fmt: skip
    as_("operator").post(f"/rabbitmq/move/{office.at}/dead", asked)
    assert (counts(office)["dead"], counts(office)["spare"]) == (3, 1)
    assert last_act().target == "messages 1, 2, 4, only without a recorded death to the queue spare"


@pytest.mark.parametrize("group", ["mail", '["mail"]', '["mail", "expired", "second"]', "[1, 2]", '{"a": 1}', "[" * 3000])
def test_an_invalid_group_is_refused(office, dead, as_, group):
    response = as_("operator").get(f"/rabbitmq/move/{office.at}/dead", {"group": group})
    assert response.status_code == 400 and "must be a queue and a reason" in body_of(response)


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        ({"to": "back", "selected": "1"}, 400, "select messages first"),
        ({"to": "nowhere", "numbers": ["1"]}, 400, "to"),
        ({"to": "queue", "queue": "none", "selected": "1", "numbers": ["1"]}, 409, "no queue 'none'"),
        ({"to": "queue", "queue": "dead", "selected": "1", "numbers": ["1"]}, 400, "is the queue that contains the messages"),
        ({"to": "exchange", "exchange": "inner", "selected": "1", "numbers": ["1"]}, 409, "internal exchange"),
        ({"to": "queue", "selected": "1", "numbers": ["1"]}, 200, "Choose a destination"),
    ],
)
def test_an_invalid_move_is_reported_and_moves_nothing(office, dead, as_, asked, status, text):
    before = counts(office)
    response = as_("operator").post(f"/rabbitmq/move/{office.at}/dead", asked)
    assert response.status_code == status and text in body_of(response)
    assert counts(office) == before


def test_a_move_from_a_list_of_unacked_messages_is_refused(office, as_):
    assert as_("operator").get(f"/rabbitmq/move/{office.at}/mail?tab=unacked&q=id:x").status_code == 400


def test_a_single_message_is_moved_back_from_its_page(office, dead, as_):
    client = as_("operator")
    page = body_of(client.get(f"/messages/{office.at}/dead/2"))
    assert "Move back to mail" in page and f"/rabbitmq/move/{quote(office.at)}/dead?to=queue&numbers=2" in page
    response = client.post(f"/messages/{office.at}/dead/2", {"action": "move-back"})
    assert response["Location"].endswith("/dead/2")
    page = body_of(client.get(response["Location"]))
    assert "Moved 1 message" in page and "Moved to mail" in page
    assert last_act().target == "message 2 back to where it died last" and counts(office)["dead"] == 3
    [back] = [row.sequence_number for row in reads.list_messages(EntityAddress(office.vhost, "mail")).rows][:1]
    page = body_of(client.get(f"/messages/{office.at}/mail/{back}"))
    assert "Deaths before the move" in page and "expired" in page


def test_a_message_that_was_never_dead_lettered_or_is_held_cannot_be_moved_back(office, dead, as_):
    page = body_of(as_("operator").get(f"/messages/{office.at}/dead/4"))
    assert 'value="move-back"' not in page
    office.channel.get("dead")
    page = body_of(as_("operator").get(f"/messages/{office.at}/dead/1"))
    assert 'value="move-back" disabled' in page and "Cannot be moved: held by a consumer." in page
    page = body_of(as_("viewer").get(f"/messages/{office.at}/dead/2"))
    assert 'value="move-back" disabled' in page and "requires the operator role" in page
