"""Protection from deletion in all families, and the revisions of settings."""

from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, reads
from broker_core.common.errors import EntityNotFound, EntityProtected, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Right
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.service_bus import entities
from tests.fixtures import *  # noqa: F403

ANN = Actor("user", "ann", Right.ALL)


@pytest.fixture
def one_of_each(namespace, account, vhost):
    """An entity of each family with what deletes it."""
    queue, jobs, rabbits = (EntityAddress(within, "kept") for within in (namespace, account, vhost))
    entities.create_queue(queue, actor=ANN)
    queue_storage.create_queue(jobs, actor=ANN)
    rabbitmq.declare_queue(rabbits, actor=ANN)
    return {queue: entities.delete_queue, jobs: queue_storage.delete_queue, rabbits: rabbitmq.delete_queue}


def test_a_protected_entity_is_not_deleted_until_the_protection_is_removed(one_of_each):
    for address, delete in one_of_each.items():
        namespaces.set_protected(address, True, actor=ANN)
        assert reads.entity(address).protected
        with pytest.raises(EntityProtected, match="protected from deletion"):
            delete(address)
        assert not reads.entity(address).counts.total
        namespaces.set_protected(address, False, actor=ANN)
        delete(address)
        with pytest.raises(EntityNotFound):
            reads.entity(address)


def test_a_namespace_with_a_protected_entity_is_not_deleted(one_of_each, account, vhost):
    for address in one_of_each:
        namespaces.set_protected(address, True, actor=ANN)
    for delete, name in ((queue_storage.delete_account, account), (rabbitmq.delete_vhost, vhost)):
        with pytest.raises(EntityProtected, match="kept"):
            delete(name)
    assert all(reads.entity(address) for address in one_of_each)


def test_a_topic_is_not_deleted_with_a_protected_subscription(namespace):
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    namespaces.set_protected(topic.subscription("all"), True)
    with pytest.raises(EntityProtected, match="news/Subscriptions/all"):
        entities.delete_topic(topic)
    assert len(reads.subscriptions(topic)) == 1


def test_protecting_requires_the_right_to_manage(one_of_each):
    for address in one_of_each:
        with pytest.raises(NotAuthorized):
            namespaces.set_protected(address, True, actor=Actor("user", "otto", Right.OPERATE))


def test_each_change_of_settings_is_a_revision(one_of_each):
    queue, jobs, rabbits = one_of_each
    entities.update_queue(queue, lock_duration=timedelta(seconds=7), actor=ANN)
    entities.update_queue(queue, lock_duration=timedelta(seconds=7), actor=ANN)  # nothing changes
    queue_storage.update_queue(jobs, max_dequeue_count=4, actor=ANN)
    rabbitmq.set_policy(rabbits.namespace, Policy("limit", "kept", {"max-length": 5}), actor=ANN)
    for address in one_of_each:
        revisions = reads.revisions(address)
        assert [revision.actor for revision in revisions] == ["user:ann", "user:ann"] and revisions[0].id > revisions[1].id
    newest, oldest = reads.revisions(queue)
    assert newest.columns["lock_duration"] == timedelta(seconds=7)
    assert oldest.columns["lock_duration"] == timedelta(minutes=1)
    assert reads.revisions(jobs)[0].columns["options"]["max_dequeue_count"] == 4
    assert reads.revisions(rabbits)[0].columns["effective"]["max_length"] == 5


def test_pausing_and_protecting_are_revisions(one_of_each):
    pause = (entities.set_status, queue_storage.set_status, rabbitmq.set_status)
    for address, set_status in zip(one_of_each, pause, strict=True):
        set_status(address, EntityStatus.SEND_DISABLED, actor=ANN)
        namespaces.set_protected(address, True, actor=ANN)
        newest, before, _ = reads.revisions(address)
        assert newest.columns["protected"] and not before.columns["protected"]
        assert before.columns["status"] == "SendDisabled"
