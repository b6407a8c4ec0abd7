"""By what the entities of a scenario are made: by the core, or by a client of the administration API."""

import pytest

from broker_core import reads
from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus.administration.errors import TABLE
from broker_core.service_bus.rules.filters import Rule

from .administration.entities import REFUSALS, AdministrationEntities
from .made_by import API, entities


@pytest.mark.made_by_api
def test_the_changes_of_a_scenario_are_those_of_its_maker(namespace, made_by):
    """Whose they are is in the revisions."""
    queue = EntityAddress(namespace, "q")
    entities.create_queue(queue)
    entities.update_queue(queue, max_delivery_count=3)
    maker = "key:RootManageSharedAccessKey" if made_by == API else str(Actor.local())
    assert [revision.actor for revision in reads.revisions(queue)] == [maker, maker]


def test_each_error_that_is_raised_for_a_refusal_has_its_status_and_sub_code():
    for row, error in (*REFUSALS.items(), ((400, 40000), InvalidArgument), ((400, 40000), NotAllowed)):
        assert TABLE[error] == row


def test_each_function_that_changes_or_reads_entities_is_a_request():
    names = ("create", "update", "delete", "get")
    functions = {f"{verb}_{kind}" for verb in names for kind in ("queue", "topic", "subscription", "rule")}
    functions |= {"update_entity", "delete_entity", "get_entity", "set_status"}
    functions |= {"list_queues", "list_topics", "list_subscriptions", "list_rules"}
    own = {name for name, of in vars(AdministrationEntities).items() if callable(of) and not isinstance(of, staticmethod)}
    assert functions <= own


@pytest.mark.made_by_core("It makes a client itself.")
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda made, queue: made.create_queue(queue, hidden=True), "The service has no setting hidden of a queue."),
        (lambda made, queue: made.create_topic(queue, max_delivery_count=3), "no setting max_delivery_count of a topic"),
        (lambda made, queue: made.create_rule(queue, Rule("r"), actor=Actor.local()), "policies with keys, not users"),
    ],
)
def test_what_the_service_does_not_know_is_skipped_with_a_sentence(namespace, call, reason):
    with pytest.raises(pytest.skip.Exception, match=reason):
        call(AdministrationEntities(9), EntityAddress(namespace, "q"))
