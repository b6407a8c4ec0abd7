"""Hostile requests as bytes, whole: each is answered as documented, never with a 5xx."""

import asyncio
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from broker_core import queue_storage
from broker_core.queue_storage import accounts
from broker_core.store import aio

from .hostile import hostile
from .kept import cases_of
from .requests import ACCOUNT, KEY, Requests
from .seeds import REQUESTS

EXAMPLES, INPUTS_EACH = 40, 10
BY_STATE = ("QueueAlreadyExists", "CorsPreflightFailure")  # what a valid request can be answered because of others before it


@pytest.fixture
def send(transactional_db):
    """send(bytes): to an account and a queue that exist."""
    queue_storage.create_account(ACCOUNT)
    accounts.set_keys(ACCOUNT, primary=KEY)
    with asyncio.Runner() as runner:
        yield Requests(runner.get_loop())
        runner.run(aio.close())


def test_each_valid_request_is_accepted(send):
    """The test of the test: what changed requests are made of."""
    for data in REQUESTS:
        [response] = send(data)
        assert response.status < 400 or response.headers["x-ms-error-code"] in BY_STATE, (data, response)


def test_any_request_is_answered_as_documented(send):
    @settings(max_examples=EXAMPLES)
    @given(st.integers(0, 2**32))
    def check(seed):
        random = Random(seed)
        for _ in range(INPUTS_EACH):
            data = hostile("request", random)
            try:
                send(data)
            except BaseException:
                note(f"the input: {data!r}")
                raise

    check()


def test_requests_that_were_found_are_answered_as_documented(send):
    cases = cases_of("request")
    assert cases
    for case in cases:
        send(case.read_bytes())
