"""Failed authentications: late answers, and addresses that are refused for a while. The clock and the waiting are the test's."""

import pytest

from broker_core.common.errors import BrokerError, NotAuthorized
from broker_core.wire import failed_authentications
from broker_core.wire.failed_authentications import FailedAuthentications, TooManyFailedAuthentications, peer_of

PEER = "192.0.2.7"


class Time:
    """A clock that is set, and waits that end at once. waited: their seconds."""

    def __init__(self):
        self.now, self.waited = 1000.0, []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture
def time(settings):
    settings.FAILED_AUTHENTICATION_DELAY_SECONDS, settings.FAILED_AUTHENTICATIONS = 1, 10
    return Time()


@pytest.fixture
def attempts(time):
    return FailedAuthentications(time, time.sleep)


def refused(attempts, peer=PEER) -> int | None:
    """For how many seconds; None: the peer is not refused."""
    try:
        attempts.require_allowed(peer)
    except TooManyFailedAuthentications as problem:
        return problem.retry_after
    return None


async def fail(attempts, peer=PEER, problem=None):
    with pytest.raises(BrokerError):
        async with attempts.limited(peer, lambda problem: not isinstance(problem, NotAuthorized)):
            raise problem or BrokerError("wrong key")


@pytest.mark.asyncio
async def test_each_failure_is_answered_after_the_delay(attempts, time):
    await fail(attempts)
    await fail(attempts)
    assert time.waited == [1, 1]


@pytest.mark.asyncio
async def test_a_success_and_other_errors_are_neither_delayed_nor_counted(attempts, time):
    for _ in range(20):
        async with attempts.limited(PEER, lambda problem: True):
            pass
        await fail(attempts, problem=NotAuthorized("SEND", "demo/orders", "key"))
    assert (time.waited, refused(attempts)) == ([], None)


@pytest.mark.asyncio
async def test_the_tenth_failure_in_a_minute_has_the_address_refused_for_a_minute(attempts, time):
    for _ in range(9):
        await fail(attempts)
    assert refused(attempts) is None
    time.now += 59
    await fail(attempts)
    assert refused(attempts) == 60
    assert refused(attempts, "192.0.2.8") is None
    time.now += 59.5
    assert refused(attempts) == 1
    time.now += 0.5
    assert refused(attempts) is None


@pytest.mark.asyncio
async def test_failures_count_for_a_minute(attempts, time):
    for _ in range(30):  # nine in any minute
        await fail(attempts)
        time.now += 60 / 9 + 0.01
    assert refused(attempts) is None


@pytest.mark.asyncio
async def test_a_refused_address_is_not_even_asked_for_its_key(attempts):
    for _ in range(10):
        await fail(attempts)
    asked = False
    with pytest.raises(TooManyFailedAuthentications, match="refused for another 60 s"):
        async with attempts.limited(PEER, lambda problem: True):
            asked = True
    assert not asked


@pytest.mark.asyncio
async def test_after_a_refusal_it_takes_ten_failures_again(attempts, time):
    for _ in range(10):
        await fail(attempts)
    time.now += 60
    for _ in range(9):
        await fail(attempts)
    assert refused(attempts) is None
    await fail(attempts)
    assert refused(attempts) == 60


@pytest.mark.asyncio
async def test_without_a_limit_nobody_is_refused(attempts, settings):
    settings.FAILED_AUTHENTICATIONS = 0
    for _ in range(100):
        await fail(attempts)
    assert refused(attempts) is None


@pytest.mark.asyncio
async def test_the_numbers_are_settings(attempts, time, settings):
    settings.FAILED_AUTHENTICATIONS, settings.FAILED_AUTHENTICATION_REFUSAL_SECONDS = 2, 7
    settings.FAILED_AUTHENTICATION_DELAY_SECONDS, settings.FAILED_AUTHENTICATION_WINDOW_SECONDS = 3, 5
    await fail(attempts)
    time.now += 5  # the first no longer counts
    await fail(attempts)
    assert refused(attempts) is None
    await fail(attempts)
    assert (refused(attempts), time.waited) == (7, [3, 3, 3])


@pytest.mark.asyncio
async def test_a_site_that_has_no_such_settings_has_the_limits_too(attempts, time, settings):
    for name in failed_authentications.DEFAULTS:
        delattr(settings, name)
    for _ in range(10):
        await fail(attempts)
    assert (refused(attempts), time.waited) == (60, [1] * 10)


@pytest.mark.asyncio
async def test_within_no_time_there_are_no_failures(attempts, settings):
    settings.FAILED_AUTHENTICATION_WINDOW_SECONDS = 0
    for _ in range(20):
        await fail(attempts)
    assert refused(attempts) is None


def test_addresses_without_number_take_bounded_memory(attempts, monkeypatch):
    monkeypatch.setattr(failed_authentications, "MOST_PEERS", 100)
    for _ in range(10):
        attempts.count(PEER)
    for number in range(99):
        attempts.count(f"198.51.100.{number}")
    assert refused(attempts) == 60  # none of the hundred is forgotten yet
    for number in range(1000):
        attempts.count(f"2001:db8:{number:x}::/64")
    assert len(attempts._peers) == 100
    assert refused(attempts) is None


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("x" * 1000, "x" * 100),
    ],
)
def test_what_is_counted_by(client, expected):
    assert peer_of(client) == expected
    assert peer_of(client, is_from_page=True) == f"{expected} (pages)"
