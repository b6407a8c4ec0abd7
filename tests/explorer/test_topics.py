"""Topics, subscriptions, rules and sessions in the explorer: listed, opened, configured, sent to, received from."""

from datetime import timedelta

import pytest

from broker_core import reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from broker_core.service_bus.rules.filters import CorrelationFilter, SqlFilter, TrueFilter
from broker_core.service_bus.rules.values import Message
from broker_core.store import driver
from explorer.frames import recent
from explorer.models import AuditRecord
from explorer.pages import navigation
from tests.html import body_of

from .conftest import FRAGMENT, WORKER


def rules_of(subscription):
    return {stored_rule.rule.name: stored_rule.rule for stored_rule in entities.list_rules(subscription)}


@pytest.fixture
def carts(pages):
    """A queue with sessions: two in cart-a, one in cart-b."""
    address = EntityAddress(pages.shop.namespace, "carts")
    service_bus.send(
        address, [Message(b"one", session_id="cart-a"), Message(b"two", session_id="cart-a"), Message(b"x", session_id="cart-b")]
    )
    return address


# The overview


def test_a_subscription_is_listed_below_its_topic(pages, as_):
    page = body_of(as_("viewer").get(f"/namespaces/{pages.shop.namespace}/"))
    rows = page.rpartition("<tbody>")[2].split("</tr>")
    names = [row.partition("row-link")[2].partition("</a>")[0].rpartition("</span>")[2] for row in rows[:-1]]
    assert names == ["carts", "eu/orders", "market/news", "all", "eu", "vips"]
    assert "3 subscriptions" in rows[2] and "beneath" in rows[3] and 'class="visually-hidden">subscription ' in rows[3]
    assert "beneath" not in rows[2]


def test_the_overview_can_be_filtered_by_kind(pages, as_):
    client = as_("viewer")
    found = client.get(f"/namespaces/{pages.shop.namespace}/?q=kind:subscription").context["entities"]
    assert {row.address.name for row in found} == {"all", "eu", "vips"}
    assert "beneath" not in body_of(client.get(f"/namespaces/{pages.shop.namespace}/?q=kind:subscription"))
    found = client.get(f"/entities/?q={pages.shop.namespace}/market/news/Subscriptions/eu").context["entities"]
    assert [row.address.name for row in found] == ["eu"]
    assert client.get("/entities/?q=kind:exchange").status_code == 400


def test_the_number_of_queries_of_the_overview_does_not_grow_with_the_entities(pages, as_, monkeypatch):
    client, asked = as_("viewer"), []
    run = driver.run
    monkeypatch.setattr("broker_core.store.driver.run", lambda steps: asked.append(1) or run(steps))

    def statements():
        asked.clear()
        client.get(f"/namespaces/{pages.shop.namespace}/")
        return len(asked)

    monkeypatch.setattr(recent, "KEPT_SECONDS", 3600)
    for kept in (navigation._counts, navigation._namespaces):
        kept.clear()
    statements()  # what the navigation keeps
    before = statements()
    for n in range(5):
        entities.create_subscription(pages.market.subscription(f"more-{n}"))
    assert statements() == before > 0


# Creating, changing, deleting


def filled(client, address):
    """What a browser would send back with a form."""
    form = client.get(address).context["form"]
    return {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}


def test_a_topic_a_subscription_and_a_session_queue_are_created(pages, as_):
    client, space = as_("administrator"), pages.shop.namespace
    data = filled(client, "/new/topic/") | {"namespace": space, "path": "alerts", "requires_duplicate_detection": "on"}
    assert client.post("/new/topic/", data)["Location"] == f"/entities/{space}/alerts"
    topic = EntityAddress(space, "alerts")
    assert entities.get_topic(topic).settings.requires_duplicate_detection
    data = filled(client, f"/new/subscription/?topic={topic}") | {
        "name": "loud",
        "filter": "level > 3",
        "forward_to": "eu/orders",
    }
    assert data["topic"] == str(topic)
    assert client.post("/new/subscription/", data)["Location"] == f"/entities/{topic}/Subscriptions/loud"
    loud = topic.subscription("loud")
    assert entities.get_subscription(loud).settings.forward_to == "eu/orders"
    assert [rule.filter.text for rule in rules_of(loud).values()] == ["level > 3"]
    data = filled(client, "/new/queue/") | {"namespace": space, "path": "ordered", "requires_session": "on"}
    client.post("/new/queue/", data)
    assert entities.get_queue(EntityAddress(space, "ordered")).settings.requires_session


