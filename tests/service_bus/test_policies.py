"""Shared-access policies against a real database."""

import base64

import pytest

from broker_core import namespaces
from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access

ORDERS, OTHER = EntityAddress("space", "orders"), EntityAddress("space", "other")


@pytest.fixture(autouse=True)
def space(in_one_transaction):
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    entities.create_queue(ORDERS)
    entities.create_queue(OTHER)


@pytest.mark.parametrize(
    ("given", "rights"),
    [
        ({"send": True}, Right.SEND),
        ({"listen": True}, Right.LISTEN | Right.BROWSE | Right.SEE_BODIES),
        ({"send": True, "listen": True}, Right.SEND | Right.LISTEN | Right.BROWSE | Right.SEE_BODIES),
        ({"manage": True}, Right.SEND | Right.LISTEN | Right.BROWSE | Right.SEE_BODIES | Right.MANAGE),
    ],
)
def test_manage_implies_send_and_listen(given, rights):
    assert shared_access.create_policy("space", "p", **given).rights == rights


def test_keys_are_32_random_bytes_in_base64_and_do_not_show_in_logs():
    first, second = shared_access.create_policy("space", "one", send=True), shared_access.create_policy(ORDERS, "two", send=True)
    keys = {*first.keys, *second.keys}
    assert len(keys) == 4
    assert all(len(base64.b64decode(key, validate=True)) == 32 for key in keys)
    assert not any(key in repr((first, second)) for key in keys)


def test_a_scope_lists_its_own_policies_only():
    shared_access.create_policy(ORDERS, "mine", send=True)
    assert [p.name for p in shared_access.list_policies(ORDERS)] == ["mine"]
    assert [p.name for p in shared_access.list_policies("SPACE")] == ["RootManageSharedAccessKey"]
    assert shared_access.list_policies(OTHER) == []


def test_names_are_unique_case_insensitively_within_a_scope():
    shared_access.create_policy("space", "app", send=True)
    shared_access.create_policy(ORDERS, "app", listen=True)
    for scope in ("space", ORDERS):
        with pytest.raises(EntityExists):
            shared_access.create_policy(scope, "APP", send=True)


def test_a_policy_of_the_entity_is_found_before_that_of_the_namespace():
    shared_access.create_policy("space", "app", send=True)
    shared_access.create_policy(ORDERS, "App", listen=True)
    assert [p.path for p in shared_access.find_policies("space", "ORDERS", "aPP")] == ["orders", None]
    assert [p.path for p in shared_access.find_policies("space", "other", "app")] == [None]
    assert [p.path for p in shared_access.find_policies("space", None, "app")] == [None]
    assert shared_access.find_policies("nowhere", "orders", "app") == []


def test_a_topics_policies_apply_to_its_subscriptions_which_cannot_have_policies():
    topic = EntityAddress("space", "news")
    entities.create_topic(topic)
    subscription = entities.create_subscription(topic.subscription("all")).address
    shared_access.create_policy(topic, "app", listen=True)
    assert [p.path for p in shared_access.find_policies("space", "NEWS/subscriptions/all", "app")] == ["news"]
    with pytest.raises(NotAllowed, match="Create the policy on 'space/news'"):
        shared_access.create_policy(subscription, "app", listen=True)
    assert shared_access.list_policies(subscription) == []


def test_a_scope_has_at_most_twelve_policies():
    for i in range(12):
        shared_access.create_policy(ORDERS, f"p{i}", send=True)
    with pytest.raises(NotAllowed, match="has 12"):
        shared_access.create_policy(ORDERS, "p12", send=True)
    shared_access.delete_policy(ORDERS, "P3")
    shared_access.create_policy(ORDERS, "p12", send=True)


@pytest.mark.parametrize("which", ["primary", "secondary"])
def test_regenerating_one_key_keeps_the_other(which):
    before = shared_access.create_policy("space", "app", send=True)
    after = shared_access.regenerate_key("space", "app", which=which)
    changed, kept = (0, 1) if which == "primary" else (1, 0)
    assert after.keys[changed] != before.keys[changed]
    assert after.keys[kept] == before.keys[kept]
    assert shared_access.get_policy("space", "APP") == after


