"""Properties that are kept for clients without effect, in PostgreSQL (SB-940): stored, changed, recorded and restored."""

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import namespaces, operations, reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family
from broker_core.service_bus import preview
from broker_core.service_bus.rules.kept_properties import FIXED_KEPT, effective_kept
from broker_core.store import connections
from tests.service_bus.rules.test_kept_properties import OF_ANY_KIND, values_of_kind

from .made_by import API, entities

QUEUE = EntityAddress("space", "q")
NAMES = iter(range(10**9))


@pytest.fixture(autouse=True)
def space(db, made_by):
    with nullcontext() if made_by == API else connections.callers_transaction():
        yield namespaces.create_namespace("space", Family.SERVICE_BUS)


def create(kind, **settings):
    address = EntityAddress("space", f"e{next(NAMES)}")
    if kind is EntityKind.QUEUE:
        return entities.create_queue(address, **settings)
    topic = entities.create_topic(address, **settings if kind is EntityKind.TOPIC else {})
    return topic if kind is EntityKind.TOPIC else entities.create_subscription(address.subscription("s"), **settings)


def shown(address):
    entity = entities.get_entity(address)
    return effective_kept(entity.kind, entity.settings.kept_properties)


@given(st.data(), OF_ANY_KIND)
def test_every_value_survives_create_get_update_get(data, of_kind):
    kind, first = of_kind
    address = create(kind, kept_properties=first).address
    assert first.items() <= shown(address).items()
    fixed = {name: value for name, value in shown(address).items() if name in FIXED_KEPT}
    second = data.draw(values_of_kind(kind)) | fixed
    entities.update_entity(address, kept_properties=second)
    assert second.items() <= shown(address).items()
    entities.update_entity(address, user_metadata="another change")
    assert second.items() <= shown(address).items()
    entities.update_entity(address, kept_properties=shown(address))
    assert second.items() <= shown(address).items()


@pytest.mark.made_by_api
def test_a_refused_change_stores_nothing():
    entities.create_queue(QUEUE, kept_properties={"EnableExpress": True})
    with pytest.raises(InvalidArgument, match="^EnableExpress: cannot be changed after creation"):
        entities.update_queue(QUEUE, kept_properties={}, max_delivery_count=3)
    settings = entities.get_queue(QUEUE).settings
    assert (settings.kept_properties, settings.max_delivery_count) == ({"EnableExpress": True}, 10)


def test_properties_are_stored_in_the_order_of_their_names():
    given_values = {"SupportOrdering": False, "EnableExpress": True, "IsAnonymousAccessible": True}
    entities.create_queue(QUEUE, kept_properties=given_values)
    assert list(entities.get_queue(QUEUE).settings.kept_properties) == [
        "EnableExpress",
        "IsAnonymousAccessible",
        "SupportOrdering",
    ]


@pytest.mark.made_by_api
def test_a_change_is_a_revision_and_repeating_it_is_none():
    entities.create_queue(QUEUE, kept_properties={"EnablePartitioning": True})
    changed = {"EnableBatchedOperations": False, "EnablePartitioning": True}
    for _ in range(2):
        entities.update_queue(QUEUE, kept_properties=changed)
    after, before = reads.revisions(QUEUE)
    assert (before.columns["kept_properties"], after.columns["kept_properties"]) == ({"EnablePartitioning": True}, changed)


@pytest.mark.made_by_core("No client gives the number of an operation.")
def test_a_restored_entity_has_its_properties():
    address, number = entities.create_queue(QUEUE, kept_properties={"EnableExpress": True}).address, operations.new_number()
    entities.delete_entity(address, operation_id=number)
    assert reads.deleted_entity(address).kept_properties == {"EnableExpress": True}
    operations.restore("space", number, actor=Actor.local())
    assert entities.get_queue(address).settings.kept_properties == {"EnableExpress": True}


def test_effective_settings_name_the_source_of_the_properties():
    entities.create_queue(QUEUE)
    assert entities.effective(QUEUE)["kept_properties"] == ({}, "default")
    entities.update_queue(QUEUE, kept_properties={"IsAnonymousAccessible": True})
    assert entities.effective(QUEUE)["kept_properties"] == ({"IsAnonymousAccessible": True}, "entity")


def test_a_preview_says_that_the_properties_have_no_effect():
    entities.create_queue(QUEUE)
    [note] = preview.preview(QUEUE, kept_properties={"SupportOrdering": False}).notes
    assert note == "Properties that are kept for clients have no effect on messages (SB-940)."
    [note] = preview.preview(QUEUE, kept_properties={"SupportOrdering": True}).notes
    assert "nothing changes" in note