@pytest.mark.parametrize(
    ("changes", "field", "named"),
    [({"name": "a/b"}, "name", "a/b"), ({"name": "loud", "filter": "level >"}, "filter", "column 8"),
     ({"name": "eu"}, None, "already exists"), ({"name": "loud", "forward_to": "nowhere"}, "forward_to", "nowhere")],
)  # fmt: skip
def test_an_invalid_subscription_is_refused_at_its_field(pages, as_, changes, field, named):
    client = as_("administrator")
    data = filled(client, f"/new/subscription/?topic={pages.market}") | changes
    response = client.post("/new/subscription/", data)
    assert response.status_code in (400, 404, 409) and named in body_of(response)
    assert field is None or field in response.context["form"].errors, response.context["form"].errors
    assert len(entities.list_subscriptions(pages.market)) == 3


def test_immutable_settings_are_shown_and_cannot_be_changed(pages, as_):
    client, address = as_("administrator"), f"/settings/{pages.shop.namespace}/carts"
    page = body_of(client.get(address))
    assert "Cannot be changed after the queue is created" in page
    data = filled(client, address)
    data.pop("requires_session")  # a browser sends nothing for a disabled box
    assert client.post(address, data | {"lock_duration": "2 min"}).status_code == 302
    settings = entities.get_queue(EntityAddress(pages.shop.namespace, "carts")).settings
    assert settings.requires_session and settings.lock_duration == timedelta(minutes=2)


def test_a_subscription_setting_is_changed_and_the_audit_has_the_old_value(pages, as_):
    client, eu = as_("administrator"), pages.market.subscription("eu")
    client.post(f"/settings/{eu}", filled(client, f"/settings/{eu}") | {"forward_dead_lettered_messages_to": "eu/orders"})
    assert entities.get_subscription(eu).settings.forward_dead_lettered_messages_to == "eu/orders"
    assert AuditRecord.objects.latest("id").detail == (
        "Changed ForwardDeadLetteredMessagesTo from nothing to eu/orders. No existing messages are affected."
    )


def test_settings_can_be_previewed_before_they_are_saved(pages, as_):
    client, address = as_("administrator"), f"/settings/{pages.at}"
    data = filled(client, address) | {"max_delivery_count": "1", "default_message_time_to_live": "1 h", "preview": "1"}
    service_bus.abandon(pages.shop, [message.lock_token for message in service_bus.receive(pages.shop)])
    page = body_of(client.post(address, data))
    assert "Not saved yet" in page and "MaxDeliveryCountExceeded" in page and f'href="/messages/{pages.at}/5"' in page
    assert 'value="1 h"' in page and entities.get_queue(pages.shop).settings.max_delivery_count == 3
    page = body_of(client.post(address, filled(client, address) | {"preview": "1"}))
    assert "Nothing would change" in page
    refused = client.post(address, data | {"forward_to": "nowhere"})
    assert refused.status_code in (400, 404, 409) and "nowhere" in body_of(refused)
    assert not AuditRecord.objects.filter(action="change settings").exists()


def test_deleting_a_topic_names_its_subscriptions_and_messages(pages, as_):
    client = as_("administrator")
    service_bus.send(pages.market, [Message(b"x", subject="vip")])
    page = body_of(client.get(f"/delete/{pages.market}"))
    assert "its 3 subscriptions" in page and "2 messages" in page  # all has one, vips a dead letter: it had no session
    client.post(f"/delete/{pages.market}", {"name": "market/news"})
    for address in (pages.market, pages.market.subscription("eu")):
        assert "Deleted" in body_of(client.get(f"/entities/{address}")), "its record"


# Rules


def post_rule(client, subscription, **data):
    return client.post(f"/new-rule/{subscription}", {"name": "New", "kind": "sql", **data})


