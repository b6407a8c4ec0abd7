"""Refusals call what they are about by the word of its family."""

from datetime import timedelta
from functools import partial

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.errors import EntityExists, EntityNotFound
from broker_core.common.types import EntityAddress, Family
from broker_core.rabbitmq.messages import browsing
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.values import Message


@pytest.mark.parametrize(
    ("look", "word"),
    [
        (lambda: namespaces.get_namespace("x"), "namespace"),
        (lambda: namespaces.get_clock("x"), "namespace"),
        (lambda: namespaces.step_clock("x", timedelta(seconds=1)), "namespace"),
        (lambda: namespaces.delete_namespace("x"), "namespace"),
        (lambda: shared_access.delete_policy("x", "p"), "namespace"),
        (lambda: queue_storage.get_account("x"), "storage account"),
        (lambda: queue_storage.delete_account("x"), "storage account"),
        (lambda: rabbitmq.get_vhost("x"), "virtual host"),
        (lambda: rabbitmq.delete_vhost("x"), "virtual host"),
        (lambda: browsing.vhost_counts("x"), "virtual host"),
        (lambda: service_bus.send(EntityAddress("x", "q"), [Message()]), "messaging entity"),
    ],
)
def test_a_not_found_error_names_the_kind_of_entity(db, look, word):
    with pytest.raises(EntityNotFound, match=rf"^The {word} 'x(/q)?' could not be found\. Check the name or create it first\.$"):
        look()


def test_an_already_exists_error_names_the_kind_of_entity(namespace, account, vhost):
    for create, name, word in (
        (partial(namespaces.create_namespace, family=Family.SERVICE_BUS), namespace, "namespace"),
        (queue_storage.create_account, account, "storage account"),
        (rabbitmq.create_vhost, vhost, "virtual host"),
    ):
        with pytest.raises(EntityExists, match=f"^The {word} '{name}' already exists"):
            create(name)
