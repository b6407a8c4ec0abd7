"""RabbitMQ's pages as a person without JavaScript gets them, and as htmx asks for them: rights, refusals, acts, their audit."""

import json
import uuid
from datetime import timedelta
from urllib.parse import unquote

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from broker_core import namespaces, rabbitmq, reads
from broker_core.common.types import EntityAddress, Family
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.policies import Policy
from explorer.models import AuditRecord
from explorer.pages import navigation
from tests.html import body_of

from .conftest import FRAGMENT
from .rabbitmq_office import addresses_of, publish
from .test_actor_pages import text_of

pytest_plugins = ["tests.explorer.rabbitmq_office"]


def all_of(office):
    return [address for some in addresses_of(office.at).values() for address in some]


def queue_of(office, name):
    return EntityAddress(office.vhost, name)


def last_act():
    return AuditRecord.objects.order_by("-pk").first()


def test_a_namespace_of_another_family_is_not_a_virtual_host(office, as_):
    namespaces.ensure_namespace("plain-one", Family.SERVICE_BUS)
    response = as_("administrator").get("/rabbitmq/vhosts/plain-one/")
    assert response.status_code == 409 and "not a virtual host" in body_of(response)


# Looking


def test_browsing_renews_no_expiry_and_marks_no_message_as_redelivered(office, as_):
    """RMQ-906"""
    spare, mail = (reads.entity(queue_of(office, name)) for name in ("spare", "mail"))
    before = browsing.queue_head(spare.id).expires_at
    namespaces.step_clock(office.vhost, timedelta(seconds=40))
    client = as_("administrator")
    for address in all_of(office):
        client.get(address)
    assert browsing.queue_head(spare.id).expires_at == before
    facts = browsing.message_facts(mail.id, [2, 3, 4])
    assert not any(fact.redelivered for fact in facts.values())


def test_a_queue_shows_messages_behind_its_head(office, as_):
    page = body_of(as_("viewer").get(f"/entities/{office.at}/mail"))
    assert "1 expired message is" in page and "expired, behind the head" in page
    assert "mail.second" in page and "5 s" in page
    listed = {
        tab: body_of(as_("viewer").get(f"/entities/{office.at}/mail?tab={tab}", headers=FRAGMENT)) for tab in ("ready", "expired")
    }
    assert "alive" in listed["ready"] and "brief" not in listed["ready"]
    assert "brief" in listed["expired"] and "alive" not in listed["expired"]


def test_a_queue_with_an_expiry_shows_when_it_is_deleted_and_what_counts_as_use(office, as_):
    publish(office.vhost, "spare", exchange="")
    page = body_of(as_("viewer").get(f"/entities/{office.at}/spare"))
    assert "The queue itself expires" in page and "its 1 message is deleted with it" in page
    assert "is deleted with its 1 messages" in body_of(as_("viewer").get(f"/rabbitmq/vhosts/{office.at}/"))


def test_an_effective_setting_names_its_candidates_and_the_winner(office, as_):
    page = body_of(as_("viewer").get(f"/entities/{office.at}/mail?tab=settings", headers=FRAGMENT))
    assert "1 min (60,000 ms)" in page and "15 min (900,000 ms)" in page and "1 h (3,600,000 ms)" in page
    assert "the lowest value wins" in page and ">low<" in page and ">bound<" in page
    assert "(overrides 2)" in body_of(as_("viewer").get(f"/entities/{office.at}/mail"))


@pytest.mark.parametrize(
    ("filter", "names"),
    [
        ("A", ["dead", "mail", "scans", "spare"]),
        ("ma il", ["mail"]),
        ("type:quorum", ["scans"]),
        ("consumers:0 ready>0", ["dead", "mail"]),
        ("unacked>0 total>1", ["scans"]),
        ("policy:IG", ["scans"]),
        ("policy:bound", ["mail"]),
        ("type:stream", []),
    ],
)
def test_queues_are_found_by_name_type_policy_and_numbers(office, as_, filter, names):
    context = as_("viewer").get(f"/rabbitmq/queues/{office.at}/", {"q": filter}).context
    assert sorted(line.queue.address.path for line in context["lines"]) == names