def test_a_rule_of_each_kind_can_be_created(pages, as_):
    client, eu = as_("administrator"), pages.market.subscription("eu")
    post_rule(client, eu, sql="total > @least", parameter_name="least", parameter_type="int", parameter_value="100",
              action="SET priority = 'high'")  # fmt: skip
    post_rule(
        client, eu, name="Matched", kind="correlation", subject="vip", property_name="n", property_type="int", property_value="7"
    )
    post_rule(client, eu, name="All", kind="true")
    found = rules_of(eu)
    assert isinstance(found["New"].filter, SqlFilter) and found["New"].action.text == "SET priority = 'high'"
    assert dict(found["New"].filter.parameters)["least"] == 100
    matched = found["Matched"].filter
    assert isinstance(matched, CorrelationFilter) and matched.subject == "vip" and dict(matched.properties) == {"n": 7}
    assert isinstance(found["All"].filter, TrueFilter)
    assert AuditRecord.objects.filter(action="create rule", path=eu.path).count() == 3
    page = body_of(client.get(f"/entities/{eu}?tab=rules"))
    assert "total > @least" in page and "subject is" in page and "every message" in page
    assert page.count("SET priority = ") == 1, "the action has a column of its own"
    delete = body_of(client.get(f"/delete-rule/New/{eu}"))
    assert "(filter: <code>total > @least</code>)" in delete and "then SET" not in delete


@pytest.mark.parametrize(
    ("data", "field", "named"),
    [({"sql": "total >"}, "sql", "column 8"), ({"sql": ""}, "sql", "column 1"),
     ({"sql": "a = 1", "action": "SET"}, "action", "column 4"),
     ({"name": "a?b", "sql": "a = 1"}, "name", "a?b"), ({"kind": "correlation"}, "__all__", "has no conditions"),
     ({"sql": "a = @x"}, "sql", "@x"),
     ({"sql": "a = @x", "parameter_name": "x", "parameter_type": "int", "parameter_value": "many"}, "__all__", "many")],
)  # fmt: skip
def test_a_rule_that_cannot_be_parsed_is_refused_with_the_column(pages, as_, data, field, named):
    eu = pages.market.subscription("eu")
    response = post_rule(as_("administrator"), eu, **data)
    assert response.status_code == 400 and named in body_of(response)
    assert field in response.context["form"].errors
    assert data.get("sql", "") in (response.context["form"]["sql"].value() or "")
    assert set(rules_of(eu)) == {"Europe"}


def test_a_rule_is_changed_and_deleted(pages, as_):
    client, vips = as_("administrator"), pages.market.subscription("vips")
    form = client.get(f"/rules/Vip/{vips}").context["form"]
    assert (form["kind"].value(), form["subject"].value(), form["action"].value()) == ("correlation", "vip", "SET seen = 'yes'")
    client.post(f"/rules/Vip/{vips}", {"kind": "sql", "sql": "vip = TRUE", "name": "ignored"})
    assert rules_of(vips)["Vip"].filter.text == "vip = TRUE" and rules_of(vips)["Vip"].action is None
    assert "This is the last rule" in body_of(client.get(f"/delete-rule/Vip/{vips}"))
    client.post(f"/delete-rule/Vip/{vips}")
    assert rules_of(vips) == {}
    page = body_of(client.get(f"/entities/{vips}"))
    assert "Without rules, a subscription receives no messages" in page and "no rules" in page
    assert client.get(f"/rules/Vip/{vips}").status_code == 404


def test_rules_require_an_administrator_and_a_subscription(pages, as_):
    eu = pages.market.subscription("eu")
    assert post_rule(as_("operator"), eu, sql="a = 1").status_code == 403 and set(rules_of(eu)) == {"Europe"}
    for address in (pages.shop, pages.market):
        assert as_("administrator").get(f"/new-rule/{address}").status_code == 400
    assert as_("viewer").get(f"/test-rules/{pages.shop}").status_code == 400


def flat(steps):
    """The steps of a route in the order in which they are shown."""
    return [line for step in steps for line in (step.step, *flat(step.steps))]


