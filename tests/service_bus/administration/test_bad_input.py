"""Bad input of the administration API as bytes on the port: the documented refusal, nothing changed, a connection that stays
usable, and others that are served meanwhile."""

from contextlib import suppress
from uuid import uuid4

import pytest

from broker_core import service_bus
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress, EntityKind
from broker_core.service_bus import entities
from broker_core.service_bus.administration.elements import SERVICE_BUS
from broker_core.service_bus.administration.request import MOST_BODY_BYTES
from broker_core.service_bus.entities import shared_access
from tests.at_once import at_once
from tests.wire.http_connection import request_bytes

from .client import entry, queue, rule, subscription, topic
from .connection import (
    DLQ_SUPPLEMENTARY,
    SUPPLEMENTARY,
    UPDATE,
    Connection,
    authorization_rule,
    authorization_rules,
    pair,
    refused,
    sql_filter,
)

SUBSCRIPTION, RULE = "/news/Subscriptions/all", "/news/Subscriptions/all/Rules/only-rain"
ATOM_ENTRY = b"<entry xmlns='http://www.w3.org/2005/Atom'>%s</entry>"
RAIN = rule(sql_filter("colour = 'grey'"))
FIVE = '<Value i:type="x:int">5</Value>'
ROUNDS = 8  # of each race
BAD, TOO_MUCH, NOT_FOUND = (400, 40000), (403, 40300), (404, 40400)


@pytest.fixture
def key(namespace):
    return shared_access.get_policy(namespace, shared_access.ROOT_POLICY).primary_key


@pytest.fixture
def several(listener, key):
    """Connections with one key."""
    connected = [Connection(listener.port("SERVICE_BUS_PORT"), key) for _ in range(6)]
    yield connected
    for each in connected:
        each.close()


@pytest.fixture
def connection(several):
    return several[0]


@pytest.fixture
def second(several):
    return several[1]


@pytest.fixture
def made(connection):
    """Two queues, a topic, a subscription and a rule."""
    for path, body in (
        ("/orders", queue("<MaxDeliveryCount>7</MaxDeliveryCount>")),
        ("/other", queue()),
        ("/news", topic()),
        (SUBSCRIPTION, subscription()),
        (RULE, RAIN),
    ):
        assert connection.request("PUT", path, body).status == 201


@pytest.fixture
def attack(connection, second, namespace, made):
    """attack(method, target, ...): a request on a connection. Before its answer is read, another connection is served. After the
    test, the connection serves a valid request, and nothing was changed."""
    before = state(namespace)

    def attack(method, target, body=b"", headers=(), *, token=None):
        sent = connection.headers(method, body, headers, token=token)
        connection.send_bytes(request_bytes(method, target, sent, body))
        assert second.request("GET", "/orders").status == 200
        return connection.read(method)

    yield attack
    assert connection.request("GET", "/orders").element["MaxDeliveryCount"] == "7"
    assert state(namespace) == before


def state(namespace):
    """All entities with their settings, policies and rules."""
    news = EntityAddress(namespace, "news")
    found = [
        entities.describe_entities(namespace, kind, news if kind is EntityKind.SUBSCRIPTION else None, max_count=100)
        for kind in (EntityKind.QUEUE, EntityKind.TOPIC, EntityKind.SUBSCRIPTION)
    ]
    return found, entities.list_rules(news.subscription("all"))


def exists(namespace, path):
    with suppress(EntityNotFound):
        return entities.get_entity(EntityAddress(namespace, path))


# Documents


