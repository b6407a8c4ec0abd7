"""What errors say."""

import pytest

from broker_core.common.errors import InvalidFilter, LockLost, MessageNotFound, QuotaExceeded


@pytest.mark.parametrize(("count", "shown"), [(1, "1. It"), (3, "1, 2, 3. It"), (4, "1, 2, 3 .... It")])
def test_at_most_three_tokens_are_shown(count, shown):
    assert f"The lock supplied is invalid: {shown}" in str(LockLost(range(1, count + 1)))


@pytest.mark.parametrize(("count", "shown"), [(1, "1."), (5, "1, 2, 3, 4, 5."), (6, "1, 2, 3, 4, 5 ....")])
def test_at_most_five_sequence_numbers_are_shown(count, shown):
    said = str(MessageNotFound("q", range(1, count + 1), "message"))
    assert said == f"'q' has no message with the sequence number {shown} Nothing was changed."


def test_a_quota_is_shown_in_mebibytes():
    assert str(QuotaExceeded("q", 80 * 1024 * 2**20)).startswith("'q' has reached its size of 81,920 MB.")


TEXT = "0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("text", "position", "excerpt"),
    [
        ("", 0, ""),
        (TEXT, 0, ", in: ^0123456789abcdef..."),
        (TEXT, 16, ", in: 0123456789abcdef^ghijklmnopqrstuv..."),
        (TEXT, 17, ", in: ...123456789abcdefg^hijklmnopqrstuvw..."),
        (TEXT, 19, ", in: ...3456789abcdefghi^jklmnopqrstuvwxy..."),
        (TEXT, 20, ", in: ...456789abcdefghij^klmnopqrstuvwxyz"),
        (TEXT, 36, ", in: ...klmnopqrstuvwxyz^"),
    ],
)
def test_an_error_in_a_filter_shows_16_characters_of_context(text, position, excerpt):
    refused = InvalidFilter("filter", text, position, "x", "y")
    assert str(refused) == f"filter: column {position + 1}: found x, expected y{excerpt}"