def test_exchanges_are_found_by_name_and_type(office, as_):
    def found(filter):
        context = as_("viewer").get(f"/rabbitmq/exchanges/{office.at}/", {"q": filter}).context
        return sorted(line.slug for line in context["lines"])

    assert found("EVE") == ["events"] and found("type:topic amq.t") == ["amq.topic"] and found("policy:none") == []


def test_lists_have_one_address_for_each_filter_and_show_what_is_wrong_with_it(office, as_):
    client = as_("viewer")
    for page, table, whole in (("queues", "queues", "queue-list"), ("exchanges", "exchanges-table", "exchange-list")):
        url = f"/rabbitmq/{page}/{office.at}/"
        answer = client.get(f"{url}?q=a&q=type:direct&sort=")
        assert (answer.status_code, unquote(answer.url)) == (302, f"{url}?q=a+type:direct")
        for headers in ({}, FRAGMENT):
            refused = client.get(f"{url}?q=colour:red", headers=headers)
            assert refused.status_code == 400 and "<mark>colour:red</mark>" in body_of(refused)
        for part in (table, whole):
            text = body_of(client.get(f"{url}?q=none-such", headers={**FRAGMENT, "HX-Target": f"div#{part}"}))
            assert f'id="{part}"' in text and ('id="f-q"' in text) == (part == whole) and f"No {page} match" in text


def test_lists_explain_their_abbreviations_and_pages_have_full_names(office, as_):
    queues = body_of(as_("viewer").get(f"/rabbitmq/queues/{office.at}/"))
    assert '<span class="tag">TTL</span> message time-to-live' in queues
    assert '<span class="tag">D</span> durable' in body_of(as_("viewer").get(f"/rabbitmq/exchanges/{office.at}/"))
    page = body_of(as_("viewer").get(f"/entities/{office.at}/mail"))
    assert ">durable</span>" in page and ">TTL<" not in page
    setting = page.split('<dt title="message-ttl">')[1].split("</dd>")[0]
    assert ">Message time-to-live<" in setting and "<dd>1 min (60,000 ms)<" in setting


def test_consumers_and_connections_are_shown_with_the_messages_they_hold(office, as_):
    page = body_of(as_("viewer").get(f"/entities/{office.at}/scans?tab=consumers", headers=FRAGMENT))
    assert "scanner-1" in page and "channel 1" in page
    page = body_of(as_("viewer").get(f"/rabbitmq/connections/{office.at}/", follow=True))
    assert "scanner" in page and "not responding" not in page
    row = text_of(page.split(f'id="k-rabbitmq-{office.connection.id}"')[1].split("</tr>")[0])
    assert "receives scans manual acknowledgement · prefetch 1 · 1 unsettled · channel 1, scanner-1" in row
    assert '/scans?tab=unacked"' in page
    assert "unacked by" in body_of(as_("viewer").get(f"/entities/{office.at}/scans?tab=unacked", headers=FRAGMENT))


def test_a_connection_whose_process_stopped_renewing_its_lease_is_marked(office, as_, monkeypatch):
    monkeypatch.setattr("explorer.rabbitmq.connection_lines.LEASE_IS_LATE", timedelta(days=1))
    assert "not responding" in body_of(as_("viewer").get(f"/rabbitmq/connections/{office.at}/", follow=True))


def test_policies_show_the_objects_they_apply_to_and_those_they_are_overridden_on(office, as_):
    page = body_of(as_("viewer").get(f"/rabbitmq/policies/{office.at}/"))
    assert page.index(">high<") < page.index(">low<")
    assert "1 overridden" in page and "by high" in page and "(equal priority; the lower name wins)" in page
    assert "In RabbitMQ, the winner is undefined" in body_of(as_("viewer").get(f"/rabbitmq/vhosts/{office.at}/"))


# Declaring