def test_the_route_shows_the_effect_of_sending_the_message(pages, as_):
    entities.create_subscription(pages.market.subscription("sums"), rule=None)
    client = as_("administrator")
    post_rule(client, pages.market.subscription("sums"), name="Sum", sql="region + 1 > 0")
    query = "subject=vip&session_id=s&property_name=region&property_type=string&property_value=eu"
    answer = client.get(f"/test-rules/{pages.market}?{query}")
    found = {step.name: step for step in flat(answer.context["steps"]) if step.kind == "queue"}
    assert {name: step.verdict.value for name, step in found.items()} == {
        "all": "stored", "eu": "stored", "vips": "stored", "sums": "dead-lettered",
    }  # fmt: skip
    assert found["sums"].reason.startswith("FilterException") and "cannot be evaluated" in body_of(answer)
    assert found["vips"].changes == ("seen: yes (new)", "RuleName: Vip (new)") and "Modified by rule Vip" in body_of(answer)
    assert reads.entity(pages.market.subscription("all")).counts.total == 0
    service_bus.send(pages.market, [Message(b"", subject="vip", session_id="s", properties={"region": "eu"})])
    counts = {row.address.name: (row.counts.active, row.counts.dead_letter) for row in reads.subscriptions(pages.market)}
    assert counts == {"all": (1, 0), "eu": (1, 0), "vips": (1, 0), "sums": (0, 1)}
    assert client.get(f"/test-rules/{pages.market}?property_name=n&property_type=int&property_value=x").status_code == 400
    like = client.get(f"/test-rules/{pages.market}?like=1&of={pages.market.path}/Subscriptions/eu")
    assert like.context["form"]["subject"].value() == "vip" and like.context["steps"]


def test_a_message_of_the_last_hour_can_be_chosen(pages, as_):
    service_bus.send(pages.market, [Message(b"", subject="chosen", properties={"n": 7, "region": "eu"})])
    address = f"/test-rules/{pages.market}"
    assert "region=eu" in body_of(as_("viewer").get(address))
    answer = as_("viewer").get(f"{address}?published=1")
    assert answer.context["form"].message().properties == {"n": 7, "region": "eu"}
    assert [step.name for step in flat(answer.context["steps"]) if step.verdict == "stored"] == ["all", "eu"]
    assert as_("viewer").get(f"{address}?published=99").context["form"].message().subject is None


def test_a_draft_rule_is_replayed_without_being_saved(pages, as_):
    service_bus.send(pages.market, [Message(b"", properties={"region": region}) for region in ("eu", "eu", "us")])
    eu, client = pages.market.subscription("eu"), as_("administrator")
    page = body_of(client.post(f"/rules/Europe/{eu}", {"kind": "sql", "sql": "region = 'us'", "replay": "1"}))
    assert "Of 3 messages of the last hour, 1 would get more copies and 2 would get fewer copies." in page
    assert f"/messages/{pages.market}/3" in page and rules_of(eu)["Europe"].filter.text != "region = 'us'"
    page = body_of(client.post(f"/delete-rule/Europe/{eu}", {"replay": "1"}))
    assert "2 would get fewer copies" in page and "Europe" in rules_of(eu)
    page = body_of(client.post(f"/new-rule/{eu}", {"name": "More", "kind": "false", "replay": "1"}))
    assert "would be routed as they are now" in page and "More" not in rules_of(eu)
    refused = client.post(f"/new-rule/{eu}", {"name": "europe", "kind": "true", "replay": "1"})
    assert refused.status_code == 400 and "is the name of another rule" in body_of(refused)


# Messages


def test_a_published_message_and_its_copies_link_to_each_other(pages, as_):
    client = as_("operator")
    data = {"body": "x", "copies": 1, "message_id": "breaking", "subject": "vip"}
    data |= {"property_name": "region", "property_type": "string", "property_value": "eu"}
    went = client.post(f"/send/{pages.market}", data)
    assert went["Location"] == f"/messages/{pages.market}/1"
    page = body_of(client.get(went["Location"]))
    assert "Published: 3 copies" in page and "Topics do not store messages" in page
    copy = body_of(client.get(f"/messages/{pages.market.subscription('eu')}/1"))
    assert "Copied from the topic by a matching rule" in copy and "message 1 in market/news" in copy
    dead = body_of(client.get(f"/messages/{pages.market.subscription('vips')}/1"))
    assert "Copied from the topic into the dead-letter queue: Session ID is null." in dead


