"""Every page as a person without JavaScript gets it, and as htmx asks for it: rights, bad input, acts and their audit."""

import html
import json
import re
import warnings
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient, Client
from django.urls import reverse

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.errors import NotAuthorized
from broker_core.common.typed import Typed
from broker_core.common.types import Actor, EntityAddress, Family, MessageState, Right
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.models import AuditRecord
from explorer.service_bus import presenters
from tests.html import body_of

from .conftest import FRAGMENT, WORKER


def test_lists_show_their_messages(pages, as_):
    client = as_("operator")
    for tab, shown in {
        "all": (3, 4, 5, 6, 7),
        "active": (5, 7),
        "locked": (4,),
        "scheduled": (6,),
        "deferred": (3,),
        "dead-letter": (2,),
        "history": (1,),
    }.items():
        page = body_of(client.get(f"/entities/{pages.at}?tab={tab}")).partition('id="time-bar"')[0]
        for number in range(1, 8):
            assert (f'href="/messages/{pages.at}/{number}"' in page) is (number in shown), (tab, number)


def test_a_filter_shows_how_far_it_searched_and_can_be_cleared(pages, as_):
    page = body_of(as_("operator").get(f"/entities/{pages.at}?q=id:none-such"))
    assert "<b>0</b> of 5<" in page and "No messages match this filter" in page and "Clear" in page


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("tab=all&q=number>=5", "<b>3</b> of 5<"),
        ("tab=active&q=number>=6", "<b>1</b> of 2<"),
        ("tab=all&q=size>0", "<b>5</b> of 5<"),
    ],
)
def test_a_filter_by_number_counts_matches_in_the_whole_list(pages, as_, query, count):
    assert count in body_of(as_("operator").get(f"/entities/{pages.at}?{query}"))


def test_a_filter_in_a_list_of_leased_messages_counts_only_leased_messages(jobs, as_):
    assert "<b>1</b> of 2<" in body_of(as_("operator").get(f"/entities/{jobs}?tab=leased&q=number=2"))


def test_text_of_a_sender_is_never_markup(pages, as_):
    evil = "<script>alert(1)</script>"
    from broker_core.service_bus.rules.values import Message

    [number] = service_bus.send(pages.shop, [Message(body=evil.encode(), message_id=evil, subject=evil, properties={evil: evil})])
    client = as_("operator")
    for address in (f"/messages/{pages.at}/{number}", f"/entities/{pages.at}", f"/send/{pages.at}?like={number}"):
        assert evil not in client.get(address).content.decode(), address


def test_a_removed_message_is_shown_from_its_events(pages, as_):
    page = body_of(as_("operator").get(f"/messages/{pages.at}/1"))
    assert (
        "Completed by worker" in page
        and "No longer in the queue." in page
        and "order-1" in page
        and "Received with peek-lock" in page
        and "region" in page
    )


@pytest.mark.parametrize(
    ("page", "field"),
    [
        ("/send/{at}", "body"),
        ("/send/{stored}", "text"),
        ("/delete/{at}", "name"),
        ("/new/queue/", "path"),
        ("/new-namespace/", "name"),
    ],
)
def test_a_form_that_opens_has_the_focus_in_its_first_field(pages, as_, page, field):
    """So that nobody types into the page, where each letter is a shortcut. A form that comes back announces its problem."""
    client, address = as_("administrator"), page.format(at=pages.at, stored=pages.stored)
    [focused] = re.findall(r"<(?:input|textarea)[^>]* autofocus[^>]*>", body_of(client.get(address)))
    assert f'name="{field}"' in focused
    assert " autofocus" not in body_of(client.post(address, {"copies": "x"}))


def test_a_list_of_dead_letters_shows_the_failed_deliveries_of_before(db, namespace, as_):
    """Regression: it showed those in the dead-letter queue, which are 0 for a message that failed three times."""
    queue = EntityAddress(namespace, "failing")
    entities.create_queue(queue, max_delivery_count=3)
    service_bus.send(queue, [Message(b"x")])
    for _ in range(3):
        [message] = service_bus.receive(queue)
        service_bus.abandon(queue, [message.lock_token])
    [row] = reads.list_messages(queue, reads.Tab.DEAD_LETTER).rows
    assert (row.delivery_count, row.deliveries_before, presenters.deliveries(row)) == (0, 3, "3")
    assert '<td class="num narrow-hide line-hide">3</td>' in body_of(as_("viewer").get(f"/entities/{queue}?tab=dead-letter"))


