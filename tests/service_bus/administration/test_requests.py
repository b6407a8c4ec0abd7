"""Each operation, outcome and document of the administration API (SB, section 7), over a socket."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import pytest

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.namespaces import protection
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.values import Message

from .client import NAMES, TYPE, entry, queue, rule, subscription, topic

SECOND = timedelta(seconds=1)
FOREVER = "P10675199DT2H48M5.4775807S"
ORDER = {  # (SB, section 7.4); topics do not forward
    "queue": (
        "LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive "
        "DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations "
        "SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status ForwardTo UserMetadata CreatedAt UpdatedAt "
        "AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning ForwardDeadLetteredMessagesTo "
        "EntityAvailabilityStatus EnableExpress MaxMessageSizeInKilobytes"
    ),
    "topic": (
        "DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow "
        "EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status "
        "UserMetadata CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount "
        "CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EnableSubscriptionPartitioning EntityAvailabilityStatus "
        "EnableExpress MaxMessageSizeInKilobytes"
    ),
    "subscription": (
        "LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration "
        "DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status ForwardTo "
        "CreatedAt UpdatedAt AccessedAt CountDetails UserMetadata ForwardDeadLetteredMessagesTo AutoDeleteOnIdle "
        "EntityAvailabilityStatus"
    ),
}
RULE = '<Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter>'


# Operations (7.1)


def test_a_queue_is_created_read_changed_and_deleted(client, namespace):
    created = client.create("/orders", queue("<LockDuration>PT13S</LockDuration>"))
    assert (created.status, created.text("LockDuration"), created.text("MaxDeliveryCount")) == (201, "PT13S", "10")
    assert created.headers["content-type"] == "application/atom+xml;type=entry;charset=utf-8"
    read = client.get("/orders?api-version=2021-05&enrich=True")
    assert (read.status, read.description.tag) == (200, f"{{{NAMES['s']}}}QueueDescription")
    assert read.values("LockDuration MaxDeliveryCount") == ["PT13S", "10"]
    changed = client.update("/orders", queue("<MaxDeliveryCount>3</MaxDeliveryCount>"))
    assert (changed.status, *changed.values("LockDuration MaxDeliveryCount")) == (200, "PT1M", "3")  # what is absent is default
    settings = entities.get_queue(EntityAddress(namespace, "orders")).settings
    assert (settings.lock_duration, settings.max_delivery_count) == (60 * SECOND, 3)
    deleted = client.delete("/orders")
    assert (deleted.status, deleted.body) == (200, b"")
    assert client.get("/orders").status == 404


def test_a_topic_is_created_read_changed_and_deleted(client):
    assert client.create("/news", topic()).status == 201
    assert client.update("/news", topic("<UserMetadata> as it is </UserMetadata>")).status == 200
    read = client.get("/news")
    assert read.description.tag.endswith("TopicDescription") and read.text("UserMetadata") == " as it is "
    assert client.delete("/news").status == 200
    assert client.get("/news").status == 404


@pytest.mark.parametrize("segment", ["Subscriptions", "subscriptions", "SUBSCRIPTIONS"])
def test_a_subscription_is_created_read_changed_and_deleted(client, segment):
    client.create("/a/news", topic())
    path = f"/a/news/{segment}/All"
    assert client.create(path, subscription()).status == 201
    read = client.get(path)
    assert read.root.findtext("a:title", namespaces=NAMES) == "All"
    assert read.root.findtext("a:id", namespaces=NAMES) == f"{client.base}/a/news/Subscriptions/All"
    assert client.update(path, subscription("<RequiresSession>false</RequiresSession>")).status == 200
    assert client.delete(path).status == 200
    assert client.get(path).status == 404
    assert client.get("/a/news").status == 200


@pytest.mark.parametrize("segment", ["Rules", "rules"])
def test_a_rule_is_created_read_changed_and_deleted(client, segment):
    client.create("/news", topic())
    client.create("/news/Subscriptions/all", subscription())
    path = f"/news/Subscriptions/all/{segment}/late"
    created = client.create(path, rule(RULE))
    assert (created.status, created.names) == (201, ["Filter", "Action", "CreatedAt", "Name"])
    assert created.root.findtext("a:id", namespaces=NAMES) == f"{client.base}/news/Subscriptions/all/Rules/late"
    changed = client.update(path, rule(RULE.replace("a = 1", "b = 2")))
    assert (changed.status, client.get(path).description.findtext("s:Filter/s:SqlExpression", namespaces=NAMES)) == (200, "b = 2")
    assert client.delete(path).status == 200
    assert client.get(path).status == 404


def test_a_new_subscription_has_the_rule_that_is_given_or_the_default(client):
    client.create("/news", topic())
    client.create("/news/Subscriptions/all", subscription())
    given = f"<DefaultRuleDescription>{RULE}<Name>mine</Name></DefaultRuleDescription>"
    client.create("/news/Subscriptions/some", subscription(given))
    assert client.get("/news/Subscriptions/all/Rules").titles == ["$Default"]
    assert client.get("/news/Subscriptions/some/Rules").titles == ["mine"]


@pytest.mark.parametrize("path", ["/$Resources/queues", "/$resources/Queues", "/%24Resources/queues"])
def test_queues_are_listed_by_name_and_page(client, path):
    names = [f"q/{number:03}~x.Y" for number in range(205)]
    for name in reversed(names):
        client.create(f"/{name.replace('/', '%2F')}", queue())
    client.create("/news", topic())
    pages, url = [], f"{path}?$skip=0&$top=100&api-version=2024-05"
    while url:
        page = client.get(url)
        pages.append(page.titles)
        assert list(page.links) == (["self", "next"] if len(pages) < 3 else ["self"])
        url = page.links.get("next", "").removeprefix(client.base)
    assert [len(titles) for titles in pages] == [100, 100, 5]
    assert [title for titles in pages for title in titles] == names
    assert client.get(f"{path}?%24skip=203").titles == names[203:]
    assert client.get(f"{path}?$top=1000").titles == names[:100]  # a page has at most 100
    assert client.get(f"{path}?$skip=205").titles == []


def test_topics_subscriptions_and_rules_are_listed(client):
    for name in ("b", "A"):
        client.create(f"/{name}", topic())
        client.create(f"/b/Subscriptions/{name}", subscription())
        client.create("/b/Subscriptions/b/Rules/A", rule(RULE))
    assert client.get("/$Resources/topics").titles == ["A", "b"]
    assert client.get("/b/subscriptions").titles == client.get("/b/subscriptions/").titles == ["A", "b"]
    client.create("/b/Subscriptions/b/Rules/b", rule(RULE))
    assert client.get("/b/Subscriptions/b/Rules").titles == ["$Default", "A", "b"]
    assert client.get("/b/Subscriptions/b/Rules/").titles == ["$Default", "A", "b"]
    second = client.get("/b/Subscriptions/b/Rules?$skip=1&$top=1")
    assert second.titles == ["A"] and second.links["next"].endswith("/b/Subscriptions/b/Rules?$skip=2&$top=1")


def test_the_namespace(client, namespace):
    found = client.get("/$namespaceinfo")
    assert found.names == ["Alias", "CreatedTime", "MessagingSKU", "ModifiedTime", "Name", "NamespaceType"]
    assert found.values("MessagingSKU Name NamespaceType") == ["Standard", namespace, "Messaging"]
    assert client.get("/$NamespaceInfo").status == 200


# Outcomes (7.2)


@pytest.mark.parametrize("body", [queue(), topic()], ids=["queue", "topic"])
def test_a_name_is_taken_by_a_queue_or_a_topic(client, body):
    client.create("/Orders", queue())
    refused = client.create("/orders", body)
    assert refused.status == 409 and refused.detail.startswith("SubCode=40900. The messaging entity")
    assert "40901" not in refused.detail.partition(" Track")[0]


@pytest.mark.parametrize("path", ["/none", "/none/Subscriptions/s", "/news/Subscriptions/s", "/news/Subscriptions/all/Rules/r"])
def test_what_is_missing_is_not_found(client, path):
    client.create("/news", topic())
    client.create("/news/Subscriptions/all", subscription())
    body = rule(RULE) if "/Rules/" in path else subscription() if "/Subscriptions/" in path else queue()
    for reply in (client.get(path), client.delete(path), client.update(path, body)):
        assert reply.status == 404 and reply.detail.startswith("SubCode=40400. The messaging entity")


def test_a_subscription_or_rule_of_a_missing_entity_is_not_found(client):
    client.create("/orders", queue())
    assert client.create("/none/Subscriptions/s", subscription()).status == 404
    assert client.get("/none/Subscriptions").status == 404
    assert client.get("/orders/Subscriptions").status == 404  # a queue is no topic
    assert client.create("/none/Subscriptions/s/Rules/r", rule(RULE)).status == 404
    assert client.get("/none/Subscriptions/s/Rules").status == 404


@pytest.mark.parametrize("name", ["RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning", "EnableExpress"])
def test_what_is_fixed_can_be_repeated_but_not_changed(client, name):
    client.create("/orders", queue(f"<{name}>true</{name}>"))
    for given in (f"<{name}>true</{name}>", ""):
        assert client.update("/orders", queue(given)).text(name) == "true"
    refused = client.update("/orders", queue(f"<{name}>false</{name}>"))
    assert refused.status == 400 and refused.detail.startswith(f"SubCode=40000. {name}: cannot be changed after creation")


def test_an_entity_forwards_to_itself_its_own_topic_or_from_sessions(client):
    given = "<ForwardTo>sb://127.0.0.1/orders</ForwardTo><RequiresSession>true</RequiresSession>"
    assert client.create("/orders", queue(given)).status == client.update("/orders", queue(given)).status + 1 == 201
    client.create("/news", topic())
    reply = client.create("/news/Subscriptions/all", subscription("<ForwardTo>news</ForwardTo>"))
    assert (reply.status, reply.text("ForwardTo")) == (201, f"sb://{client.base.partition('//')[2]}/news")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("<LockDuration>PT1S</LockDuration>", "LockDuration: 1 s is out of range; allowed: 5 s to 5 min"),
        ("<LockDuration>P1000000000D</LockDuration>", "LockDuration: "),
        ("<MaxDeliveryCount>0</MaxDeliveryCount>", "MaxDeliveryCount: 0 is out of range"),
        ("<MaxDeliveryCount>many</MaxDeliveryCount>", "MaxDeliveryCount: 'many' must be a whole number"),
        ("<RequiresSession>maybe</RequiresSession>", "RequiresSession: 'maybe' must be true or false"),
        ("<Status>Sleeping</Status>", "Status: 'Sleeping' must be one of"),
        ("<ForwardTo>nowhere</ForwardTo>", "ForwardTo: 'nowhere' is not a queue or topic"),
        ("<EntityAvailabilityStatus>Gone</EntityAvailabilityStatus>", "EntityAvailabilityStatus: 'Gone' must be one of"),
    ],
)
def test_values_out_of_range_are_refused_by_name(client, given, says):
    refused = client.create("/orders", queue(given))
    assert refused.status == 400 and refused.detail.startswith(f"SubCode=40000. {says}")
    assert client.get("/orders").status == 404


def test_a_bad_name_or_expression_is_refused(client):
    assert client.create("/or*ders", queue()).detail.startswith("SubCode=40000. path: 'or*ders' may contain only")
    client.create("/news", topic())
    client.create("/news/Subscriptions/all", subscription())
    refused = client.create("/news/Subscriptions/all/Rules/r", rule(RULE.replace("a = 1", "a == 1")))
    assert refused.status == 400 and "filter: column 4: found =" in refused.detail


def test_more_policies_than_there_can_be_are_forbidden(client):
    policies = "".join(
        f"<AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>k{n}</KeyName></AuthorizationRule>"
        for n in range(13)
    )
    refused = client.create("/orders", queue(f"<AuthorizationRules>{policies}</AuthorizationRules>"))
    assert refused.status == 403 and "There are 13 shared-access policies; at most 12" in refused.detail
    assert client.get("/orders").status == 404  # nothing was created


def test_tokens_must_be_valid_and_have_the_right_manage(client, make_client, namespace):
    assert client.send("GET", "/orders", headers={"Authorization": ""}).status == 401
    listens = make_client(shared_access.create_policy(namespace, "listens", listen=True, send=True))
    refused = listens.get("/$Resources/queues")
    assert refused.status == 401 and refused.detail.startswith("SubCode=40105")
    expired = client.get("/orders", {"Authorization": client.token(seconds=-5)})
    assert expired.status == 401 and expired.detail.startswith("SubCode=40106")
    elsewhere = client.get("/orders", {"Authorization": client.token("/other")})
    assert elsewhere.status == 401 and elsewhere.detail.startswith("SubCode=40104")
    below = client.create("/Orders/x", queue(), {"Authorization": client.token("/orders")})
    assert below.status == 201  # a token is for what is below it, in any case


def test_a_protected_entity_is_not_deleted(client, namespace):
    client.create("/orders", queue())
    protection.set_protected(EntityAddress(namespace, "orders"), True)
    refused = client.delete("/orders")
    assert refused.status == 403 and refused.detail.startswith("SubCode=40301.")  # no client tries again
    assert "is protected from deletion" in refused.detail


# Documents (7.3 to 7.6)


@pytest.mark.parametrize("kind", ORDER)
def test_all_elements_are_answered_in_the_order_of_the_service(client, kind):
    client.create("/t", topic())
    path, body = {"queue": ("/q", queue), "topic": ("/x", topic), "subscription": ("/t/Subscriptions/s", subscription)}[kind]
    forwards = (
        "" if kind == "topic" else "<ForwardTo>t</ForwardTo><ForwardDeadLetteredMessagesTo>t</ForwardDeadLetteredMessagesTo>"
    )
    client.create(path, body(f"<UserMetadata>x</UserMetadata>{forwards}"))
    assert client.get(f"{path}?api-version=2024-05").names == ORDER[kind].split()
    older = [name for name in ORDER[kind].split() if name not in ("SqlFilterCount", "CorrelationFilterCount")]
    assert client.get(f"{path}?api-version=2021-05").names == client.get(path).names == older


def test_elements_come_in_any_order_and_unknown_or_read_only_ones_are_ignored(client):
    given = (
        "<Later>x</Later><MaxDeliveryCount>4</MaxDeliveryCount><SizeInBytes>99</SizeInBytes><CreatedAt>yesterday</CreatedAt>"
        '<LockDuration>PT9S</LockDuration><o:MaxDeliveryCount xmlns:o="urn:other">7</o:MaxDeliveryCount>'
        '<UserMetadata i:nil="true">gone</UserMetadata>'
    )
    reply = client.create("/orders", queue(given))
    assert reply.values("MaxDeliveryCount LockDuration SizeInBytes UserMetadata") == ["4", "PT9S", "0", None]


def test_what_was_read_can_be_written_back(client):
    client.create("/orders", queue("<UserMetadata>a &amp; b</UserMetadata><EnableExpress>true</EnableExpress>"))
    read = client.get("/orders")
    again = client.update("/orders", read.body)
    changing = {"UpdatedAt", "AccessedAt"}
    assert again.status == 200
    for name in read.names:
        assert again.text(name) == read.text(name) or name in changing, name


@pytest.mark.parametrize("text", [FOREVER, "P10675199DT2H48M5.477539S", "P99999999D"])
def test_a_duration_of_ages_is_unlimited(client, text):
    given = f"<DefaultMessageTimeToLive>{text}</DefaultMessageTimeToLive><AutoDeleteOnIdle>{text}</AutoDeleteOnIdle>"
    reply = client.create("/orders", queue(given))
    assert reply.values("DefaultMessageTimeToLive AutoDeleteOnIdle") == [FOREVER, FOREVER]


def test_counts_size_and_use_are_true(client, namespace):
    client.create("/orders", queue())
    assert client.get("/orders").text("AccessedAt") == "0001-01-01T00:00:00Z"
    address = EntityAddress(namespace, "orders")
    later = entities.get_queue(address).created_at + timedelta(hours=1)
    service_bus.send(address, [Message(b"x" * 1000) for _ in range(5)] + [Message(b"s", scheduled_enqueue_at=later)])
    first, second, third = service_bus.receive(address, 3)
    service_bus.dead_letter(address, [first.lock_token])
    service_bus.defer(address, [second.lock_token])
    read = client.get("/orders")
    details = {child.tag.rpartition("}")[2]: child.text for child in read.description.find("s:CountDetails", NAMES)}
    assert details == {
        "ActiveMessageCount": "4",  # with one that is locked, and one that is deferred
        "DeadLetterMessageCount": "1",
        "ScheduledMessageCount": "1",
        "TransferMessageCount": "0",
        "TransferDeadLetterMessageCount": "0",
    }
    assert read.text("MessageCount") == "6" and 5000 < int(read.text("SizeInBytes")) < 7000
    assert read.text("AccessedAt") > read.text("CreatedAt")


@pytest.mark.parametrize("body", [queue(), topic()], ids=["queue", "topic"])
def test_a_send_just_after_the_creation_is_a_use(client, namespace, body):
    """Activity is recorded at most every 20 s, but the creation is no use."""
    client.create("/orders", body)
    service_bus.send(EntityAddress(namespace, "orders"), [Message(b"x")])
    read = client.get("/orders")
    assert read.text("AccessedAt") > read.text("CreatedAt")


def test_a_topic_counts_its_subscriptions_filters_and_bytes(client, namespace):
    client.create("/news", topic())
    for name in ("a", "b"):
        client.create(f"/news/Subscriptions/{name}", subscription())
    correlation = '<Filter i:type="CorrelationFilter"><Label>x</Label></Filter>'
    client.create("/news/Subscriptions/a/Rules/c", rule(correlation))
    service_bus.send(EntityAddress(namespace, "news"), [Message(b"x" * 1000)])
    read = client.get("/news?api-version=2024-05")
    assert read.values("SubscriptionCount SqlFilterCount CorrelationFilterCount") == ["2", "2", "1"]
    assert int(read.text("SizeInBytes")) > 2000
    assert client.get("/news?api-version=2021-05").values("SubscriptionCount SqlFilterCount") == ["2", None]
    assert client.get("/news/Subscriptions/a").text("MessageCount") == "1"


def test_forwards_are_stored_as_paths_and_returned_as_uris(client, namespace):
    client.create("/a/dead", queue())
    client.create("/orders", queue("<ForwardDeadLetteredMessagesTo>sb://x:1/A%2Fdead</ForwardDeadLetteredMessagesTo>"))
    settings = entities.get_queue(EntityAddress(namespace, "orders")).settings
    assert settings.forward_dead_lettered_messages_to == "a/dead"
    assert client.get("/orders").text("ForwardDeadLetteredMessagesTo") == f"sb://{client.base.partition('//')[2]}/a/dead"


# Shared-access policies


def policy(name: str, *rights: str, keys: str = "") -> str:
    listed = "".join(f"<AccessRights>{right}</AccessRights>" for right in rights)
    return (
        f'<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>'
        f"<ClaimValue>None</ClaimValue><Rights>{listed}</Rights><KeyName>{name}</KeyName>{keys}</AuthorizationRule>"
    )


def test_authorization_rules_are_the_policies_of_the_entity(client, namespace):
    keys = f"<PrimaryKey>{'p' * 44}</PrimaryKey><SecondaryKey>{'s' * 44}</SecondaryKey>"
    given = policy("reads", "Listen", keys=keys) + policy("all", "Manage", "Send", "Listen")
    created = client.create("/orders", queue(f"<AuthorizationRules>{given}</AuthorizationRules>"))
    address = EntityAddress(namespace, "orders")
    reads, everything = shared_access.list_policies(address)
    assert (reads.name, reads.keys, reads.listen, reads.send) == ("reads", ("p" * 44, "s" * 44), True, False)
    assert (everything.manage, len(everything.primary_key)) == (True, 44)
    read = [
        [found.findtext(f"s:{name}", namespaces=NAMES) for name in ("KeyName", "PrimaryKey", "SecondaryKey")]
        for found in created.description.find("s:AuthorizationRules", NAMES)
    ]
    assert read == [["reads", *reads.keys], ["all", *everything.keys]]
    kept = client.update("/orders", queue())  # without the element, no key is revoked
    assert [policy.keys for policy in shared_access.list_policies(address)] == [reads.keys, everything.keys]
    replaced = policy("ALL", "Send") + policy("new", "Listen")
    assert kept.status == client.update("/orders", queue(f"<AuthorizationRules>{replaced}</AuthorizationRules>")).status == 200
    left = shared_access.list_policies(address)
    assert [(each.name, each.send, each.manage) for each in left] == [("all", True, False), ("new", False, False)]
    assert left[0].keys == everything.keys
    client.update("/orders", queue("<AuthorizationRules />"))
    assert shared_access.list_policies(address) == []


def test_a_policy_of_an_entity_manages_only_that(client, make_client, namespace):
    client.create("/orders", queue())
    client.create("/other", queue())
    own = make_client(shared_access.create_policy(EntityAddress(namespace, "orders"), "own", manage=True))
    assert own.update("/orders", queue("<MaxDeliveryCount>3</MaxDeliveryCount>")).status == 200
    for path in ("/other", "/$Resources/queues", "/$namespaceinfo"):
        assert own.get(path).status == 401
    refused = own.update("/orders", queue("<ForwardTo>other</ForwardTo>"))
    client.update("/orders", queue("<ForwardTo>other</ForwardTo>"))
    kept = own.update("/orders", own.get("/orders").body, {"ServiceBusSupplementaryAuthorization": own.token("/other")})
    assert (kept.status, kept.text("ForwardTo")) == (200, f"sb://{client.base.partition('//')[2]}/other")  # it was there
    assert own.update("/orders", queue()).status == 200
    assert refused.status == 401 and refused.detail.startswith("SubCode=40105")
    other = make_client(shared_access.create_policy(EntityAddress(namespace, "other"), "sends", send=True))
    allowed = {"ServiceBusSupplementaryAuthorization": other.token("/other")}
    assert own.update("/orders", queue("<ForwardTo>other</ForwardTo>"), allowed).status == 200
    assert own.delete("/orders").status == 200


def test_a_supplementary_token_that_is_sent_must_be_valid(client, make_client, namespace):
    client.create("/other", queue())
    listens = make_client(shared_access.create_policy(EntityAddress(namespace, "other"), "listens", listen=True))
    for token in (listens.token("/other"), client.token("/elsewhere"), client.token(seconds=-5), "Bearer x"):
        headers = {"ServiceBusDlqSupplementaryAuthorization": token}
        given = "<ForwardDeadLetteredMessagesTo>other</ForwardDeadLetteredMessagesTo>"
        refused = client.create("/orders", queue(given), headers)
        assert refused.status == 401
        named = "ServiceBusDlqSupplementaryAuthorization, for ForwardDeadLetteredMessagesTo: "
        assert named in refused.detail or "does not have the right SEND" in refused.detail
    headers = {"ServiceBusDlqSupplementaryAuthorization": client.token("/other")}
    assert client.create("/orders", queue(given), headers).status == 201


# Filters and actions (7.5)


@pytest.fixture
def rules(client):
    """The path of the rules of a subscription."""
    client.create("/news", topic())
    client.create("/news/Subscriptions/all", subscription())
    return "/news/Subscriptions/all/Rules"


VALUES = {
    "int": "5",
    "long": "5",
    "double": "1.5",
    "string": " as & is ",
    "boolean": "true",
    "dateTime": "2026-11-30T01:02:03.0000000Z",
    "duration": "P1DT2H",
}


def pairs(prefix: str = "x") -> str:
    return "".join(
        f'<KeyValueOfstringanyType><Key>@{kind}</Key><Value i:type="{prefix}:{kind}">{text.replace("&", "&amp;")}</Value>'
        "</KeyValueOfstringanyType>"
        for kind, text in VALUES.items()
    )


def typed(parent) -> dict[str, tuple[str, str]]:
    """The values in an element by their keys, with their types."""
    return {
        pair.findtext("s:Key", namespaces=NAMES): (
            pair.find("s:Value", NAMES).get(TYPE),
            pair.findtext("s:Value", namespaces=NAMES),
        )
        for pair in parent
    }


TYPED = {f"@{kind}": (f"d6p1:{kind}", text) for kind, text in VALUES.items()}


@pytest.mark.parametrize("kind", ["TrueFilter", "FalseFilter"])
def test_true_and_false_filters(client, rules, kind):
    reply = client.create(f"{rules}/r", rule(f'<Filter i:type="{kind}" />'))
    found = reply.description.find("s:Filter", NAMES)
    assert found.get(TYPE) == kind
    assert found.findtext("s:SqlExpression", namespaces=NAMES) == ("1=1" if kind == "TrueFilter" else "1=0")
    assert found.findtext("s:CompatibilityLevel", namespaces=NAMES) == "20"


def test_an_sql_filter_with_typed_parameters(client, rules):
    expression = "a IN (@int, @long) OR b = @double OR c = @string OR d = @boolean OR e = @dateTime OR f = @duration"
    given = f'<Filter i:type="SqlFilter"><SqlExpression>{expression}</SqlExpression><Parameters>{pairs()}</Parameters></Filter>'
    reply = client.create(f"{rules}/r", rule(given))
    found = reply.description.find("s:Filter", NAMES)
    assert (found.get(TYPE), found.findtext("s:SqlExpression", namespaces=NAMES)) == ("SqlFilter", expression)
    assert typed(found.find("s:Parameters", NAMES)) == TYPED


def test_a_correlation_filter_with_typed_properties(client, rules):
    fields = ["CorrelationId", "MessageId", "To", "ReplyTo", "Label", "SessionId", "ReplyToSessionId", "ContentType"]
    given = "".join(f"<{name}>{name.lower()}</{name}>" for name in reversed(fields))
    reply = client.create(
        f"{rules}/r", rule(f'<Filter i:type="CorrelationFilter"><Properties>{pairs()}</Properties>{given}</Filter>')
    )
    found = reply.description.find("s:Filter", NAMES)
    assert [child.tag.rpartition("}")[2] for child in found] == [*fields, "Properties"]
    assert [found.findtext(f"s:{name}", namespaces=NAMES) for name in fields] == [name.lower() for name in fields]
    assert typed(found.find("s:Properties", NAMES)) == TYPED


def test_an_sql_action_with_typed_parameters(client, rules):
    given = (
        f'<Action i:type="SqlRuleAction"><SqlExpression>SET a = @int</SqlExpression><Parameters>{pairs()}</Parameters></Action>'
    )
    reply = client.create(f"{rules}/r", rule(RULE + given))
    found = reply.description.find("s:Action", NAMES)
    assert (found.get(TYPE), found.findtext("s:SqlExpression", namespaces=NAMES)) == ("SqlRuleAction", "SET a = @int")
    assert typed(found.find("s:Parameters", NAMES)) == TYPED


@pytest.mark.parametrize("given", ["", '<Action i:type="EmptyRuleAction" />', "<Action />"])
def test_no_action(client, rules, given):
    reply = client.create(f"{rules}/r", rule(RULE + given))
    assert reply.description.find("s:Action", NAMES).get(TYPE) == "EmptyRuleAction"


def test_javascript_s_prefixes_and_types(client, rules):
    """A filter as its client writes it."""
    value = (
        '<Value p4:type="l28:double" xmlns:l28="http://www.w3.org/2001/XMLSchema">5</Value>'
        "</KeyValueOfstringanyType></Parameters>"
    )
    given = (
        '<Filter p4:type="SqlFilter" xmlns:p4="http://www.w3.org/2001/XMLSchema-instance"><SqlExpression>a = @x</SqlExpression>'
        f"<Parameters><KeyValueOfstringanyType><Key>@x</Key>{value}</Filter>"
    )
    found = client.create(f"{rules}/r", rule(given)).description.find("s:Filter", NAMES)
    assert typed(found.find("s:Parameters", NAMES)) == {"@x": ("d6p1:double", "5.0")}


@pytest.mark.parametrize("name", ["50%", "a b", "ü", "x.y~z", "$Default2", "a&b", "<c>"])
def test_names_of_rules(client, rules, name):
    path = f"{rules}/{quote(name, safe='')}"
    assert client.create(path, rule(RULE)).status == 201
    assert client.get(path).root.findtext("a:title", namespaces=NAMES) == name
    assert name in client.get(rules).titles
    assert client.delete(path).status == 200


def test_the_namespaces_of_elements_count_and_not_their_prefixes(client):
    body = queue("<MaxDeliveryCount>4</MaxDeliveryCount>").replace(b"<entry", b'<n:entry xmlns:n="http://www.w3.org/2005/Atom"')
    body = body.replace(b"</entry>", b"</n:entry>")
    assert client.create("/orders", body).text("MaxDeliveryCount") == "4"
    refused = client.create("/other", entry("QueueDescription").replace(b"servicebus/connect", b"servicebus/other"))
    assert refused.status == 400 and "line 1, column" in refused.detail


# The other API at the same port


def test_requests_for_messages_reach_the_api_for_messages(client, namespace):
    client.create("/orders", queue())
    assert client.send("POST", "/orders/messages", b"hello").status == 201
    locked = client.send("POST", "/orders/messages/head?timeout=0")
    assert (locked.status, locked.body) == (201, b"hello")
    location = locked.headers["location"].removeprefix(client.base)
    assert client.send("PUT", location).status == 200  # unlocked, and no queue was created
    assert client.send("DELETE", "/orders/messages/head?timeout=0").status == 200
    assert client.get("/$Resources/queues").titles == ["orders"]
    assert client.send("GET", "/health").body.startswith(b'{"status":"healthy"')


def test_a_queue_may_be_called_messages(client):
    for path in ("/messages", "/a/messages"):
        assert client.create(path, queue()).status == 201
        assert client.send("POST", f"{path}/messages", b"x").status == 201
        assert client.get(path).text("MessageCount") == "1"
        assert client.delete(path).status == 200


LOCK = "messages/1/1d2a8a3c-96ff-4b1e-9a0b-6a1f5d6f8f10"


@pytest.mark.parametrize("path", ["/a/messages/head", "/A/Messages%2FHead", "/health", "/Health"])
def test_no_entity_is_created_at_paths_that_mean_something_else(client, path):
    refused = client.create(path, queue())
    assert refused.status == 400 and "must not be /health or end in /messages/head" in refused.detail
    assert client.get("/$Resources/queues").titles == []


@pytest.mark.parametrize(
    "path", [f"/a/{LOCK}", f"/a%2F{LOCK}", f"/a/{LOCK.replace('/', '%2F')}", f"/a/{LOCK.replace('/', '%2f', 1)}"]
)
def test_no_entity_is_created_at_the_path_of_a_lock(client, path):
    refused = client.create(path, queue())
    assert refused.status in (404, 410)  # of the API for messages: there is no such lock
    assert client.get("/$Resources/queues").titles == []


def test_no_rule_is_created_at_the_path_of_a_lock(client):
    client.create("/news", topic())
    client.create("/news/Subscriptions/messages", subscription())
    path = f"/news/Subscriptions/messages%2FRules%2F{LOCK.rpartition('/')[2]}"
    assert client.create(path, rule(RULE)).status in (404, 410)
    assert client.get("/news/Subscriptions/messages/Rules").titles == ["$Default"]


def test_requests_that_are_almost_for_messages_are_told_so(client, make_client, namespace):
    client.create("/orders", queue())
    listens = make_client(shared_access.create_policy(namespace, "listens", listen=True))
    for sent in (listens, client):
        for method in ("DELETE", "POST", "GET"):
            refused = sent.send(method, "/orders/messages/1/no-uuid")
            assert refused.status in (401, 404, 405) and "Requests for messages are POST .../messages" in refused.detail


@pytest.mark.parametrize("path", ["/t/Subscriptions/Rules/", "/a/Rules/", "/t/", "/t/Subscriptions/s/Rules/r/"])
def test_only_paths_of_lists_may_end_in_a_slash(client, path):
    client.create("/t", topic())
    for reply in (client.get(path), client.create(path, queue()), client.delete(path)):
        assert reply.status == 400 and "must not end in a slash" in reply.detail
    assert client.get("/t/Subscriptions/").titles == []


def test_a_head_is_answered_as_a_get_without_its_body(client):
    client.create("/orders", queue())
    assert (client.send("HEAD", "/orders").status, client.send("HEAD", "/none").status) == (200, 404)
    assert client.send("HEAD", "/orders").body == b""


def test_the_name_of_a_rule_is_that_of_its_path(client, rules):
    """JavaScript's client encodes neither: the name 50%25 reaches the path decoded, and the body as it is."""
    assert client.create(f"{rules}/50%25", rule(f"{RULE}<Name>50%25</Name>")).text("Name") == "50%"
    assert client.get(rules).titles == ["$Default", "50%"]