def test_a_dropped_duplicate_is_reported_to_its_sender_and_on_the_original(pages, as_):
    client, once = as_("operator"), EntityAddress(pages.shop.namespace, "once")
    entities.create_queue(once, requires_duplicate_detection=True)
    data = {"body": "x", "copies": 1, "message_id": "same"}
    client.post(f"/send/{once}", data)
    page = body_of(client.post(f"/send/{once}", data, follow=True))
    assert "Accepted and dropped" in page and reads.counts(once).active == 1
    assert "dropped as a duplicate" in body_of(client.get(f"/messages/{once}/1"))


def test_a_forwarded_message_links_to_its_destination(pages, as_):
    client, inbox = as_("operator"), EntityAddress(pages.shop.namespace, "inbox")
    entities.create_queue(inbox, forward_to="eu/orders")
    client.post(f"/send/{inbox}", {"body": "x", "copies": 1, "message_id": "on-its-way"})
    assert "Forwarded to eu/orders" in body_of(client.get(f"/messages/{inbox}/1"))
    there = body_of(client.get(f"/messages/{pages.at}/8"))
    assert "Forwarded from inbox" in there and "message 1 in inbox" in there
    assert "forwards to eu/orders" in body_of(client.get(f"/entities/{inbox}"))


def test_entities_that_allow_no_send_or_receive_say_so(pages, as_):
    client = as_("operator")
    sent = client.get(f"/send/{pages.market.subscription('eu')}")
    assert sent.status_code == 409 and "send to its topic instead" in body_of(sent)
    received = client.get(f"/receive/main/{pages.market}")
    assert received.status_code == 409 and "from its subscriptions" in body_of(received)


@pytest.mark.parametrize("tab", ["active", "rules", "sessions", "dead-letter"])
def test_a_list_that_a_topic_lacks_is_a_400(pages, as_, tab):
    assert as_("viewer").get(f"/entities/{pages.market}?tab={tab}").status_code == 400


def test_a_message_page_explains_why_a_message_is_not_delivered(pages, as_, carts):
    session = service_bus.accept_session(carts, "cart-a", actor=WORKER)
    page = body_of(as_("viewer").get(f"/messages/{carts}/1"))
    assert "Active, but not delivered" in page and "is locked by worker" in page
    service_bus.close_session(session)
    assert "Active: next in line" in body_of(as_("viewer").get(f"/messages/{carts}/1"))


# Sessions


@pytest.fixture
def session_receiver(as_, carts):
    """An operator who holds cart-a, with its first message received; `do` posts to it."""
    client, address = as_("operator"), f"/receive/main/{carts}"
    client.post(address, {"action": "accept", "session_id": "cart-a", "count": "1"})

    def do(action, **data):
        [held] = reads.sessions(carts, holder=f"user:{client.user.username}").rows
        return client.post(address, {"action": action, "session_id": "cart-a", "token": str(held.lock_token), **data})

    client.do, client.address = do, address
    return client


def test_sessions_are_listed_with_holder_and_state(carts, as_, session_receiver):
    session_receiver.do("set-state", state='{"aisle": 2}')
    page = body_of(as_("operator").get(f"/entities/{carts}?tab=sessions"))
    assert page.index("cart-a") < page.index("cart-b") and session_receiver.user.username in page and "aisle" in page
    assert "aisle" not in body_of(as_("viewer").get(f"/entities/{carts}?tab=sessions"))
    found = as_("viewer").get(f"/entities/{carts}?tab=sessions&q=%22-b%22").context["sessions"].rows
    assert [(row.session_id, str(row.messages), row.locked_until) for row in found] == [("cart-b", "1", None)]
    listed = as_("viewer").get(f"/entities/{carts}?tab=all&q=session=cart-a").context["page"].rows
    assert {row.sequence_number for row in listed} == {1, 2}