def test_a_dead_letter_has_its_reason_at_the_top(pages, as_):
    response = as_("operator").get(f"/messages/{pages.at}/2")
    page = body_of(response)
    assert page.index("PaymentRefused") < page.index("Properties") and "no &lt;money&gt;" in response.content.decode()


def test_viewing_bodies_requires_its_own_right(pages, as_):
    assert as_("viewer").get(f"/bodies/{pages.at}/5").status_code == 403
    page = body_of(as_("viewer").get(f"/messages/{pages.at}/5"))
    assert "have permission to view message bodies" in page and "&quot;n&quot;" not in page
    response = as_("operator").get(f"/bodies/{pages.at}/5")
    assert b"".join(response.streaming_content) == b'{"n": 1}'
    assert response["Content-Disposition"].startswith("attachment") and response["Content-Type"] == "application/octet-stream"


def test_a_large_body_is_shown_on_demand(pages, as_):
    from broker_core.service_bus.rules.values import Message

    [number] = service_bus.send(pages.shop, [Message(body=b"x" * 100_000)])
    client = as_("operator")
    assert "xxxx" not in body_of(client.get(f"/messages/{pages.at}/{number}"))
    assert "xxxx" in body_of(client.get(f"/messages/{pages.at}/{number}?body=show"))
    assert len(b"".join(client.get(f"/bodies/{pages.at}/{number}").streaming_content)) == 100_000


def test_a_body_is_streamed_in_chunks(pages, as_, monkeypatch):
    monkeypatch.setattr("explorer.pages.message.DOWNLOAD_CHUNK", 30_000)
    [number] = service_bus.send(pages.shop, [Message(body=b"x" * 100_000)])
    client = as_("operator", client=AsyncClient())

    async def chunks() -> list[int]:
        response = await client.get(f"/bodies/{pages.at}/{number}")
        return [len(chunk) async for chunk in response.streaming_content]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Django warns where it gathers the whole first
        assert async_to_sync(chunks)() == [30_000, 30_000, 30_000, 10_000]


# Acts


def the_last_act():
    return AuditRecord.objects.latest("id")


def test_actions_of_a_viewer_are_refused_and_audited(pages, as_):
    client = as_("viewer")
    acts = [
        (f"/operate/{pages.at}", {"kind": "resubmit", "tab": "dead-letter", "numbers": ["2"]}),
        (f"/messages/{pages.at}/2", {"action": "resubmit"}), (f"/receive/main/{pages.at}", {"action": "receive", "count": 1,
        "mode": "peek-lock"}), (f"/send/{pages.at}", {"body": "x", "copies": 1}),
    ]  # fmt: skip
    before = reads.counts(pages.shop)
    for address, data in acts:
        response = client.post(address, data, headers=FRAGMENT)
        assert response.status_code == 403 and "You need the role operator to " in body_of(response), address
    assert AuditRecord.objects.filter(actor=f"user:{client.user.username}", outcome="refused").count() == len(acts)
    after = reads.counts(pages.shop)
    assert (after.active, after.locked, after.dead_letter) == (before.active, before.locked, before.dead_letter)


@pytest.mark.parametrize(
    ("kind", "right", "refusal"),
    [
        ("user", Right.BROWSE, "You need the role viewer to view space/orders."),
        ("user", Right.BROWSE | Right.SEE_BODIES, "You need the role operator to view and view message bodies of space/orders."),
        ("user", Right.SEND, "You need the role operator to send messages to space/orders."),
        ("user", Right.LISTEN, "You need the role operator to receive messages from space/orders."),
        ("user", Right.OPERATE, "You need the role operator to act on space/orders."),
        ("user", Right.MANAGE, "You need the role administrator to change space/orders."),
        ("key", Right.MANAGE, "key:vera does not have the right MANAGE on space/orders."),
    ],
)
def test_a_refusal_names_the_right_and_for_a_user_the_required_role(kind, right, refusal):
    with pytest.raises(NotAuthorized) as refused:
        Actor(kind, "vera").require(right, "space/orders")
    assert str(refused.value) == f"{refusal} Ask an administrator for access."