def test_a_queue_is_declared_with_typed_arguments(office, as_):
    form_data = {
        "name": "new one", "type": "classic", "durable": "on", "message_ttl": "1 min 30 s", "max_length": "10",
        "expires": "3600000",
        "dead_letter_exchange": '""', "dead_letter_routing_key": "dead", "single_active_consumer": "true",
        "argument_name": ["x-note"], "argument_type": ["string"], "argument_value": ["mine"],
    }  # fmt: skip
    response = as_("administrator").post(f"/rabbitmq/new/queue/{office.at}/", form_data)
    assert response.status_code == 302 and response["Location"].endswith("/new%20one")
    made = rabbitmq.get_queue(queue_of(office, "new one"))
    assert dict(made.arguments) == {
        "x-message-ttl": 90_000, "x-max-length": 10, "x-expires": 3_600_000, "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead", "x-single-active-consumer": True, "x-note": "mine",
    }  # fmt: skip
    assert last_act().action == "declare queue" and last_act().outcome == "done"


@pytest.mark.parametrize(
    ("given", "text", "what_to_do"),
    [
        ({"name": "q", "expires": "0"}, "invalid arg 'x-expires' for queue 'q' in vhost '{vhost}': {{value_zero,0}}",
         "at least 1"),
        ({"name": "q", "message_ttl": "soon"}, "'{vhost}': \"expected integer, got longstr\"", "such as 30 s"),
        ({"name": "amq.mine"}, "queue name 'amq.mine' contains reserved prefix 'amq.*'", "Choose another"),
        ({"name": "q", "dead_letter_routing_key": "k"}, "routing_key_but_no_dlx_defined", "Set a dead-letter exchange as well"),
        ({"name": "mail", "message_ttl": "5000", "dead_letter_exchange": "graves"},
         "inequivalent arg 'x-message-ttl' for queue 'mail' in vhost '{vhost}': received '5000' but current is '60000'",
         "Change the value with a policy"),
        ({"name": "q", "type": "quorum", "max_priority": "5"}, "of queue type rabbit_quorum_queue", "choose the other type"),
    ],
)  # fmt: skip
def test_a_refused_declaration_shows_rabbitmqs_text_and_the_remedy(office, as_, given, text, what_to_do):
    response = as_("administrator").post(f"/rabbitmq/new/queue/{office.at}/", {"type": "classic", "durable": "on"} | given)
    page = body_of(response)
    assert response.status_code == 409
    assert text.format(vhost=office.vhost) in page and what_to_do in page
    assert f'value="{given["name"]}"' in page, "what was typed is kept"
    assert last_act().outcome == "refused"
    assert "q" not in {queue.name for queue in rabbitmq.list_queues(office.vhost)}


def test_an_invalid_argument_is_a_400_and_no_queue_is_declared(office, as_):
    form_data = {"name": "q", "type": "classic", "argument_name": ["a", "b"], "argument_type": ["number", "list"],
             "argument_value": ["ten", "{"]}  # fmt: skip
    response = as_("administrator").post(f"/rabbitmq/new/queue/{office.at}/", form_data)
    assert response.status_code == 400
    assert "'ten' is not a valid number" in body_of(response) and "'{' is not a valid list" in body_of(response)
    assert "q" not in {queue.name for queue in rabbitmq.list_queues(office.vhost)}


def test_an_exchange_is_declared_and_deleted(office, as_):
    client = as_("administrator")
    form_data = {"name": "fresh", "type": "fanout", "durable": "on", "alternate_exchange": "graves"}
    assert client.post(f"/rabbitmq/new/exchange/{office.at}/", form_data).status_code == 302
    made = rabbitmq.get_exchange(office.vhost, "fresh")
    assert made.type == "fanout" and made.arguments == {"alternate-exchange": "graves"}
    refused = client.post(f"/rabbitmq/new/exchange/{office.at}/", form_data | {"type": "direct"})
    assert refused.status_code == 409 and "inequivalent arg 'type' for exchange 'fresh'" in body_of(refused)
    assert client.post(f"/rabbitmq/delete/exchange/{office.at}/fresh", {"name": "wrong"}).status_code == 400
    assert client.post(f"/rabbitmq/delete/exchange/{office.at}/fresh", {"name": "fresh"}).status_code == 302
    assert "fresh" not in {exchange.name for exchange in rabbitmq.list_exchanges(office.vhost)}
    in_use = client.post(f"/rabbitmq/delete/exchange/{office.at}/events", {"name": "events", "if_unused": "on"})
    assert in_use.status_code == 409 and "in use" in body_of(in_use)