NO_ENTRIES = [
    (b"", "line 1"),
    (b"{}", "line 1, column 1"),
    (b"\x00", "line 1"),
    (queue("<UserMetadata>\x00</UserMetadata>"), "line 1"),
    (queue("<UserMetadata>&#0;</UserMetadata>"), "line 1"),
    (queue("<UserMetadata>"), "mismatched tag"),
    (queue() + b"<a/>", "junk after document element"),
    (queue().decode().encode("utf-16"), "it is in UTF-16; it must be in UTF-8"),
    (queue().decode().encode("utf-16-be"), "it is in UTF-16; it must be in UTF-8"),
    (b"<?xml version='1.0' encoding='utf-16'?>" + queue(), "must be UTF-8"),
    (queue("<UserMetadata>\u00e4</UserMetadata>").decode().encode("latin-1"), "not well-formed"),
    (b"<!DOCTYPE a [<!ENTITY a 'aaaaaaaaaa'>]>" + queue("<UserMetadata>&a;</UserMetadata>"), "DOCTYPE"),
    (b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'>" + queue(), "DOCTYPE"),
    (b"<a>" * 80_000, "elements are nested more than 32 deep"),
    (queue("<a/>" * 50_000), "it has more than 10,000 elements"),
    (b"<feed xmlns='http://www.w3.org/2005/Atom' />", "the root must be an element entry"),
    (b"<entry />", "the root must be an element entry"),
    (b"<entry xmlns='http://www.w3.org/2005/Atom' />", "it must have one element content"),
    (ATOM_ENTRY % b"<content />", "it must have one element content"),
    (ATOM_ENTRY % b"<content><a/><b/></content>", "it must have one element content"),
    (ATOM_ENTRY % b"<content /><content />", "it must have one element content"),
    (
        ATOM_ENTRY % b"<content><QueueDescription xmlns='' /></content>",
        f"QueueDescription or TopicDescription of the namespace {SERVICE_BUS}",
    ),
]


def test_a_body_that_is_no_entry_is_refused_with_its_place(attack):
    for body, problem in NO_ENTRIES:
        for target, headers in (("/new", ()), ("/orders", UPDATE)):
            said = refused(attack("PUT", target, body, headers), *BAD)
            assert problem in said and ", column " in said


@pytest.mark.parametrize(
    ("target", "name", "expected"),
    [
        ("/new", "SubscriptionDescription", "QueueDescription or TopicDescription"),
        ("/new", "RuleDescription", "QueueDescription or TopicDescription"),
        ("/new", "NamespaceInfo", "QueueDescription or TopicDescription"),
        ("/news/Subscriptions/new", "QueueDescription", "SubscriptionDescription"),
        ("/news/Subscriptions/new", "TopicDescription", "SubscriptionDescription"),
        ("/news/Subscriptions/all/Rules/new", "QueueDescription", "RuleDescription"),
    ],
)
def test_a_body_of_another_kind_of_entity_is_refused(attack, target, name, expected):
    said = refused(attack("PUT", target, entry(name)), *BAD)
    assert f"{name} cannot be at this path; it must be {expected} of the namespace" in said and ", column " in said


@pytest.mark.parametrize(("target", "body"), [("/orders", topic()), ("/news", queue())])
def test_an_entity_is_not_changed_into_one_of_another_kind(attack, target, body):
    refused(attack("PUT", target, body), 409, 40900)
    assert "is a" in refused(attack("PUT", target, body, UPDATE), *BAD)


def test_a_body_over_256_kib_is_refused(attack):
    """What is far beyond the limit is discarded, and the connection stays."""
    levels = b"<a>" * 100_000 + b"</a>" * 100_000
    for body in (queue().ljust(MOST_BODY_BYTES + 1), levels, b" " * 4 * 2**20):
        assert "exceeds 262,144 bytes" in refused(attack("PUT", "/new", body), 413, 41300)


def test_a_body_of_256_kib_is_read(connection):
    assert connection.request("PUT", "/new", queue().ljust(MOST_BODY_BYTES)).status == 201


def test_a_chunked_body_has_the_same_limit(connection, made):
    def chunked(body):
        parts = [body[at : at + 4096] for at in range(0, len(body), 4096)]
        encoded = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        headers = [*connection.headers("GET"), ("Transfer-Encoding", "chunked")]
        return connection.send("PUT", "/chunked", headers, encoded)

    refused(chunked(queue().ljust(MOST_BODY_BYTES + 1)), 413, 41300)
    refused(chunked(b"<a>" * 50_000), *BAD)
    assert chunked(queue()).status == 201


def test_a_body_that_ends_early_changes_nothing(connection, second, namespace, made):
    headers = [*connection.headers("GET", headers=UPDATE), ("Content-Length", "10000")]
    connection.send_bytes(request_bytes("PUT", "/orders", headers, queue()))
    connection.close()
    assert second.request("GET", "/orders").element["MaxDeliveryCount"] == "7"


def test_unknown_elements_and_those_of_other_namespaces_are_ignored(connection):
    inner = (
        "<Unknown><MaxDeliveryCount>3</MaxDeliveryCount></Unknown><SizeInBytes>x</SizeInBytes><CountDetails>y</CountDetails>"
        "<MaxDeliveryCount xmlns='urn:other'>x</MaxDeliveryCount><MaxDeliveryCount xmlns=''>x</MaxDeliveryCount>"
        "<LockDuration>PT30S</LockDuration>text<Unknown /><CountDetails />"
    )
    created = connection.request("PUT", "/new", queue(inner))
    assert created.status == 201
    assert (created.element["MaxDeliveryCount"], created.element["LockDuration"]) == ("10", "PT30S")


def test_an_element_that_is_nil_is_not_given(connection):
    nil = "".join(
        f'<{name} i:nil="true" />'
        for name in ("LockDuration", "MaxDeliveryCount", "ForwardTo", "Status", "AuthorizationRules", "EnableExpress")
    )
    created = connection.request("PUT", "/new", queue(nil)).element
    assert (created["LockDuration"], created["MaxDeliveryCount"], created["Status"]) == ("PT1M", "10", "Active")


@pytest.mark.parametrize(
    ("target", "body", "name"),
    [
        ("/new", queue("<LockDuration>PT30S</LockDuration>" * 2), "LockDuration"),
        ("/new", queue("<Status>Active</Status><Status>Disabled</Status>"), "Status"),
        ("/new", queue(authorization_rules(authorization_rule()) * 2), "AuthorizationRules"),
        (RULE, rule(sql_filter("1=1") * 2), "Filter"),
        (RULE, rule(sql_filter("1=1</SqlExpression><SqlExpression>1=0")), "SqlExpression"),
        (RULE, rule(sql_filter("1=1") + "<Name>a</Name><Name>b</Name>"), "Name"),
    ],
)
def test_an_element_that_is_given_twice_is_refused(attack, target, body, name):
    assert f"{name} is given twice" in refused(attack("PUT", target, body, UPDATE if target == RULE else ()), *BAD)


# Settings


NO_SETTINGS = [
    ("<LockDuration>P1000000000D</LockDuration>", "LockDuration: never is out of range; allowed: 5 s to 5 min"),
    ("<LockDuration>PT4S</LockDuration>", "LockDuration: 4 s is out of range; allowed: 5 s to 5 min"),
    ("<LockDuration>-PT1M</LockDuration>", "LockDuration: -1 min is out of range"),
    ("<LockDuration>-P1000000000D</LockDuration>", "LockDuration: '-P1000000000D' is out of range"),
    ("<LockDuration>1 minute</LockDuration>", "must be an ISO 8601 duration such as PT1M30S or P14D"),
    ("<LockDuration>P1Y</LockDuration>", "must be an ISO 8601 duration"),
    ("<LockDuration />", "must be an ISO 8601 duration"),
    (f"<LockDuration>PT{'9' * 5000}S</LockDuration>", "LockDuration: never is out of range"),
    ("<AutoDeleteOnIdle>PT1M</AutoDeleteOnIdle>", "AutoDeleteOnIdle: 1 min is out of range; allowed: at least 5 min"),
    ("<DefaultMessageTimeToLive>PT0S</DefaultMessageTimeToLive>", "DefaultMessageTimeToLive: 0 ms is out of range"),
    ("<MaxDeliveryCount>0</MaxDeliveryCount>", "MaxDeliveryCount: 0 is out of range; allowed: 1 to"),
    ("<MaxDeliveryCount>1.5</MaxDeliveryCount>", "MaxDeliveryCount: '1.5' must be a whole number"),
    ("<MaxDeliveryCount>\uff17</MaxDeliveryCount>", "MaxDeliveryCount: '\uff17' must be a whole number"),
    (f"<MaxDeliveryCount>{'9' * 5000}</MaxDeliveryCount>", "must be a whole number"),
    ("<MaxDeliveryCount>2147483648</MaxDeliveryCount>", "MaxDeliveryCount: 2,147,483,648 is out of range"),
    ("<MaxSizeInMegabytes>1000</MaxSizeInMegabytes>", "MaxSizeInMegabytes: 1,000 is out of range"),
    ("<RequiresSession>yes</RequiresSession>", "RequiresSession: 'yes' must be true or false"),
    ("<EnableExpress>2</EnableExpress>", "EnableExpress: '2' must be true or false"),
    (
        "<EntityAvailabilityStatus>Gone</EntityAvailabilityStatus>",
        "EntityAvailabilityStatus: 'Gone' must be one of Available",
    ),
    ("<Status>Paused</Status>", "Status: 'Paused' must be one of Active"),
    (f"<UserMetadata>{'x' * 1025}</UserMetadata>", "UserMetadata: has 1,025 characters; at most 1,024 are allowed"),
    ("<ForwardTo>sb://host</ForwardTo>", "ForwardTo: 'sb://host' must be the URI of a queue or topic"),
    ("<ForwardTo>sb://[host/q</ForwardTo>", "ForwardTo: 'sb://[host/q' must be the URI of a queue or topic"),
    ("<ForwardTo>sb://host/a%FF</ForwardTo>", "ForwardTo: 'sb://host/a%FF' must be the URI of a queue or topic"),
    ("<ForwardTo>sb://host/a%00</ForwardTo>", "ForwardTo: must be the path of a queue or topic"),
    ("<ForwardTo>../other</ForwardTo>", "ForwardTo: must be the path of a queue or topic"),
    ("<ForwardTo>missing</ForwardTo>", "ForwardTo"),
    ("<ForwardTo>news/Subscriptions/all</ForwardTo>", "ForwardTo: must be the path of a queue or topic"),
    ("<ForwardDeadLetteredMessagesTo>missing</ForwardDeadLetteredMessagesTo>", "ForwardDeadLetteredMessagesTo"),
]


def test_a_setting_that_is_none_is_refused_by_its_name(attack):
    for inner, problem in NO_SETTINGS:
        for target, headers in (("/new", ()), ("/orders", UPDATE)):
            assert problem in refused(attack("PUT", target, queue(inner), headers), *BAD)


def test_an_error_repeats_little_of_a_long_text(attack):
    long = "x" * 200_000
    for target, body in (
        ("/new", queue(f"<LockDuration>{long}</LockDuration>")),
        ("/new", queue(f"<LockDuration>-P{'9' * 200_000}D</LockDuration>")),
        ("/new", queue(f"<Status>{long}</Status>")),
        ("/new", queue(f"<RequiresSession>{long}</RequiresSession>")),
        ("/new", queue(f"<ForwardTo>{long}</ForwardTo>")),
        ("/new", queue(authorization_rules(authorization_rule(long)))),
        ("/new", queue(authorization_rules(authorization_rule(keys=f"<PrimaryKey>{long}</PrimaryKey>")))),
        ("/new", queue(authorization_rules(authorization_rule(rights=(long,))))),
        ("/new", entry(long[:100_000])),
        (RULE, rule(sql_filter(long))),
        (RULE, rule(sql_filter("a = 1", f"<Parameters>{pair(FIVE, f'-{long}')}</Parameters>"))),
        (RULE, rule(f'<Filter i:type="{long}" />')),
        (RULE, rule(f'<Filter i:type="CorrelationFilter"><Properties>{pair("<Value />", long)}</Properties></Filter>')),
    ):
        assert refused(attack("PUT", target, body, UPDATE if target == RULE else ()), *BAD)


def test_a_duration_of_a_billion_days_is_never(connection):
    inner = "".join(f"<{name}>P1000000000D</{name}>" for name in ("DefaultMessageTimeToLive", "AutoDeleteOnIdle"))
    created = connection.request("PUT", "/new", queue(inner)).element
    assert created["DefaultMessageTimeToLive"] == created["AutoDeleteOnIdle"] == "P10675199DT2H48M5.4775807S"


@pytest.mark.parametrize("name", ["RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning", "EnableExpress"])
def test_a_change_of_what_is_fixed_is_refused(attack, name):
    said = refused(attack("PUT", "/orders", queue(f"<{name}>true</{name}>"), UPDATE), *BAD)
    assert f"{name}: cannot be changed after creation; delete and recreate the queue" in said


# Filters, actions and typed values


NO_RULES = [
    ('<Filter i:type="NoFilter" />', "Filter has the i:type 'NoFilter'; it must be one of SqlFilter, TrueFilter"),
    ("<Filter />", "Filter has no i:type; it must be one of SqlFilter"),
    ('<Filter type="SqlFilter" />', "Filter has no i:type"),
    ('<Filter i:type="SqlFilter" />', "Filter has no element SqlExpression"),
    ('<Filter i:type="CorrelationFilter" />', "Filter has no conditions; it needs at least one of CorrelationId"),
    (sql_filter("colour = "), "column"),
    (sql_filter("colour = 'red"), "column"),
    (sql_filter(""), "column"),
    (sql_filter("(" * 30 + "a" + ")" * 30), "column"),
    (sql_filter("colour = 'grey' ; DROP TABLE x"), "column"),
    (sql_filter("a" * 1025), "1,024"),
    (sql_filter("colour = @missing"), "@missing"),
    (sql_filter("1=1") + '<Action i:type="Other" />', "Action has the i:type 'Other'; it must be SqlRuleAction or"),
    (sql_filter("1=1") + "<Action><SqlExpression>SET a=1</SqlExpression></Action>", "it must be SqlRuleAction or"),
    (sql_filter("1=1") + '<Action i:type="SqlRuleAction" />', "Action has no element SqlExpression"),
    (sql_filter("1=1") + '<Action i:type="SqlRuleAction"><SqlExpression>SET =</SqlExpression></Action>', "column"),
]


def test_a_rule_that_is_none_is_refused(attack):
    for inner, problem in NO_RULES:
        for target, headers in ((f"{RULE}-2", ()), (RULE, UPDATE)):
            assert problem in refused(attack("PUT", target, rule(inner), headers), *BAD)


NO_VALUES = [
    ("<Value>5</Value>", "Value has no i:type; it must be one of string, int"),
    ('<Value i:type="x:decimal">5</Value>', "Value has the i:type 'decimal'; it must be one of string, int"),
    ('<Value i:type="x:int">five</Value>', "'five' is no int"),
    ('<Value i:type="x:int">2147483648</Value>', "'2147483648' is no int"),
    ('<Value i:type="x:int">\u0663</Value>', "'\u0663' is no int"),
    ('<Value i:type="x:int" />', "'' is no int"),
    ('<Value i:type="x:long">9223372036854775808</Value>', "is no long"),
    ('<Value i:type="x:double">1_0</Value>', "'1_0' is no double"),
    ('<Value i:type="x:double">\uff11</Value>', "is no double"),
    ('<Value i:type="x:boolean">yes</Value>', "'yes' is no boolean"),
    ('<Value i:type="x:dateTime">yesterday</Value>', "'yesterday' is no dateTime"),
    ('<Value i:type="x:dateTime">0001-01-01T00:00:00+14:00</Value>', "is no dateTime"),
    ('<Value i:type="x:dateTime">9999-12-31T23:59:59-14:00</Value>', "is no dateTime"),
    ('<Value i:type="x:duration">1 day</Value>', "'1 day' is no duration"),
    ('<Value i:type="x:duration">P1000000000D</Value>', "'P1000000000D' is no duration"),
    ("", "KeyValueOfstringanyType needs an element Key and an element Value"),
]


def test_a_typed_value_that_is_none_is_refused_with_its_place(attack):
    for value, problem in NO_VALUES:
        filters = (
            sql_filter("colour = @k", f"<Parameters>{pair(value, '@k')}</Parameters>"),
            f'<Filter i:type="CorrelationFilter"><Properties>{pair(value)}</Properties></Filter>',
        )
        for written in filters:
            said = refused(attack("PUT", RULE, rule(written), UPDATE), *BAD)
            assert problem in said and "at line 1, column " in said


def test_a_key_that_is_given_twice_is_refused(attack):
    properties = pair('<Value i:type="x:int">1</Value>') * 2
    body = rule(f'<Filter i:type="CorrelationFilter"><Properties>{properties}</Properties></Filter>')
    assert "the key 'k' is given twice" in refused(attack("PUT", RULE, body, UPDATE), *BAD)


# Policies


RIGHTS_ELSEWHERE = authorization_rule().replace("<AccessRights>", "<AccessRights xmlns='urn:other'>")
NO_POLICIES = [
    (
        [authorization_rule(f"app-{number}") for number in range(13)],
        TOO_MUCH,
        "There are 13 shared-access policies; at most 12 are allowed",
    ),
    ([authorization_rule("app"), authorization_rule("APP")], BAD, "two are called 'APP'; names are case-insensitive"),
    ([authorization_rule(keys="<PrimaryKey>short</PrimaryKey>")], BAD, "a key must have 8 to 64 printable ASCII characters"),
    ([authorization_rule(keys="<SecondaryKey>with space</SecondaryKey>")], BAD, "a key must have 8 to 64"),
    ([authorization_rule(rights=())], BAD, "Rights: of the policy"),
    ([authorization_rule(rights=("Browse",))], BAD, "'Browse' is no right; they are Send, Listen, Manage"),
    ([authorization_rule("-")], BAD, "letters, digits and . - _"),
    ([authorization_rule(kind="Other")], BAD, "AuthorizationRule has the i:type 'Other'; only SharedAccess"),
    (["<Other />"], BAD, "Other must be AuthorizationRule"),
    ([RIGHTS_ELSEWHERE], BAD, "Rights: of the policy"),
    (["<AuthorizationRule />"], BAD, "AuthorizationRule needs an element KeyName and an element Rights"),
]


def test_authorization_rules_that_are_none_change_nothing(attack):
    """The entity is neither created nor changed without them."""
    for rules, answer, problem in NO_POLICIES:
        body = queue("<MaxDeliveryCount>9</MaxDeliveryCount>" + authorization_rules(*rules))
        for target, headers in (("/new", ()), ("/orders", UPDATE)):
            assert problem in refused(attack("PUT", target, body, headers), *answer)


# Paths


NO_PATHS = [
    *("/nothing/../orders", "/./orders", "//orders", "/orders//", "/orders/", "/nothing%2F..%2Forders", "/%2e%2e/orders"),
    *(
        "/orders%00",
        "/orders%0a",
        "/orders%20",
        "/orders%3F",
        "/orders%23",
        "/orders%FF",
        "/%ED%A0%80",
        "/orders%",
        "/or%zzders",
    ),
    *(
        "/orders;a=b",
        "/orders\\other",
        "/%EF%BD%8Frders",
        "/orders%252Fx",
        f"/{'x' * 10_000}",
        f"/{'%2e%2e%2f' * 1000}orders",
    ),
    *("/$Resources", "/$Resources/rules", "/$resources/queues/orders", "/", "*", "/$namespaceinfo/x"),
    *("/orders/$DeadLetterQueue", "/Subscriptions/all", "/news/Subscriptions//", "/news/Subscriptions/all/Rules/a/b"),
    *("/news/Subscriptions/all/orders", "/news/Subscriptions/%2e%2e", "/news%2FSubscriptions%2F%2F", "/news/Subscriptions/a%00"),
]


def test_a_path_never_leads_to_another_entity(attack):
    for path in NO_PATHS:
        for method in ("GET", "PUT", "DELETE"):
            reply = attack(method, path, queue() if method == "PUT" else b"")
            assert refused(reply, *(BAD if reply.status == 400 else NOT_FOUND))


@pytest.mark.parametrize("path", ["/a%2Fb", "/a/b"])
def test_an_encoded_slash_in_a_name_is_a_slash(connection, namespace, path):
    assert connection.request("PUT", path, queue()).status == 201
    assert connection.request("GET", "/a/b").status == connection.request("GET", "/a%2fb").status == 200
    assert exists(namespace, "a/b")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
def test_a_path_of_messages_is_no_entity(attack, namespace, method):
    """Requests there are for messages: what has such a path could not be deleted."""
    for path in (
        *("new/messages/head", "New/MESSAGES/Head", "new%2Fmessages%2Fhead"),
        *(f"new/messages/7/{uuid4()}", f"new/Messages/a%2Fb/{uuid4()}", f"new%2Fmessages%2F7%2F{uuid4().hex}"),
    ):
        reply = attack(method, f"/{path}", queue())
        assert reply.status in (400, 404, 405, 410) and reply.text("Detail"), reply
    assert not any(found.entity.address.path.startswith("new") for found in state(namespace)[0][0])


def test_a_rule_is_not_created_at_the_path_of_a_lock(attack, connection):
    assert connection.request("PUT", "/parts", topic()).status == 201
    assert connection.request("PUT", "/parts/Subscriptions/messages", subscription()).status == 201
    rules = "/parts/Subscriptions/messages/Rules"
    assert attack("PUT", f"{rules}%2F{uuid4()}", RAIN).status in (404, 410)  # of the API for messages: there is no such lock
    assert connection.request("GET", rules).titles == ["$Default"]
    assert connection.request("DELETE", "/parts").status == 200


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "TRACE", "MERGE"])
def test_other_methods_are_refused_with_those_that_are_allowed(attack, method):
    for target, allowed in (
        ("/orders", "GET, HEAD, PUT, DELETE"),
        (SUBSCRIPTION, "GET, HEAD, PUT, DELETE"),
        (RULE, "GET, HEAD, PUT, DELETE"),
        ("/$Resources/queues", "GET, HEAD"),
        ("/news/Subscriptions", "GET, HEAD"),
        ("/$namespaceinfo", "GET, HEAD"),
    ):
        reply = attack(method, target, queue())
        assert (reply.status, reply.headers["allow"]) == (405, allowed)
        assert f"{method} is not allowed here; use GET" in refused(reply, 405, 40500)