def test_an_empty_queue_says_so(as_, db):
    namespaces.ensure_namespace("empty", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("empty", "q"))
    rabbitmq.ensure_vhost("empty-host")
    rabbitmq.declare_queue(EntityAddress("empty-host", "q"))
    queue_storage.ensure_account("emptyaccount")
    queue_storage.create_queue(EntityAddress("emptyaccount", "queue"))
    for at in ("empty/q", "empty-host/q", "emptyaccount/queue"):
        page = " ".join(body_of(as_("viewer").get(f"/entities/{at}")).split())
        assert "<li> no messages </li>" in page.replace("<li>no messages</li>", "<li> no messages </li>"), at


def test_posts_need_the_csrf_token(pages, as_):
    client = as_("administrator", Client(enforce_csrf_checks=True))
    assert client.post(f"/operate/{pages.at}", {"kind": "purge", "numbers": ["2"]}).status_code == 403


# Sending


def test_messages_are_sent_with_properties_of_each_type(pages, as_):
    data = {
        "body": "a\r\nb",
        "copies": "2",
        "message_id": "mine",
        "subject": "s",
        "content_type": "text/plain",
        "time_to_live": "5 min",
        "property_name": ["n", "flag", "", "when"],
        "property_type": ["int", "boolean", "string", "timestamp"],
        "property_value": ["7", "true", "", "2030-01-01 00:00"],
    }
    response = as_("operator").post(f"/send/{pages.at}", data)
    assert response.status_code == 302, body_of(response)
    first, second = reads.message(pages.shop, 8), reads.message(pages.shop, 9)
    assert (first.row.message_id, second.row.message_id) == ("mine", "mine-2")
    assert first.time_to_live == timedelta(minutes=5)
    assert {n: tuple(v) for n, v in first.application_properties.items()} == {
        "n": ("int", "7"), "flag": ("boolean", "true"), "when": ("timestamp", "2030-01-01T00:00:00+00:00"),
    }  # fmt: skip
    assert reads.body(pages.shop, 8).content == b"a\nb"


def test_copies_without_an_id_get_unique_ids_from_the_broker(pages, as_):
    as_("operator").post(f"/send/{pages.at}", {"body": "x", "copies": 3})
    ids = {reads.message(pages.shop, number).row.message_id for number in (8, 9, 10)}
    assert len(ids) == 3 and all(re.fullmatch("[0-9a-f]{32}", message_id) for message_id in ids)


def test_a_file_is_sent_byte_for_byte(pages, as_):
    content = bytes(range(256)) * 10
    as_("operator").post(f"/send/{pages.at}", {"body_file": SimpleUploadedFile("x.bin", content), "copies": 1})
    assert reads.body(pages.shop, 8).content == content


def test_a_message_can_be_scheduled(pages, as_):
    as_("operator").post(f"/send/{pages.at}", {"body": "x", "copies": 1, "scheduled": "in 5 min"})
    assert reads.message(pages.shop, 8).row.state == MessageState.SCHEDULED


@pytest.mark.parametrize(
    ("bad", "named"),
    [({"time_to_live": "soon"}, "soon"), ({"copies": "0"}, "copies"), ({"scheduled": "tomorrow-ish"}, "in 5 min"),
     ({"property_name": "n", "property_type": "int", "property_value": "seven"}, "seven"),
     ({"property_name": "", "property_type": "int", "property_value": "7"}, "name"),
     ({"property_name": "n", "property_type": "colour", "property_value": "red"}, "colour")],
)  # fmt: skip
def test_bad_input_keeps_what_was_typed_and_sends_nothing(pages, as_, bad, named):
    response = as_("operator").post(f"/send/{pages.at}", {"body": "keep me", "copies": 1, **bad})
    assert response.status_code == 400 and named in body_of(response) and "keep me" in body_of(response)
    assert reads.message(pages.shop, 8) is None


def test_a_short_time_to_live_is_warned_about_before_sending(pages, as_):
    client, data = as_("operator"), {"body": "x", "copies": 1, "time_to_live": "1 s"}
    warned = client.post(f"/send/{pages.at}", data)
    assert warned.status_code == 422 and "Not sent yet" in body_of(warned) and reads.message(pages.shop, 8) is None
    assert client.post(f"/send/{pages.at}", {**data, "anyway": "1"}).status_code == 302


def test_too_large_a_message_is_refused_in_the_form(pages, as_):
    response = as_("operator").post(f"/send/{pages.at}", {"body": "x" * 300_000, "copies": 1})
    assert response.status_code == 409 and "at most" in body_of(response) and the_last_act().outcome == "refused"