def test_bindings_are_added_and_removed_on_either_page(office, as_):
    client = as_("administrator")
    exchange, queue = f"/rabbitmq/exchanges/{office.at}/sorted", f"/entities/{office.at}/scans"
    headers = {"argument_name": ["x-match", "weight", "fragile"], "argument_type": ["string", "number", "void"],
               "argument_value": ["any", "7", ""]}  # fmt: skip
    form_data = {"action": "bind", "to": "queue", "other": "scans", "routing_key": ""}
    assert client.post(exchange, form_data | headers).status_code == 302
    [made] = [binding for binding in rabbitmq.list_bindings(office.vhost, source="sorted") if binding.destination == "scans"]
    assert made.arguments == {"x-match": "any", "weight": 7, "fragile": None}
    bad = client.post(exchange, form_data | headers | {"argument_value": ["some", "7", ""]})
    assert bad.status_code == 409 and "Invalid x-match field value" in body_of(bad)
    assert client.post(exchange, {"action": "bind", "to": "exchange", "other": "inner", "routing_key": "k"}).status_code == 302
    assert client.post(f"{queue}?tab=bindings", {"action": "bind", "other": "events", "routing_key": "x.#"}).status_code == 302
    missing = client.post(f"{queue}?tab=bindings", {"action": "bind", "other": "nowhere", "routing_key": ""})
    assert missing.status_code == 409 and "no exchange 'nowhere'" in body_of(missing)
    lines = client.get(exchange).context["outgoing"]
    for line in lines:
        assert client.post(exchange, {"action": "unbind", "binding": line.key}).status_code == 302
    assert rabbitmq.list_bindings(office.vhost, source="sorted") == []
    assert "no longer exists; reload the page" in body_of(
        client.post(exchange, {"action": "unbind", "binding": lines[0].key}, follow=True)
    )
    assert last_act().outcome == "done" and "unbind" in set(AuditRecord.objects.values_list("action", flat=True))


def test_an_operator_changes_no_binding(office, as_):
    response = as_("operator").post(f"/rabbitmq/exchanges/{office.at}/events", {"action": "bind", "to": "queue", "other": "dead"})
    assert response.status_code == 403
    assert [binding for binding in rabbitmq.list_bindings(office.vhost, source="events") if binding.destination == "dead"] == []


# Messages

MESSAGE = {"routing_key": "mail.x", "body": "hello", "encoding": "text", "copies": "1", "delivery_mode": "2"}


def test_publishing_reports_the_queues_of_the_message(office, as_):
    client = as_("operator")
    headers = {"header_name": ["n", "tags"], "header_type": ["number", "list"], "header_value": ["5", '["a"]']}
    page = body_of(client.post(f"/rabbitmq/publish/{office.at}/events", MESSAGE | headers | {"expiration": "9000"}))
    assert "routed" in page and "mail, message 5" in page
    detail = reads.message(queue_of(office, "mail"), 5)
    assert detail.broker_properties["expiration"] == "9000" and detail.application_properties["n"] == ("signedint", "5")
    assert last_act().action == "publish" and "mail" in last_act().detail
    page = body_of(client.post(f"/rabbitmq/publish/{office.at}/events", MESSAGE | {"routing_key": "nowhere"}))
    assert "not routed" in page and "no queue matched" in page


def test_showing_the_route_publishes_nothing(office, as_):
    before = reads.counts(queue_of(office, "mail")).active, AuditRecord.objects.count()
    page = body_of(as_("viewer").post(f"/rabbitmq/publish/{office.at}/events", MESSAGE | {"dry": "1"}))
    assert "Route" in page and "To 1 queue: mail" in page and "matches" in page and "does not match" in page
    assert (reads.counts(queue_of(office, "mail")).active, AuditRecord.objects.count()) == before
    page = body_of(as_("viewer").post(f"/rabbitmq/publish/{office.at}/events", MESSAGE | {"dry": "1", "routing_key": "none"}))
    assert "No queue would get it" in page and "lost" in page and "It does not exist." in page
    refused = as_("viewer").post(f"/rabbitmq/publish/{office.at}/inner", MESSAGE | {"dry": "1"})
    assert refused.status_code == 409 and "cannot publish to internal exchange 'inner'" in body_of(refused)