# Headers and parameters


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ([("If-Match", "*"), ("If-Match", "*")], "send 'If-Match: *' to update, or none to create"),
        ([("If-Match", "*"), ("If-None-Match", "*")], "send 'If-Match: *' to update, or none to create"),
        ([("If-Match", '"abc"')], "must be *: entities have no versions"),
        ([("If-Match", "")], "must be *: entities have no versions"),
        ([("If-None-Match", 'W/"abc"')], "must be *: entities have no versions"),
    ],
)
def test_conditions_that_say_nothing_are_refused(attack, headers, problem):
    for target, body in (("/orders", queue()), ("/new", queue()), (RULE, RAIN)):
        assert problem in refused(attack("PUT", target, body, headers), *BAD)


def test_if_none_match_creates(connection, made):
    headers = [("If-None-Match", "*")]
    assert connection.request("PUT", "/new", queue(), headers).status == 201
    refused(connection.request("PUT", "/new", queue(), headers), 409, 40900)


@pytest.mark.parametrize(
    ("target", "body"), [("/new", queue()), ("/news/Subscriptions/new", subscription()), (f"{RULE}-2", RAIN)]
)
def test_an_update_of_what_is_missing_creates_nothing(attack, target, body):
    refused(attack("PUT", target, body, UPDATE), *NOT_FOUND)