# Receiving by hand


@pytest.fixture
def manual_receiver(pages, as_):
    """An operator who holds message 5."""
    client = as_("operator")
    client.post(f"/receive/main/{pages.at}", {"action": "receive", "count": 1, "mode": "peek-lock"})
    client.row = reads.message(pages.shop, 5).row
    return client


def test_messages_held_by_the_user_are_shown_after_a_reload(pages, manual_receiver, as_):
    assert manual_receiver.row.locked_by == f"user:{manual_receiver.user.username}"
    page = body_of(manual_receiver.get(f"/receive/main/{pages.at}"))
    assert 'id="held-5"' in page and 'id="held-4"' not in page and str(manual_receiver.row.lock_token) in page
    assert 'id="held-5"' not in body_of(as_("operator").get(f"/receive/main/{pages.at}"))


def settled(row):
    return reads.message(row.address, row.sequence_number)


def test_an_abandon_reports_the_new_place_of_the_message(pages, manual_receiver, as_):
    """It may be delivered three times."""
    said = []
    for _ in range(3):
        token = str(reads.message(pages.shop, manual_receiver.row.sequence_number).row.lock_token)
        said.append(
            body_of(manual_receiver.post(f"/receive/main/{pages.at}", {"token": token, "action": "abandon"}, follow=True))
        )
        as_("operator").post(f"/receive/main/{pages.at}", {"action": "receive", "count": 1, "mode": "peek-lock"})
    assert "It is available again" in said[0] and "It is available again" in said[1]
    assert "It was the last delivery, so the message was dead-lettered" in said[2]
    assert settled(manual_receiver.row).row.dead_letter_reason == "MaxDeliveryCountExceeded"


@pytest.mark.parametrize("where", ["/receive/main/{at}", "/messages/{at}/5"])
def test_each_settlement_works(pages, manual_receiver, where):
    def settle(**data):
        return manual_receiver.post(where.format(at=pages.at), {"token": str(manual_receiver.row.lock_token), **data})

    before = manual_receiver.row.locked_until
    assert settle(action="renew").status_code == 302
    assert settled(manual_receiver.row).row.locked_until > before
    settle(action="dead-letter", reason="Why not", description="because", property_name="seen", property_value="yes")
    found = settled(manual_receiver.row)
    assert (found.row.dead_letter_reason, found.row.dead_letter_description) == ("Why not", "because")
    assert tuple(found.application_properties["seen"]) == ("string", "yes")
    assert the_last_act().action == "dead-letter"


def test_a_lost_lock_is_reported_and_changes_nothing(pages, manual_receiver):
    token = str(manual_receiver.row.lock_token)
    manual_receiver.post(f"/receive/main/{pages.at}", {"action": "complete", "token": token})
    response = manual_receiver.post(f"/receive/main/{pages.at}", {"action": "complete", "token": token}, headers=FRAGMENT)
    assert response.status_code == 409 and "The lock supplied is invalid" in body_of(response)
    assert the_last_act().tracking_id in body_of(response)


@pytest.mark.parametrize("data", [{"action": "complete"}, {"action": "complete", "token": "x"}, {"action": "explode"}])
def test_invalid_requests_are_refused(pages, manual_receiver, data):
    assert manual_receiver.post(f"/receive/main/{pages.at}", data, headers=FRAGMENT).status_code == 400


def test_an_input_error_has_no_tracking_id(pages, as_):
    """A refusal has one (test_a_lost_lock_is_reported_and_changes_nothing)."""
    client = as_("operator")
    answers = [
        client.post(f"/receive/main/{pages.at}", {"action": "explode"}, headers=FRAGMENT),
        client.get("/search/", {"q": "size>10XB"}, follow=True),
        client.post("/locks/", {"action": "release"}, headers=FRAGMENT),
    ]
    assert [body_of(answer).lower().count("tracking id") for answer in answers] == [0, 0, 0]


def test_deferred_messages_are_received_by_number(pages, as_):
    client = as_("operator")
    bad = client.post(f"/receive/main/{pages.at}", {"action": "receive-deferred", "numbers": "three"})
    assert bad.status_code == 400 and "sequence numbers such as 12, 15" in body_of(bad)
    client.post(f"/receive/main/{pages.at}", {"action": "receive-deferred", "numbers": "3"})
    assert 'id="held-3"' in body_of(client.get(f"/receive/main/{pages.at}"))