def test_a_recent_publication_can_be_chosen(office, as_):
    rabbitmq.publish(office.vhost, [Publication(b"x", "events", "mail.late", Properties(headers={"tenant": "acme"}))])
    page = as_("operator").get(f"/rabbitmq/publish/{office.at}/events")
    (found,) = [publication for publication in page.context["published"] if publication.keys == ("mail.late",)]
    assert "tenant=acme" in body_of(page) and found.example[0].path == "mail"
    chosen = as_("viewer").get(f"/rabbitmq/publish/{office.at}/events?like={found.example[1]}&of=mail&dry=1")
    assert chosen.context["queues"] == ["mail"] and "mail.late" in body_of(chosen)


def test_a_replay_of_bindings_changes_nothing(office, as_):
    rabbitmq.publish(office.vhost, [Publication(b"x", "events", "mail.late")] * 3)
    before = rabbitmq.list_bindings(office.vhost)
    address, client = f"/rabbitmq/exchanges/{office.at}/events", as_("administrator")
    (line,) = [binding for binding in client.get(address).context["outgoing"] if binding.binding.destination == "mail"]
    page = body_of(client.post(address, {"action": "replay", "binding": line.key}))
    assert "would be dropped" in page and "Replay of the last hour" in page
    page = body_of(
        client.post(address, {"action": "bind", "to": "queue", "other": "dead", "routing_key": "mail.*", "replay": "1"})
    )
    assert "would get more copies" in page
    assert rabbitmq.list_bindings(office.vhost) == before
    assert client.post(address, {"action": "replay", "binding": "none"}).status_code == 302


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [({"expiration": "1.5"}, 409, "invalid expiration '1.5'"), ({"encoding": "base64", "body": "%"}, 400, "Not valid base64"),
     ({"header_name": ["a"], "header_type": ["number"], "header_value": ["x"]}, 400, "'x' is not a valid number"),
     ({"priority": "300"}, 400, "255")],
)  # fmt: skip
def test_invalid_publications_are_refused(office, as_, given, status, text):
    response = as_("operator").post(f"/rabbitmq/publish/{office.at}/events", MESSAGE | given)
    assert response.status_code == status and text in body_of(response)
    assert reads.counts(queue_of(office, "mail")).active == 3


@pytest.mark.parametrize(("written", "sent"), [("10 s", "10000"), ("1 min 30 s", "90000"), ("60000", "60000")])
def test_an_expiration_may_have_a_unit(office, as_, written, sent):
    as_("operator").post(f"/rabbitmq/publish/{office.at}/amq.default", MESSAGE | {"routing_key": "dead", "expiration": written})
    [(_, facts)] = browsing.message_facts(reads.entity(queue_of(office, "dead")).id, [2]).items()
    assert facts.expiration == sent


def test_the_form_for_a_new_rabbitmq_queue_asks_for_the_virtual_host(office, as_):
    client = as_("administrator")
    assert "/rabbitmq/new/queue/" in body_of(client.get("/new/queue/"))
    page = body_of(client.get("/rabbitmq/new/queue/"))
    assert f'<option value="{office.vhost}">' in page
    response = client.get("/rabbitmq/new/queue/", {"namespace": office.vhost})
    assert "Declare a queue" in body_of(client.get(response["Location"]))
    assert client.get("/rabbitmq/new/queue/", {"namespace": "none"}).status_code == 400
    assert as_("operator").get("/rabbitmq/new/queue/").status_code == 403


def test_a_viewer_can_neither_publish_nor_get(office, as_):
    client = as_("viewer")
    assert client.post(f"/rabbitmq/publish/{office.at}/events", MESSAGE).status_code == 403
    assert client.post(f"/rabbitmq/get/{office.at}/mail", {"count": "1", "mode": "ack"}).status_code == 403
    assert reads.counts(queue_of(office, "mail")).active == 3