def test_the_messages_of_a_session_are_processed_in_order(carts, session_receiver):
    page = body_of(session_receiver.get(session_receiver.address))
    assert 'id="held-1"' in page and 'value="cart-a"' in page and 'value="renew"' not in page
    token = str(reads.message(carts, 1).row.lock_token)
    session_receiver.do("complete", token=token)
    before = reads.sessions(carts, part="cart-a").rows[0].locked_until
    session_receiver.do("renew-session")
    assert reads.sessions(carts, part="cart-a").rows[0].locked_until > before
    session_receiver.do("receive-session", count="5")
    assert 'id="held-2"' in body_of(session_receiver.get(session_receiver.address))
    session_receiver.do("set-state", state="a\r\nb")
    session_receiver.do("close-session")
    [row] = reads.sessions(carts, part="cart-a").rows
    assert (row.locked_until, row.state) == (None, b"a\nb") and reads.message(carts, 2).row.delivery_count == 0
    acts = AuditRecord.objects.filter(actor=f"user:{session_receiver.user.username}").values_list("action", flat=True)
    assert {"accept session", "complete", "renew session", "receive from session", "set session state", "close session"} <= set(
        acts
    )


def test_the_next_session_is_accepted_without_an_id(carts, session_receiver, as_):
    other = as_("operator")
    response = other.post(session_receiver.address, {"action": "accept", "session_id": "", "count": "1"}, headers=FRAGMENT)
    assert "Accepted session cart-b, with 1 message received" in body_of(response)
    refused = as_("operator").post(session_receiver.address, {"action": "accept"}, headers=FRAGMENT)
    assert refused.status_code == 409 and "available" in body_of(refused)
    held = as_("operator").post(session_receiver.address, {"action": "accept", "session_id": "cart-a"}, headers=FRAGMENT)
    assert held.status_code == 409 and "another receiver holds it" in body_of(held)


def test_messages_received_and_deleted_from_a_session_are_shown_once(carts, session_receiver):
    response = session_receiver.do("receive-session", count="1", mode="receive-and-delete")
    assert response.status_code == 200 and "Received and deleted" in body_of(response) and reads.message(carts, 2) is None


def test_deferred_messages_of_a_session_are_received_through_it(carts, session_receiver):
    session_receiver.do("defer", token=str(reads.message(carts, 1).row.lock_token))
    assert session_receiver.do("receive-session-deferred", numbers="x").status_code == 400
    session_receiver.do("receive-session-deferred", numbers="1")
    assert 'id="held-1"' in body_of(session_receiver.get(session_receiver.address))


@pytest.mark.parametrize("data", [{"token": "x"}, {"token": ""}])
def test_a_session_action_without_a_token_is_refused(session_receiver, data):
    assert session_receiver.do("renew-session", **data).status_code == 400


def test_a_lost_session_is_reported(carts, session_receiver):
    session_receiver.do("close-session")
    lost = {"action": "renew-session", "session_id": "cart-a", "token": "00000000-0000-0000-0000-000000000001"}
    response = session_receiver.post(session_receiver.address, lost, headers=FRAGMENT)
    assert response.status_code == 409 and "no longer held" in body_of(response)


# What an operator provokes


def test_releasing_all_locks_is_confirmed_and_audited(pages, as_):
    client = as_("operator")
    assert "Release all locks of eu/orders?" in body_of(client.get(f"/release-locks/{pages.at}"))
    assert reads.counts(pages.shop).locked == 1
    client.post(f"/release-locks/{pages.at}")
    assert reads.counts(pages.shop).locked == 0
    act = AuditRecord.objects.latest("id")
    assert (act.action, act.detail) == ("release locks", f"Ended 1 lock on {pages.shop}.")
    assert as_("viewer").get(f"/release-locks/{pages.at}").status_code == 403


def test_released_session_locks_are_lost(carts, session_receiver, as_):
    as_("operator").post(f"/release-locks/{carts}")
    assert reads.sessions(carts, part="cart-a").rows[0].locked_until is None


# Analyses


def test_a_subscription_can_be_analysed(pages, as_):
    client, eu, space = as_("viewer"), pages.market.subscription("eu"), pages.shop.namespace
    page = client.get("/analyses/", {"namespace": space})
    assert {"eu/orders", eu.path} <= set(page.context["queues"]) and pages.market.path not in page.context["queues"]
    led = client.get("/analyses/", {"namespace": space, "path": eu.path})
    assert led["Location"] == f"/analyses/?queue={entities.get_subscription(eu).id}"
    assert str(eu) in body_of(client.get(led["Location"]))
    assert client.get("/analyses/", {"namespace": space, "path": pages.market.path}).status_code == 404, "a topic keeps nothing"
