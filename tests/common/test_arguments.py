"""What is said of arguments of the wrong kind."""

from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from broker_core.common.arguments import require_kind, require_storable, storage_problem, whole_numbers, wrong_kind
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import ExpiryMode
from broker_core.service_bus.rules.values import Message


class Owner(Enum):
    """A kind that has no words of its own."""


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (timedelta, "a timedelta, such as timedelta(seconds=5)"),
        (Message, "a Message"),
        (ExpiryMode, "an ExpiryMode"),
        (Owner, "an Owner"),
        (set, "a set"),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_expected_type(kind, word):
    with pytest.raises(InvalidArgument) as refused:
        require_kind("name", 5, kind)
    assert (refused.value.name, refused.value.problem) == ("name", f"must be {word}, not 5")


def test_a_value_is_shown_up_to_80_characters():
    assert wrong_kind("n", "x" * 79, int).problem == f"must be a whole number, not '{'x' * 79}"
    with pytest.raises(InvalidArgument) as refused:
        require_storable("n", "x" * 80 + "\x00")
    assert refused.value.problem == f"'{'x' * 80}' contains a NUL character, which cannot be stored"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", None),
        ("ä😀", None),
        ("a\x00", "'a\\x00' contains a NUL character, which cannot be stored"),
        ("ä\x00", "'ä\\x00' contains a NUL character, which cannot be stored"),
        ("\ud800", "'\\ud800' contains an unpaired surrogate, which must be a string"),
        ("\udfff", "'\\udfff' contains an unpaired surrogate, which must be a string"),
    ],
)
def test_texts_that_the_database_cannot_store_are_refused(text, problem):
    assert storage_problem(text) == problem


def test_numbers_must_be_a_list():
    number: Any = 5
    with pytest.raises(InvalidArgument, match="5 must be a list of numbers"):
        whole_numbers(number)
    with pytest.raises(InvalidArgument, match="-1 must be a whole number from 0 to 2\\^63 - 1"):
        whole_numbers([1, -1])