@pytest.mark.parametrize(
    ("mode", "left", "dead", "redelivered"),
    [("requeue", 3, 1, True), ("ack", 2, 1, False), ("reject-requeue", 3, 1, True), ("reject", 2, 2, False)],
)  # fmt: skip
def test_a_manual_get_settles_by_the_chosen_mode(office, as_, mode, left, dead, redelivered):
    page = body_of(as_("operator").post(f"/rabbitmq/get/{office.at}/mail", {"count": "1", "mode": mode}))
    assert "Message 2" in page and '"n": 1' in page and "town" in page
    assert last_act().action == f"get ({mode})" and last_act().path == "mail"
    # The expired one behind the head goes with it, where it becomes the head.
    there = reads.counts(queue_of(office, "mail")).active
    assert there in (left, left - 1)
    facts = browsing.message_facts(reads.entity(queue_of(office, "mail")).id, [2])
    assert (2 in facts and facts[2].redelivered) is redelivered
    assert reads.counts(queue_of(office, "dead")).active in (dead, dead + 1)


def test_a_get_with_requeue_from_a_quorum_queue_counts_and_the_form_says_so(office, as_):
    client, vhost = as_("operator"), office.vhost
    address = EntityAddress(vhost, "voted")
    rabbitmq.declare_queue(address, type="quorum", arguments={"x-delivery-limit": 1})
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"once", routing_key="voted")])
    assert "on a quorum queue counted as a failed delivery" in body_of(client.get(f"/rabbitmq/get/{office.at}/voted"))
    for left in (1, 0):
        client.post(f"/rabbitmq/get/{office.at}/voted", {"count": "1", "mode": "requeue"})
        assert reads.counts(address).active == left
    assert "1 arrived and 0 acknowledged in the last" in body_of(client.get(f"/entities/{office.at}/voted"))


def test_purging_requires_a_confirmation_and_deleting_the_name(office, as_):
    client = as_("administrator")
    assert "Purge 3 messages" in body_of(client.get(f"/operate/{office.at}/mail?kind=purge&tab=messages"))
    assert reads.counts(queue_of(office, "mail")).active == 3
    purge = {"kind": "purge", "tab": "messages", "all": "1", "confirmed": "1"}
    assert client.post(f"/operate/{office.at}/mail", purge).status_code == 302
    assert reads.counts(queue_of(office, "mail")).active == 0 and reads.counts(queue_of(office, "dead")).active == 1
    used = client.post(f"/delete/{office.at}/scans", {"name": "scans", "if_unused": "on"})
    assert used.status_code == 409 and "in use" in body_of(used)
    assert client.post(f"/delete/{office.at}/mail", {"name": "mail"}).status_code == 302
    assert "mail" not in {queue.name for queue in rabbitmq.list_queues(office.vhost)}
    assert {"purge", "delete queue"} <= set(AuditRecord.objects.values_list("action", flat=True))


def test_expiry_options_are_set_on_the_queues_page(office, as_):
    address = f"/entities/{office.at}/mail?tab=settings"
    assert as_("operator").post(address, {"action": "options", "exact_expiry": "on"}).status_code == 403
    assert as_("administrator").post(address, {"action": "options", "exact_expiry": "on"}).status_code == 302
    options = rabbitmq.get_queue(queue_of(office, "mail")).options
    assert options["exact_expiry"] is True and options["retroactive_ttl"] is False


# Policies


def test_a_policy_is_previewed_and_then_saved(office, as_):
    client, page_of_new = as_("administrator"), f"/rabbitmq/new/policy/user/{office.at}/"
    form_data = {"name": "short", "pattern": "^dead$", "apply_to": "queues", "priority": "9", "max_length": "0"}
    response = client.post(page_of_new, form_data | {"preview": "1"})
    previewed = response.context["previewed"]
    assert response.status_code == 200 and "Effective settings would change for 1 queue" in body_of(response)
    assert [effect.count for effect in previewed.effects if effect.what == "too many"] == [1]
    assert "short" not in {policy.name for policy in rabbitmq.list_policies(office.vhost)}, "nothing was stored"
    assert AuditRecord.objects.filter(action="set policy").count() == 0
    publish(office.vhost, "dead", exchange="")
    moved = client.post(page_of_new, form_data | {"token": previewed.token})
    assert moved.status_code == 409 and "has changed since the preview" in body_of(moved)
    assert "short" not in {policy.name for policy in rabbitmq.list_policies(office.vhost)}
    assert client.post(page_of_new, form_data | {"token": moved.context["previewed"].token}).status_code == 302
    [made] = [policy for policy in rabbitmq.list_policies(office.vhost) if policy.name == "short"]
    assert made.definition == {"max-length": 0} and made.priority == 9
    assert last_act().action == "set policy" and last_act().outcome == "done"


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        ("user", {"message_ttl": "-1"}, "-1 is not a valid message TTL"),
        ("user", {"pattern": "(", "message_ttl": "1"}, "pattern should be regular expression but is invalid"),
        ("user", {}, "no policy provided"),
        ("user", {"priority": "high", "message_ttl": "1"}, 'priority should be a number, actually was <<"high">>'),
        ("operator", {"argument_name": ["dead-letter-exchange"], "argument_type": ["string"], "argument_value": ["x"]},
         "are not recognised policy settings"),
    ],
)  # fmt: skip
def test_a_refused_policy_shows_rabbitmqs_text_and_stores_nothing(office, as_, kind, given, text):
    base = {"name": "bad", "pattern": "", "apply_to": "queues", "priority": "0"}
    for extra in ({}, {"preview": "1"}):
        response = as_("administrator").post(f"/rabbitmq/new/policy/{kind}/{office.at}/", base | given | extra)
        assert response.status_code in (400, 409) and text in body_of(response), extra
    assert "bad" not in {policy.name for policy in rabbitmq.list_policies(office.vhost)}


