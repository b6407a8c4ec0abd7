"""The account that a request names is looked up once a second, however many requests name it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.queue_storage import accounts
from broker_core.queue_storage.http import authorization
from broker_core.queue_storage.http.authorization import account_of
from broker_core.queue_storage.rules.errors import AccountNotFound


@pytest.fixture
def looked_up(monkeypatch):
    """The names that are looked up from now on. Only the account "shop" is there."""
    names = []

    async def find(name):
        names.append(name)
        await asyncio.sleep(0)
        return SimpleNamespace(name=name) if name == "shop" else None

    monkeypatch.setattr(accounts, "find_account", SimpleNamespace(aio=find))
    monkeypatch.setattr(authorization, "_cached", {})
    return names


def request_to(name) -> Any:
    return SimpleNamespace(target=SimpleNamespace(account=name))


async def several(name, count=5):
    return await asyncio.gather(*[account_of(request_to(name)) for _ in range(count)], return_exceptions=True)


def test_concurrent_requests_look_up_their_account_once(looked_up):
    found = asyncio.run(several("shop"))
    assert [account.name for account in found] == ["shop"] * 5 and looked_up == ["shop"]
    asyncio.run(several("shop"))  # another loop, later
    assert looked_up == ["shop"]


def test_a_missing_account_is_looked_up_again(looked_up):
    for _ in range(2):
        assert {type(problem) for problem in asyncio.run(several("nobody"))} == {AccountNotFound}
    assert looked_up == ["nobody"] * 2 and not authorization._finding


def test_a_cancelled_request_does_not_stop_the_lookup_of_others(looked_up):
    async def first_is_cancelled():
        first, second = (asyncio.create_task(account_of(request_to("shop"))) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return (await second).name, first

    name, first = asyncio.run(first_is_cancelled())
    assert name == "shop" and first.cancelled() and looked_up == ["shop"]
