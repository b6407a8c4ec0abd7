"""The text of a message stays what it was, through every operation (docs/messages.md)."""

import base64
import uuid
from datetime import timedelta

import pytest

from broker_core.common.types import EntityAddress
from broker_core.queue_storage import get, peek, put_all, requeue_poison, update
from broker_core.transfer.exporting import export
from broker_core.transfer.importing import import_

from .test_poison import fail, poison_of, texts

TEXTS = ["", " \n\ttext\n ", "größe 😀 ]]> <xml/> &amp;", "{}", base64.b64encode(bytes(range(256))).decode(), "x" * 48_000]


def got(queue):
    return texts(get(queue, 32))


def got_later(queue):
    for message in get(queue, 32):
        update(queue, message.message_id, message.pop_receipt, visibility_timeout=timedelta(0))
    return got(queue)


def peeked(queue):
    return texts(peek(queue, 32))


def exported_and_imported(queue):
    lines: list[str] = []
    export([queue.namespace], lines.append)
    name = f"c{uuid.uuid4().hex[:10]}"
    import_(lines, name=name)
    return got(EntityAddress(name, queue.path))


@pytest.mark.parametrize("operation", [got, got_later, peeked, exported_and_imported])
def test_a_text_is_returned_unchanged(make_queue, operation):
    queue = make_queue()
    put_all(queue, TEXTS)
    assert operation(queue) == TEXTS


def test_a_text_is_returned_unchanged_from_the_poison_queue(make_queue, step):
    queue = make_queue(max_dequeue_count=1)
    put_all(queue, TEXTS)
    fail(queue, step, 2)
    poison = poison_of(queue)
    assert sorted(texts(peek(poison, 32))) == sorted(TEXTS)
    requeue_poison(poison, [message.sequence_number for message in peek(poison, 32)])
    assert sorted(got(queue)) == sorted(TEXTS)
