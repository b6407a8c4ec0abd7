"""One lock token alone: a lost lock is an error. A list of tokens: a lost lock is a line of the report (SB-071, SB-087)."""

import asyncio
from datetime import timedelta

import pytest

from broker_core import service_bus
from broker_core.common.errors import InvalidArgument, LockLost, SessionLockLost
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio
from tests.broker_state import bodies, ledger_agrees

MINUTE = timedelta(minutes=1)
CALLS = ("complete", "abandon", "defer", "dead_letter", "release", "renew")


def received(queue, **options):
    service_bus.send(queue, [Message(b"a", **options)])
    (message,) = service_bus.accept_session(queue, "s", max_count=1).messages if options else service_bus.receive(queue)
    return message


@pytest.mark.parametrize("call", CALLS)
def test_a_lost_lock_raises(queue, step, call):
    message = received(queue)
    step(2 * MINUTE)
    with pytest.raises(LockLost) as refused:
        getattr(service_bus, call)(queue, message.lock_token)
    assert refused.value.tokens == (message.lock_token,)
    assert getattr(service_bus, call)(queue, [message.lock_token]).lost == (message.lock_token,)
    assert bodies(service_bus.receive(queue)) == ["a"] and ledger_agrees(queue)


@pytest.mark.parametrize("call", CALLS)
def test_a_lost_lock_raises_under_asyncio(queue, step, call):
    message = received(queue)
    step(2 * MINUTE)

    async def settle():
        try:
            with pytest.raises(LockLost):
                await getattr(service_bus, call).aio(queue, message.lock_token)
            return await getattr(service_bus, call).aio(queue, [message.lock_token])
        finally:
            await aio.close()

    assert asyncio.run(settle()).lost == (message.lock_token,)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [lambda token: token, str], ids=["uuid", "text"])
def test_a_valid_lock_is_settled_and_reported(queue, call, kind):
    message = received(queue)
    report = getattr(service_bus, call)(queue, kind(message.lock_token))
    assert (report.settled, report.lost) == (((message.lock_token, 1),), ())


def test_a_second_settlement_raises(queue):
    message = received(queue)
    service_bus.complete(queue, message.lock_token)
    with pytest.raises(LockLost):
        service_bus.complete(queue, message.lock_token)


def test_a_lost_session_is_named_in_the_error(make_queue, step):
    """SB-117."""
    queue = make_queue(requires_session=True)
    message = received(queue, session_id="s")
    step(2 * MINUTE)
    with pytest.raises(SessionLockLost, match="'s'"):
        service_bus.complete(queue, message.lock_token)


def test_a_transaction_accepts_a_single_token(queue):
    message = received(queue)
    with service_bus.transaction() as tx:
        tx.complete(queue, message.lock_token)
    assert service_bus.peek(queue) == []
    with pytest.raises(LockLost), service_bus.transaction() as tx:
        tx.complete(queue, message.lock_token)


@pytest.mark.parametrize("wrong", ["x", 5, None, b"1" * 16, ["x"], [None]])
def test_an_invalid_token_is_refused(queue, wrong):
    with pytest.raises(InvalidArgument, match="UUID"):
        service_bus.complete(queue, wrong)