def test_a_policy_is_changed_and_deleted(office, as_):
    client = as_("administrator")
    page = body_of(client.get(f"/rabbitmq/policies/user/{office.at}/low"))
    assert 'value="900000"' in page
    form_data = {"name": "other", "pattern": "", "apply_to": "all", "priority": "1.5", "message_ttl": "20 min"}
    assert client.post(f"/rabbitmq/policies/user/{office.at}/low", form_data).status_code == 302
    [low] = [policy for policy in rabbitmq.list_policies(office.vhost) if policy.name == "low"]
    assert low == Policy("low", "", {"message-ttl": 1_200_000}, "all", 1.5), "its name stays"
    asked = client.get(f"/rabbitmq/delete/policy/user/{office.at}/low")
    token = asked.context["previewed"].token
    assert client.post(f"/rabbitmq/delete/policy/user/{office.at}/low", {"token": "stale"}).status_code == 409
    assert client.post(f"/rabbitmq/delete/policy/user/{office.at}/low", {"token": token}).status_code == 302
    assert "low" not in {policy.name for policy in rabbitmq.list_policies(office.vhost)}
    assert client.post(f"/rabbitmq/delete/policy/operator/{office.at}/bound", {"anyway": "1"}).status_code == 302
    assert last_act().action == "delete operator policy"


# Connections and definitions


def test_closing_a_connection_requeues_its_messages(office, as_):
    scans = queue_of(office, "scans")
    assert reads.counts(scans).locked == 1
    form = {"action": f"close rabbitmq-{office.connection.id}", "reason": "a new version"}
    assert as_("viewer").post("/connections/", form).status_code == 302
    assert reads.counts(scans).locked == 1, "a viewer may not"
    assert as_("operator").post("/connections/", form | {"reason": " "}).status_code == 302
    assert reads.counts(scans).locked == 1 and last_act().outcome == "refused", "without a reason"
    assert as_("operator").post("/connections/", form).status_code == 302
    assert reads.counts(scans).locked == 0
    assert last_act().action == "close connection" and "scanner" in last_act().target and "a new version" in last_act().detail
    with pytest.raises(AmqpError, match="Closed by .*: a new version"):
        office.connection.channel()
    assert "No connections" in body_of(as_("viewer").get(f"/rabbitmq/connections/{office.at}/", follow=True))