def test_messages_received_and_deleted_are_shown_once(pages, as_):
    response = as_("operator").post(f"/receive/main/{pages.at}", {"action": "receive", "count": 1, "mode": "receive-and-delete"})
    assert response.status_code == 200 and "Received and deleted" in body_of(response) and '"n"' in body_of(response)
    assert reads.message(pages.shop, 5) is None


# Queues


@pytest.mark.parametrize("url", ["/new/queue/", "/new/queue/?namespace=", "/new-storage-queue/"])
def test_the_forms_for_new_entities_link_to_each_other(pages, as_, url):
    client = as_("administrator")
    kinds = re.search(r'<nav class="tabs bare".*?</nav>', body_of(client.get(url)), re.DOTALL)[0]
    links = [html.unescape(link) for link in re.findall(r'<a\s+href="([^"]+)"', kinds)]
    forms = ["/new/queue/", "/new/topic/", "/new/subscription/", "/new-storage-queue/", "/rabbitmq/new/queue/"]
    assert [link.partition("?")[0] for link in links] == forms
    assert {client.get(link).status_code for link in links} == {200}
    assert kinds.count("aria-current") == 1


def test_an_empty_namespace_says_how_to_fill_it(db, as_, namespace):
    page = body_of(as_("administrator").get(f"/namespaces/{namespace}/"))
    assert f'create_queue(EntityAddress("{namespace}", "orders"))' in page
    assert f'<a href="/new/queue/?namespace={namespace}">Create one</a>' in page


def test_a_queue_is_created_changed_and_deleted(pages, as_):
    client = as_("administrator")
    page = client.get("/new/queue/")
    data = {n: f for n, f in page.context["form"].initial.items() if f not in (None, False)} | {
        "namespace": pages.shop.namespace, "path": "fresh", "lock_duration": "45 s", "status": "Active",
    }  # fmt: skip
    assert client.post("/new/queue/", data).status_code == 302
    address = EntityAddress(pages.shop.namespace, "fresh")
    assert entities.get_queue(address).settings.lock_duration == timedelta(seconds=45)

    changed = {k: v for k, v in data.items() if k not in ("namespace", "path")} | {"default_message_time_to_live": "PT10M"}
    client.post(f"/settings/{address}", changed)
    assert the_last_act().detail == ("Changed DefaultMessageTimeToLive from never to 10 min. No existing messages are affected.")

    assert client.post(f"/delete/{address}", {"name": "wrong"}).status_code == 400
    assert client.post(f"/delete/{address}", {"name": "fresh"}).status_code == 302
    assert "Deleted" in body_of(client.get(f"/entities/{address}")), "its record"


def test_a_previewed_change_is_saved_or_previewed_again_if_the_queue_has_changed(pages, as_):
    client = as_("administrator")
    url = f"/settings/{pages.at}"
    initial = client.get(url).context["form"].initial
    form_data = {n: f for n, f in initial.items() if f not in (None, False)} | {
        "lock_duration": "1 min", "status": "Active", "max_delivery_count": "7",
    }  # fmt: skip
    shown = client.post(url, form_data | {"preview": "1"})
    assert "Save if unchanged" in body_of(shown)
    entities.update_queue(pages.shop, lock_duration=timedelta(seconds=40))
    refused = client.post(url, form_data | {"token": shown.context["previewed"].token})
    assert refused.status_code == 409 and "has changed since the preview" in body_of(refused)
    assert entities.get_queue(pages.shop).settings.max_delivery_count == 3
    assert client.post(url, form_data | {"token": refused.context["previewed"].token}).status_code == 302
    assert entities.get_queue(pages.shop).settings.max_delivery_count == 7
    assert "MaxDeliveryCount from 3 to 7" in the_last_act().detail
    assert "Save if unchanged" not in body_of(client.post(url, form_data | {"preview": "1"})), "nothing would change"