NO_PAGES = [
    ("$top=0", "$top", 1),
    ("$top=x", "$top", 1),
    ("$top=", "$top", 1),
    ("%24top=-1", "$top", 1),
    ("$top=1.0", "$top", 1),
    ("$top=%EF%BC%91", "$top", 1),
    (f"$top={'9' * 5000}", "$top", 1),
    ("$skip=-1", "$skip", 0),
    ("$skip=9999999999", "$skip", 0),
    ("$skip=1e2&$top=5", "$skip", 0),
]


def test_a_page_that_is_none_is_refused(attack):
    for query, name, least in NO_PAGES:
        for target in ("/$Resources/queues", "/$Resources/topics", "/news/Subscriptions", f"{SUBSCRIPTION}/Rules"):
            said = refused(attack("GET", f"{target}?{query}"), *BAD)
            assert said.startswith(f"{name}: ") and f"must be a whole number from {least} to 999999999" in said


def test_a_page_beyond_the_last_is_empty(connection, made):
    page = connection.request("GET", "/$Resources/queues?$skip=999999999&$top=999999999")
    assert (page.status, page.titles) == (200, [])


# Tokens


def test_a_token_that_does_not_permit_it_is_refused(attack, connection, namespace):
    listener, key = shared_access.create_policy(namespace, "listener", send=True, listen=True), connection.key
    other = shared_access.create_policy(EntityAddress(namespace, "other"), "root", manage=True).primary_key
    refusals = {
        "": (40100, "The request has no token. Send the header 'Authorization: SharedAccessSignature"),
        "Bearer abc": (40100, "Bearer tokens are not supported. Send the header"),
        "Basic YTpi": (40100, "The Authorization header starts with 'Basic'. Send the header"),
        "SharedAccessSignature sr=a&sig=b": (40100, "The token has no se, skn"),
        connection.token("/other"): (40104, "Create one for this address or its namespace"),
        connection.token("/orders-2"): (40104, "Create one for this address or its namespace"),
        connection.token(seconds=-1): (40106, "The token expired at"),
        connection.token(key="x" * 44): (40103, "Check the policy name, its key"),
        connection.token(policy="nobody"): (40103, "Check the policy name, its key"),
        connection.token(policy="root", key=other): (40103, "Check the policy name, its key"),
        connection.token(policy="listener", key=listener.primary_key): (40105, "does not have the right MANAGE"),
        connection.token().replace("127.0.0.1", "example.com"): (40103, "Check the policy name, its key"),
    }
    try:
        for token, (sub_code, problem) in refusals.items():
            for method, body, headers in (("GET", b"", ()), ("PUT", queue(), UPDATE), ("DELETE", b"", ())):
                reply = attack(method, "/orders", body, headers, token=token)
                assert problem in refused(reply, 401, sub_code)
                assert reply.headers["www-authenticate"] == "SharedAccessSignature"
                assert key not in reply.text("Detail")
    finally:
        shared_access.delete_policy(EntityAddress(namespace, "other"), "root")


