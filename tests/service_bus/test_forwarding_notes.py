"""Which forwards are loops (SB-176), and what is said of them, also before they are set."""

import pytest

from broker_core.common.errors import EntityNotFound, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.service_bus import entities, preview
from broker_core.service_bus.entities import forwarding_notes

DEAD = "forward_dead_lettered_messages_to"


@pytest.fixture
def make_chain(make_queue):
    """make_chain(count): queues, each of which forwards to the next one."""

    def make(count):
        queues = [make_queue()]
        for _ in range(count - 1):
            queues.insert(0, make_queue(forward_to=queues[0].path))
        return queues

    return make


def test_a_forward_that_leads_nowhere_back_has_no_note(make_chain):
    first, *_, last = make_chain(3)
    assert forwarding_notes(first) == [] == forwarding_notes(last)
    entities.update_queue(last, forward_dead_lettered_messages_to=first.path, forward_to=None)
    entities.delete_queue(first)
    assert forwarding_notes(last) == []


@pytest.mark.parametrize(("count", "is_loop"), [(1, True), (2, True), (4, True), (5, False)])
def test_a_circle_within_the_hop_limit_is_found(make_chain, count, is_loop):
    """SB-173: after four forwards, no message is back."""
    queues = make_chain(count)
    last = queues[-1]
    previewed = preview.preview(last, forward_to=queues[0].path.upper())
    entities.update_queue(last, forward_to=queues[0].path)
    assert forwarding_notes(last) == list(previewed.notes)
    assert [len(forwarding_notes(queue)) for queue in queues] == [int(is_loop)] * count
    if count == 2:
        assert f"forwarded to '{queues[0].path}' come back to this queue." in forwarding_notes(last)[0]


def test_a_way_that_joins_a_circle_of_others_is_none_of_its_own(make_queue):
    other, third = make_queue(), make_queue()
    entities.update_queue(other, forward_to=other.path)
    entities.update_queue(third, forward_to=other.path)
    assert len(forwarding_notes(other)) == 1 and forwarding_notes(third) == []


def test_a_circle_through_a_topic_is_found(namespace, make_queue):
    topic, queue = EntityAddress(namespace, "Topic"), make_queue()
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("plain"))
    entities.create_subscription(topic.subscription("back"), forward_to=queue.path)
    entities.update_queue(queue, forward_to="topic")
    entities.create_subscription(topic.subscription("loop"), forward_to="topic")
    entities.create_subscription(topic.subscription("dead"), forward_dead_lettered_messages_to="topic")
    assert "to 'Topic' come back to this queue." in forwarding_notes(queue)[0]
    assert f"to '{queue.path}' come back to the topic of this subscription" in forwarding_notes(topic.subscription("back"))[0]
    assert forwarding_notes(topic.subscription("loop"))[0].startswith("Messages are forwarded to the topic of this subscription")
    assert forwarding_notes(topic.subscription("dead"))[0].startswith("Dead letters are forwarded to the topic of")
    assert forwarding_notes(topic) == [] == forwarding_notes(topic.subscription("plain"))
    entities.delete_subscription(topic.subscription("back"))
    assert forwarding_notes(queue) == []


def test_a_loop_of_an_entity_that_detects_duplicates_drops_messages(namespace, make_queue):
    """SB-133."""
    topic, queue = EntityAddress(namespace, "topic"), make_queue(requires_duplicate_detection=True)
    entities.create_topic(topic, requires_duplicate_detection=True)
    entities.create_subscription(topic.subscription("loop"), forward_to="topic")
    entities.update_queue(queue, forward_to=queue.path, forward_dead_lettered_messages_to=queue.path)
    notes = [*forwarding_notes(queue), *forwarding_notes(topic.subscription("loop"))]
    assert len(notes) == 3 and all("dropped there as duplicates" in note for note in notes)


def test_a_preview_explains_only_the_forwards_that_change(make_queue):
    queue = make_queue(requires_session=True)
    of_sessions, of_loop = preview.preview(queue, forward_to=queue.path).notes
    assert of_sessions.startswith("No receiver can accept the sessions") and "to this queue itself" in of_loop
    entities.update_queue(queue, forward_to=queue.path)
    (of_dead_letters,) = preview.preview(queue, forward_dead_lettered_messages_to=queue.path).notes
    assert of_dead_letters.startswith("Dead letters are forwarded to this queue itself")
    assert preview.preview(queue, max_delivery_count=3).notes == () == preview.preview(queue, forward_to=None).notes
    assert len(forwarding_notes(queue)) == 2
    assert preview.preview(make_queue(requires_session=True), **{DEAD: queue.path}).notes == ()  # its sessions are accepted


def test_the_notes_require_the_right_to_browse(queue):
    with pytest.raises(NotAuthorized):
        forwarding_notes(queue, actor=Actor("user", "eve", Right.NONE))
    with pytest.raises(EntityNotFound):
        forwarding_notes(EntityAddress(queue.namespace, "nothing"))
