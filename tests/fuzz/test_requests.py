"""Hostile requests as bytes, whole: each is answered as documented, never with a 5xx."""

import asyncio
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from broker_core.store import aio

from .hostile import hostile
from .kept import cases_of
from .requests import Requests
from .seeds import SEEDS
from .served import SERVED

EXAMPLES = {"queue_storage_request": 40, "service_bus_request": 1000}
INPUTS_EACH = 10
BY_STATE = (b"QueueAlreadyExists", b"CorsPreflightFailure", b"SubCode=40401")  # what others before a valid request can cause


@pytest.fixture(params=SERVED)
def target(request):
    return request.param


@pytest.fixture
def send(transactional_db, target):
    """send(bytes): to what is served."""
    served = SERVED[target]()
    with asyncio.Runner() as runner:
        yield Requests(runner.get_loop(), served)
        runner.run(aio.close())


def test_each_valid_request_is_accepted(send, target):
    """The test of the test: what changed requests are made of."""
    for data in SEEDS[target]:
        [response] = send(data)
        assert response.status < 400 or any(code in response.body for code in BY_STATE), (data, response)


def test_any_request_is_answered_as_documented(send, target):
    @settings(max_examples=EXAMPLES[target])
    @given(st.integers(0, 2**32))
    def check(seed):
        random = Random(seed)
        for _ in range(INPUTS_EACH):
            data = hostile(target, random)
            try:
                send(data)
            except BaseException:
                note(f"the input: {data!r}")
                raise

    check()


def test_requests_that_were_found_are_answered_as_documented(send, target):
    for case in cases_of(target):
        send(case.read_bytes())