def test_two_tokens_are_refused_though_one_is_valid(attack, connection):
    headers = [("Authorization", connection.token())]
    assert "has 2 Authorization headers. Send one" in refused(attack("DELETE", "/orders", headers=headers), 401, 40100)


@pytest.fixture
def keys(namespace, made):
    """The keys of policies of `other` by their names, which are their right."""
    other = EntityAddress(namespace, "other")
    made = [
        shared_access.create_policy(other, "send", send=True),
        shared_access.create_policy(other, "listen", listen=True),
        shared_access.create_policy(other, "manage", manage=True),
    ]
    return {policy.name: policy.primary_key for policy in made}


@pytest.mark.parametrize(
    ("element", "header"), [("ForwardTo", SUPPLEMENTARY), ("ForwardDeadLetteredMessagesTo", DLQ_SUPPLEMENTARY)]
)
def test_a_supplementary_token_must_let_send_to_the_destination(keys, attack, connection, element, header):
    body = queue(f"<{element}>sb://127.0.0.1:{connection.port}/other</{element}>")
    refusals = {
        connection.token("/other", policy="send", key="x" * 44): 40103,
        connection.token("/orders", policy="send", key=keys["send"]): 40104,
        connection.token("/other", policy="send", key=keys["send"], seconds=-1): 40106,
        connection.token("/other", policy="listen", key=keys["listen"]): 40105,
        "Bearer x": 40100,
        "": 40100,
    }
    for token, sub_code in refusals.items():
        for target, headers in (("/new", ()), ("/orders", UPDATE)):
            refused(attack("PUT", target, body, [*headers, (header, token)]), 401, sub_code)
    two = [(header, connection.token("/other", policy="send", key=keys["send"]))] * 2
    refused(attack("PUT", "/new", body, two), 401, 40100)