@pytest.mark.parametrize(
    ("bad", "named"),
    [({"lock_duration": "1 h"}, "5 s to 5 min"), ({"max_delivery_count": "0"}, "out of range"), ({"path": "a//b"}, "contain //"),
     ({"path": "eu/orders"}, "already exists"), ({"default_message_time_to_live": "later"}, "a duration")],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused_with_the_allowed_range(pages, as_, bad, named):
    client = as_("administrator")
    initial = client.get("/new/queue/").context["form"].initial
    data = {n: f for n, f in initial.items() if f not in (None, False)} | {
        "namespace": pages.shop.namespace, "path": "other", "lock_duration": "30 s", **bad,
    }  # fmt: skip
    response = client.post("/new/queue/", data)
    assert response.status_code in (400, 409) and named in body_of(response)


# Around


def test_with_a_sidebar_of_icons_every_sort_of_page_opens(pages, as_):
    """Regression: the choice of icons made each page fail that did not choose its sidebar itself."""
    client = as_("viewer")
    assert client.post("/preferences/", {"side": "rail", "next": "/"}).status_code == 302
    for address in ("/", f"/entities/{pages.at}", "/learn/", f"/entities/{pages.at}?tab=lost", "/nowhere/"):
        assert 'data-side="rail"' in body_of(client.get(address)), address


def test_preferences_are_kept_in_cookies_and_rendered_by_the_server(pages, as_):
    client = as_("viewer")
    response = client.post("/preferences/", {"theme": "dark", "density": "compact", "next": f"/entities/{pages.at}"})
    assert response["Location"] == f"/entities/{pages.at}"
    assert 'data-theme="dark" data-density="compact"' in body_of(client.get("/"))
    assert client.post("/preferences/", {"theme": "pink"}).status_code == 400
    assert client.post("/preferences/", {"theme": "light", "next": "https://evil.example/"})["Location"] == reverse(
        "explorer:now"
    )


@pytest.mark.slow
def test_browsing_writes_no_event(pages, as_):
    client = as_("operator")
    events = len(reads.timeline(reads.entity(pages.shop).id, 5))
    for address in pages.all:
        client.get(address)
    assert len(reads.timeline(reads.entity(pages.shop).id, 5)) == events


def test_a_search_finds_present_and_removed_messages(pages, as_):
    client = as_("viewer")
    assert "dead-lettered" in body_of(client.get("/messages/?q=order-2"))
    assert "removed" in body_of(client.get("/messages/?q=order-1"))
    assert client.get("/find/?q=order-1")["Location"] == "/messages/?q=order-1"


def test_the_audit_is_paged_and_filtered(pages, as_):
    from explorer import audit

    for n in range(60):
        audit.done(WORKER, "send", pages.shop, target=f"message {n}", detail=json.dumps({"n": n}))
    client = as_("viewer")
    first = client.get("/administration/activity/?q=actor:worker+entity:eu/orders")
    assert len(first.context["records"]) == 50 and "Older" in body_of(first)
    second = client.get(f"/administration/activity/?q=actor:worker+entity:eu/orders&before={first.context['older']}")
    assert len(second.context["records"]) == 10
    exactly = f"/administration/activity/?q=actor:{WORKER}"
    assert len(client.get(exactly).context["records"]) == 50, "by its kind and name"
    assert not client.get(exactly[:-1]).context["records"], "and no other whose name begins so"


def test_typed_values_are_sent_as_typed(shop):
    from explorer.service_bus.forms.properties import typed_value

    assert repr(typed_value("x", "long", "7")) == repr(Typed("long", 7))
    assert typed_value("x", "binary", "aGk=").value == b"hi"
    assert typed_value("x", "null", "ignored").value is None


def test_copies_can_have_different_texts(pages, as_):
    client = as_("operator")
    form_data = {"body": '{"n": {n}, "kept": {}}', "message_id": "copy-{n}", "copies": 2, "fill": "on", "partition_key": "p"}
    client.post(f"/send/{pages.at}", form_data | {"reply_to_session_id": "s"})
    first, second = service_bus.peek(pages.shop, 8)
    assert (first.body, second.body) == (b'{"n": 1, "kept": {}}', b'{"n": 2, "kept": {}}')
    assert (first.message_id, second.message_id) == ("copy-1", "copy-2")
    sent = reads.message(pages.shop, 8).broker_properties
    assert (sent["partition_key"], sent["reply_to_session_id"]) == ("p", "s")
    client.post(f"/send/{pages.at}", {"body": "{n} as typed", "copies": 1})
    assert service_bus.peek(pages.shop, 10)[0].body == b"{n} as typed"
    client.post(f"/send/{pages.stored}", {"text": "{n} {uuid}", "copies": 2, "fill": "on", "messagettl": "never"})
    texts = [reads.body(pages.jobs, n).content for n in (9, 10)]
    assert [text[:2] for text in texts] == [b"1 ", b"2 "] and all(len(text) == 38 for text in texts)