GIVEN = "SAS_KEY_VALUE", base64.b64encode(bytes(48)).decode()  # the published key, and the longest


def test_a_policy_is_created_with_the_keys_that_are_given():
    assert shared_access.create_policy("space", "both", send=True, primary_key=GIVEN[0], secondary_key=GIVEN[1]).keys == GIVEN
    one = shared_access.create_policy(ORDERS, "one", send=True, primary_key=GIVEN[0])
    assert one.primary_key == GIVEN[0] and len(one.secondary_key) == 44


@pytest.mark.parametrize("primary", [None, GIVEN[0]])
@pytest.mark.parametrize("secondary", [None, GIVEN[1]])
def test_only_the_keys_that_are_given_are_set(primary, secondary):
    before = shared_access.create_policy(ORDERS, "app", send=True)
    after = shared_access.set_keys(ORDERS, "APP", primary=primary, secondary=secondary)
    assert after.keys == (primary or before.primary_key, secondary or before.secondary_key)
    assert shared_access.get_policy(ORDERS, "app") == after and after.rights == before.rights


@pytest.mark.parametrize(
    "key", ["", "short67", "x" * 65, "with space", "with;semicolon", "with\nline", "größer-als-acht", b"bytesbytes", 7]
)
def test_a_key_that_no_connection_string_can_hold_is_refused(key):
    app = shared_access.create_policy("space", "app", send=True)
    for call in (
        lambda: shared_access.create_policy("space", "new", send=True, primary_key=key),
        lambda: shared_access.create_policy("space", "new", send=True, secondary_key=key),
        lambda: shared_access.set_keys("space", "app", primary=key),
        lambda: shared_access.set_keys("space", "app", primary=GIVEN[0], secondary=key),
    ):
        with pytest.raises(InvalidArgument, match="a key must have 8 to 64 printable ASCII characters"):
            call()
    assert shared_access.get_policy("space", "app") == app
    assert len(shared_access.list_policies("space")) == 2


def test_changing_the_rights_keeps_the_keys():
    before = shared_access.create_policy(ORDERS, "app", send=True)
    after = shared_access.update_policy(ORDERS, "app", send=False, listen=True, manage=False)
    assert (after.send, after.listen, after.keys) == (False, True, before.keys)


def test_a_policy_without_a_right_is_refused():
    with pytest.raises(InvalidArgument, match="at least one"):
        shared_access.create_policy("space", "app")
    shared_access.create_policy("space", "app", send=True)
    with pytest.raises(InvalidArgument, match="at least one"):
        shared_access.update_policy("space", "app", send=False, listen=False, manage=False)


def test_missing_policies_are_not_found():
    for call in (
        lambda: shared_access.get_policy("space", "none"),
        lambda: shared_access.delete_policy(ORDERS, "none"),
        lambda: shared_access.regenerate_key(ORDERS, "none"),
        lambda: shared_access.set_keys(ORDERS, "none", primary=GIVEN[0]),
        lambda: shared_access.create_policy("nowhere", "p", send=True),
        lambda: shared_access.create_policy(EntityAddress("space", "nothing"), "p", send=True),
    ):
        with pytest.raises(EntityNotFound):
            call()


@pytest.mark.parametrize("scope", ["space", ORDERS])
def test_reading_policies_requires_the_right_to_manage(scope):
    operator = Actor("user", "otto", Right.ALL & ~Right.MANAGE)
    for call in (
        lambda: shared_access.list_policies(scope, actor=operator),
        lambda: shared_access.create_policy(scope, "p", send=True, actor=operator),
        lambda: shared_access.regenerate_key(scope, shared_access.ROOT_POLICY, actor=operator),
        lambda: shared_access.set_keys(scope, shared_access.ROOT_POLICY, primary=GIVEN[0], actor=operator),
        lambda: shared_access.delete_policy(scope, shared_access.ROOT_POLICY, actor=operator),
    ):
        with pytest.raises(NotAuthorized):
            call()


def test_accounts_and_virtual_hosts_have_no_shared_access_policies(account):
    with pytest.raises(NotAllowed, match="queue_storage"):
        shared_access.create_policy(account, "mine", send=True)