@pytest.mark.parametrize("policy", ["send", "manage"])
def test_a_supplementary_token_that_lets_send_is_accepted(keys, connection, policy):
    token = connection.token("/other", policy=policy, key=keys[policy])
    body = queue(f"<ForwardTo>sb://127.0.0.1:{connection.port}/other</ForwardTo>")
    created = connection.request("PUT", "/new", body, [(SUPPLEMENTARY, token)])
    assert created.status == 201 and created.element["ForwardTo"] == f"sb://127.0.0.1:{connection.port}/other"


def test_the_policy_of_an_entity_manages_nothing_else(keys, attack, connection):
    def token(path=""):
        return connection.token(path, policy="manage", key=keys["manage"])

    assert attack("GET", "/other", token=token()).status == attack("GET", "/OTHER", token=token("/other")).status == 200
    for method, target in (
        ("GET", "/orders"),
        ("PUT", "/new"),
        ("PUT", "/other-2"),
        ("PUT", "/other/below"),
        ("DELETE", "/orders"),
        ("GET", "/$Resources/queues"),
        ("GET", "/$Resources/topics"),
        ("GET", "/$namespaceinfo"),
        ("GET", "/news/Subscriptions"),
        ("PUT", "/news/Subscriptions/new"),
        ("GET", f"{SUBSCRIPTION}/Rules"),
        ("DELETE", RULE),
    ):
        assert "Check the policy name" in refused(attack(method, target, queue(), token=token()), 401, 40103)
    body = queue("<ForwardTo>orders</ForwardTo>")
    assert "does not have the right SEND" in refused(attack("PUT", "/other", body, UPDATE, token=token()), 401, 40105)
    body = queue("<ForwardDeadLetteredMessagesTo>orders</ForwardDeadLetteredMessagesTo>")
    assert "does not have the right SEND" in refused(attack("PUT", "/other", body, UPDATE, token=token()), 401, 40105)


