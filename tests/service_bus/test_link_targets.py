"""What front ends know of an entity before they open a link to it: by right, and as sends and receives behave."""

from datetime import timedelta

import pytest

from broker_core import namespaces, service_bus
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, Family, Right, SubQueue
from broker_core.service_bus import entities
from broker_core.service_bus.entities import get_link_target
from broker_core.service_bus.rules.entity_settings import STATUSES
from broker_core.service_bus.rules.values import Message

QUEUE, TOPIC, SESSIONS, FORWARDING = (EntityAddress("space", path) for path in ("Orders", "news", "sessions", "forwarding"))
SUBSCRIPTION = TOPIC.subscription("all")
ADDRESSES = [
    EntityAddress(address.namespace, address.path, subqueue)
    for address in (QUEUE, TOPIC, SUBSCRIPTION, SESSIONS, FORWARDING)
    for subqueue in (SubQueue.MAIN, SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER)
]
KINDS = {TOPIC: EntityKind.TOPIC, SUBSCRIPTION: EntityKind.SUBSCRIPTION}
CASES = [(address, status) for address in ADDRESSES for status in STATUSES[KINDS.get(address.main, EntityKind.QUEUE)]]
RIGHTS = (Right.SEND, Right.LISTEN, Right.MANAGE)


@pytest.fixture(autouse=True)
def space(in_one_transaction):
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    entities.create_queue(QUEUE, lock_duration=timedelta(seconds=30))
    entities.create_topic(TOPIC)
    entities.create_subscription(SUBSCRIPTION)
    entities.create_queue(SESSIONS, requires_session=True)
    entities.create_queue(FORWARDING, forward_to="Orders", forward_dead_lettered_messages_to="news")


def test_a_queue_is_described():
    target = get_link_target(EntityAddress("SPACE", "ORDERS"), Right.SEND)
    assert target.address == QUEUE and target.entity_id == entities.get_queue(QUEUE).id
    assert (target.kind, target.status, target.requires_session) == (EntityKind.QUEUE, EntityStatus.ACTIVE, False)
    assert (target.max_message_bytes, target.lock_duration, target.forward_to) == (256 * 1024, timedelta(seconds=30), None)


@pytest.mark.parametrize("has", RIGHTS)
@pytest.mark.parametrize("asks", RIGHTS)
def test_the_right_that_is_asked_for_suffices_and_is_required(has, asks):
    actor = Actor("key", "app", has, namespace="space")
    if has is asks:
        assert get_link_target(QUEUE, asks, actor=actor).address == QUEUE
        with pytest.raises(NotAuthorized):
            get_link_target(EntityAddress("other", "Orders"), asks, actor=actor)
    else:
        with pytest.raises(NotAuthorized, match=str(asks.name)):
            get_link_target(QUEUE, asks, actor=actor)


@pytest.mark.parametrize("right", [Right.NONE, Right.BROWSE, Right.ALL, Right.SEND | Right.LISTEN, None, "SEND"])
def test_only_the_rights_of_clients_can_be_asked_for(right):
    with pytest.raises(InvalidArgument, match="must be SEND, LISTEN or MANAGE"):
        get_link_target(QUEUE, right)


@pytest.mark.parametrize("address", [EntityAddress("space", "none"), EntityAddress("none", "Orders"), TOPIC.subscription("none")])
def test_what_does_not_exist_is_not_found(address):
    with pytest.raises(EntityNotFound):
        get_link_target(address, Right.SEND)


@pytest.mark.parametrize(("address", "status"), CASES, ids=str)
def test_it_says_who_can_send_and_receive(address, status):
    entities.update_entity(address.main, status=status)
    target = get_link_target(address, Right.LISTEN)
    assert target.address == address and target.status is status
    assert target.may_send == _is_done(lambda: service_bus.send(address, [Message(b"x", session_id="s")]))
    if target.requires_session:
        assert target.may_receive == _is_done(lambda: service_bus.accept_session(address, "s"))
    else:
        assert target.may_receive == _is_done(lambda: service_bus.receive(address))


def test_forwards_are_those_of_the_list():
    targets = [get_link_target(address, Right.LISTEN) for address in (FORWARDING, FORWARDING.dead_letter)]
    assert [target.forward_to for target in targets] == ["Orders", "news"]


def _is_done(call) -> bool:
    try:
        call()
    except BrokerError:
        return False
    return True
