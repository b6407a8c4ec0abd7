"""Names of queues and exchanges."""

from typing import Any

import pytest

from broker_core.common.errors import InvalidArgument
from broker_core.rabbitmq.rules import names
from broker_core.rabbitmq.rules.errors import AmqpError


def test_line_ends_are_removed():
    assert names.clean("nl\na\rb") == "nlab"
    assert names.clean("\r\n") == ""


def test_a_name_has_at_most_255_bytes():
    assert names.clean("é" * 127 + "a") == "é" * 127 + "a"
    bad: Any
    for bad in ("é" * 128, "a" * 256, "a\x00b", "\ud800", 5):
        with pytest.raises(InvalidArgument):
            names.clean(bad)


def test_a_refusal_shows_the_first_80_characters_of_a_name():
    with pytest.raises(InvalidArgument) as refused:
        names.clean("a" * 90 + "\ud800")
    assert "a" * 80 in str(refused.value) and "a" * 81 not in str(refused.value)


@pytest.mark.parametrize("name", ["/", "a b", "é" * 127 + "a", "x" * 255, "\x80"])
def test_valid_virtual_host_names_are_accepted(name):
    assert names.check_vhost_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "a\x00", "a\x1f", "a\x7f", "\ud800", None, 5])
def test_invalid_virtual_host_names_are_refused(name):
    with pytest.raises(InvalidArgument, match="must have 1 to 255 bytes of UTF-8 without control characters"):
        names.check_vhost_name(name)


def test_generated_names_are_unique_with_the_prefix_of_rabbitmq():
    made = names.generated(names.QUEUE_PREFIX, bytes(range(16)))
    assert made == "amq.gen-AAECAwQFBgcICQoLDA0ODw"
    assert len(made) == len("amq.gen-") + 22


def test_the_prefix_amq_is_reserved_for_queues():
    with pytest.raises(AmqpError) as refused:
        names.check_new_queue_name("amq.foo")
    assert refused.value.text == "ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'"
    assert names.check_new_queue_name("mine") == "mine"