def test_the_policy_of_an_entity_lets_it_forward_to_itself(keys, connection):
    token = connection.token(policy="manage", key=keys["manage"])
    assert connection.request("PUT", "/other", queue("<ForwardTo>other</ForwardTo>"), UPDATE, token=token).status == 200


# Races


def outcomes(replies):
    return sorted(reply.status for reply in replies)


def test_of_many_creates_one_creates(several, made):
    for number in range(ROUNDS):
        counts = range(1, len(several) + 1)
        bodies = [
            queue(f"<MaxDeliveryCount>{count}</MaxDeliveryCount>" + authorization_rules(authorization_rule())) for count in counts
        ]
        calls = [
            lambda each=each, body=body: each.request("PUT", f"/new-{number}", body)
            for each, body in zip(several, bodies, strict=True)
        ]
        found = at_once(*calls)
        assert outcomes(found) == [201] + [409] * (len(several) - 1)
        [created] = [reply for reply in found if reply.status == 201]
        assert several[0].request("GET", f"/new-{number}").body == created.body
        for reply in found:
            assert reply is created or refused(reply, 409, 40900)


def test_of_many_rules_of_a_name_one_is_created(several, made):
    for number in range(ROUNDS):
        found = at_once(*(lambda each=each: each.request("PUT", f"{RULE}-{number}", RAIN) for each in several))
        assert outcomes(found) == [201] + [409] * (len(several) - 1)