def test_a_rule_has_the_spelling_of_its_creation(client):
    client.create("/News", topic())
    client.create("/News/Subscriptions/All", subscription())
    client.create("/News/Subscriptions/All/Rules/Late", rule(RULE))
    read = client.get("/NEWS/subscriptions/ALL/rules/LATE")
    assert read.root.findtext("a:id", namespaces=NAMES) == f"{client.base}/News/Subscriptions/All/Rules/Late"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("<AuthorizationRule><Rights /><KeyName>app</KeyName></AuthorizationRule>", "Rights: of the policy 'app': "),
        (policy("app", "Send", keys="<PrimaryKey>short</PrimaryKey>"), "PrimaryKey: of the policy 'app': "),
        (policy("a b", "Send"), "KeyName: 'a b' must have"),
        (policy("app", "Send").replace("<AccessRights>", '<x xmlns="urn:x">').replace("</AccessRights>", "</x>"), "Rights: "),
    ],
)
def test_a_bad_authorization_rule_is_named(client, given, says):
    refused = client.create("/orders", queue(f"<AuthorizationRules>{given}</AuthorizationRules>"))
    assert refused.status == 400 and refused.detail.startswith(f"SubCode=40000. {says}")


def test_a_correlation_filter_without_conditions_is_refused_in_the_words_of_the_service(client, rules):
    refused = client.create(f"{rules}/r", rule('<Filter i:type="CorrelationFilter" />'))
    assert refused.status == 400 and "it needs at least one of CorrelationId, MessageId" in refused.detail