def test_definitions_are_exported_and_imported_with_an_outcome_for_each_object(office, as_):
    client = as_("administrator")
    response = client.get(f"/rabbitmq/definitions.json/{office.at}/")
    document = json.loads(response.content)
    assert response["Content-Disposition"].startswith("attachment") and {q["name"] for q in document["queues"]} >= {
        "mail",
        "scans",
    }
    document["queues"] = [
        *document["queues"],
        {"name": "imported", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}},
        {"name": "broken", "durable": True, "auto_delete": False, "arguments": {"x-max-length": -5}},
    ]
    upload = SimpleUploadedFile("definitions.json", json.dumps(document).encode(), content_type="application/json")
    page = body_of(client.post(f"/rabbitmq/definitions/{office.at}/", {"file": upload}))
    assert "1 failed" in page and "value_negative" in page and "imported" in page
    names = {queue.name for queue in rabbitmq.list_queues(office.vhost)}
    assert "imported" in names and "broken" not in names
    assert last_act().action == "import definitions" and "failed" in last_act().detail


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        ({"text": "{"}, 400, "are not valid JSON"),
        ({"text": '{"queues": [{"arguments": {"x": %s}}]}' % ("9" * 5_000)}, 400, "a number with too many digits"),
        ({}, 400, "not both"),
        ({"text": "[1]"}, 200, "1 failed"),
    ],
)
def test_an_invalid_document_is_refused_with_the_position(office, as_, given, status, text):
    response = as_("administrator").post(f"/rabbitmq/definitions/{office.at}/", given)
    assert response.status_code == status and text in body_of(response)
    assert as_("operator").post(f"/rabbitmq/definitions/{office.at}/", {"text": "{}"}).status_code == 403


def test_a_virtual_host_is_created_and_deleted(office, as_):
    client = as_("administrator")
    assert client.post("/rabbitmq/new/vhost/", {"name": "a/new one", "description": "tried"}).status_code == 302
    assert len(rabbitmq.list_exchanges("a/new one")) == 7
    again = client.post("/rabbitmq/new/vhost/", {"name": "a/new one"})
    assert again.status_code == 409 and "already exists" in body_of(again)
    assert client.post("/rabbitmq/delete/vhost/a~2Fnew one/", {"name": "a/new one"}).status_code == 302
    contents = rabbitmq.preview_delete_vhost(office.vhost)
    page = body_of(client.get(f"/rabbitmq/delete/vhost/{office.at}/"))
    assert f"{contents.queues} queues" in page and f"{contents.messages} messages" in page and "is kept until" in page
    assert client.post(f"/rabbitmq/delete/vhost/{office.at}/", {"name": office.vhost}).status_code == 302
    assert office.vhost not in [host.name for host in rabbitmq.list_vhosts()]


# Why a message is still here


def test_a_message_shows_every_reason_why_it_waits(office, as_):
    page = body_of(as_("viewer").get(f"/messages/{office.at}/mail/3"))
    assert "message 2 is ahead and not expired" in page and "it goes to the dead-letter exchange 'graves'" in page
    page = body_of(as_("viewer").get(f"/messages/{office.at}/mail/4"))
    assert "The queue has no consumer" in page and "Ready: 1 message ahead" in page and "It expires in <time" in page
    page = body_of(as_("viewer").get(f"/messages/{office.at}/scans/2"))
    assert (
        "The only consumer holds as many unacknowledged messages as the prefetch allows" in page and "Ready: next in line" in page
    )
    page = body_of(as_("viewer").get(f"/messages/{office.at}/scans/1"))
    assert "Unacknowledged, held by worker" in page and "No other consumer gets it until it is requeued" in page


def test_a_message_shows_its_deaths(office, as_):
    page = body_of(as_("viewer").get(f"/messages/{office.at}/dead/1"))
    assert "a consumer rejected it" in page and "arrived through events, key mail.first" in page
    assert f'href="/entities/{office.at.replace(" ", "%20")}/mail"' in page
    assert 'id="deaths"' not in body_of(as_("viewer").get(f"/messages/{office.at}/mail/2"))


def test_a_duplicate_is_published_without_headers_added_by_the_broker(office, as_):
    page = as_("operator").get(f"/rabbitmq/publish/{office.at}/graves?like=1&of=dead")
    form = page.context["form"]
    assert form["body"].value() == '{"n": 1}' and form["message_id"].value() == "rejected"
    assert [row for row in form.headers.rows if row[0]] == [], "x-death stays behind"


def test_a_long_virtual_host_name_is_truncated_in_the_navigation(office, as_):
    name = f"!{uuid.uuid4().hex}{'a' * 200}"  # the first of all, of which the switch lists 30
    rabbitmq.create_vhost(name)
    navigation._namespaces.clear()
    page = body_of(as_("viewer").get("/entities/"))
    assert f">{name[:39]}…" in page and f">{name}<" not in page