@pytest.mark.parametrize(
    ("target", "created", "changed"),
    [
        ("/racing", queue(), queue("<MaxDeliveryCount>3</MaxDeliveryCount>" + authorization_rules(authorization_rule()))),
        ("/news/Subscriptions/racing", subscription(), subscription("<MaxDeliveryCount>3</MaxDeliveryCount>")),
        (f"{RULE}-racing", RAIN, rule(sql_filter("1=0"))),
    ],
)
def test_an_update_against_a_delete(several, namespace, made, target, created, changed):
    first, second, *_ = several
    for _ in range(ROUNDS):
        assert first.request("PUT", target, created).status == 201
        updated, deleted = at_once(
            lambda: first.request("PUT", target, changed, UPDATE), lambda: second.request("DELETE", target)
        )
        assert updated.status == 200 or refused(updated, *NOT_FOUND)
        assert deleted.status == 200 and first.request("GET", target).status == 404


def test_an_update_of_a_subscription_against_a_delete_of_its_topic(several, made):
    first, second, *_ = several
    for _ in range(ROUNDS):
        assert first.request("PUT", "/racing", topic()).status == 201
        assert first.request("PUT", "/racing/Subscriptions/all", subscription()).status == 201
        updated, ruled, deleted = at_once(
            lambda: first.request("PUT", "/racing/Subscriptions/all", subscription(), UPDATE),
            lambda: several[2].request("PUT", "/racing/Subscriptions/all/Rules/new", RAIN),
            lambda: second.request("DELETE", "/racing"),
        )
        assert (updated.status in (200, 404), ruled.status in (201, 404), deleted.status) == (True, True, 200)


def test_updates_at_once_leave_one_of_them_whole(several, made, namespace):
    for _ in range(ROUNDS):
        bodies = [
            queue(
                f"<MaxDeliveryCount>{count}</MaxDeliveryCount><UserMetadata>{count}</UserMetadata>"
                + authorization_rules(authorization_rule(f"app-{count}"))
            )
            for count in range(1, len(several) + 1)
        ]
        calls = [
            lambda each=each, body=body: each.request("PUT", "/orders", body, UPDATE)
            for each, body in zip(several, bodies, strict=True)
        ]
        assert set(outcomes(at_once(*calls))) == {200}
        whole = entities.describe_entity(EntityAddress(namespace, "orders"))
        count = whole.entity.settings.user_metadata
        assert (whole.entity.settings.max_delivery_count, [policy.name for policy in whole.policies]) == (
            int(count),
            [f"app-{count}"],
        )


# Others beside attacked connections


def test_a_connection_beside_attacked_ones_is_served(connection, listener, key, made, namespace):
    """Unfinished heads and bodies, and answers that nobody reads, hold no other request, of messages neither."""
    head = request_bytes("PUT", "/attack", [*connection.headers("GET"), ("Content-Length", "200000")])
    unread = request_bytes("GET", "/$Resources/queues", connection.headers("GET")) * 500
    attacks = [
        b"PUT /attack HTTP/1.1\r\nHost: a\r\nX: ",
        head + b"<a>" * 20_000,
        request_bytes("PUT", "/attack", [*connection.headers("GET"), ("Transfer-Encoding", "chunked")])
        + b"fffff\r\n"
        + b"x" * 1000,
        unread,
    ]
    attackers = [Connection(listener.port("SERVICE_BUS_PORT"), key) for _ in attacks for _ in range(3)]
    try:
        with suppress(TimeoutError):
            for attacker, attack in zip(attackers, attacks * 3, strict=True):
                attacker._socket.settimeout(0.5)
                attacker.send_bytes(attack)
        for number in range(10):
            assert connection.request("PUT", f"/beside-{number}", queue()).status == 201
            assert connection.request("POST", f"/beside-{number}/messages", b"x").status == 201
    finally:
        for attacker in attackers:
            attacker.close()
    assert [message.body for message in service_bus.peek(EntityAddress(namespace, "beside-0"))] == [b"x"]
    assert exists(namespace, "attack") is None


@pytest.mark.parametrize(
    "head",
    [
        "GET /orders HTTP/1.1\r\nHost: a\r\nAuthorization : Bearer a\r\n\r\n",
        "GET /orders HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        "PUT /orders HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /orders HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /orders HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_ends_the_connection(connection, second, made, head):
    connection.send_bytes(head.encode("latin-1"))
    reply = connection.read()
    assert (reply.status, reply.headers["connection"]) == (400, "close")
    assert second.request("GET", "/orders").status == 200
