"""Bodies in bounds, clients that go away, and dates. No database, no sockets."""

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire.http import dates
from broker_core.wire.http.answer import Answer, write
from broker_core.wire.http.errors import BodyTooLarge
from broker_core.wire.http.request import ClientGone
from tests.eventually import eventually_aio

from .asgi_client import Client

MOST = 2 * 2**20


@pytest.mark.asyncio
async def test_body_up_to_the_limit_is_read():
    half = b"x" * (MOST // 2)
    assert len(await Client(half, half).request().body(MOST)) == MOST


@pytest.mark.asyncio
async def test_body_over_the_limit_is_drained_and_refused():
    client = Client(*[b"x" * 2**20] * 5)
    with pytest.raises(BodyTooLarge):
        await client.request().body(MOST)
    assert client.events == []


@pytest.mark.asyncio
async def test_endless_body_is_cut_off():
    client = Client(*[b"x" * 2**20] * 100)
    with pytest.raises(BodyTooLarge):
        await client.request().body(MOST)
    assert len(client.events) > 80


@pytest.mark.parametrize(("expect", "unread"), [({}, 0), ({"expect": "100-continue"}, 4)])
@pytest.mark.asyncio
async def test_declared_length_is_refused_before_the_body_is_asked_for(expect, unread):
    client = Client(*[b"x" * 2**20] * 3)
    with pytest.raises(BodyTooLarge) as refused:
        await client.request(content_length=str(3 * 2**20), **expect).body(MOST)
    assert len(client.events) == unread and refused.value.is_awaited is bool(expect)


@pytest.mark.asyncio
async def test_client_that_disconnects_while_sending_raises_client_gone():
    with pytest.raises(ClientGone):
        await Client(b"abc", hangs_up=True).request().body(MOST)


@pytest.mark.asyncio
async def test_work_ends_when_its_client_disconnects():
    client, begun, cancelled = Client(), asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    request = client.request()
    there = asyncio.create_task(request.while_connected(work()))
    await begun.wait()
    client.left.set()
    with pytest.raises(ClientGone):
        await there
    assert cancelled.is_set() and request.client_is_gone


@pytest.mark.asyncio
async def test_result_of_work_is_returned_to_a_connected_client():
    request = Client().request()
    assert await request.while_connected(asyncio.sleep(0, "done")) == "done"
    assert not request.client_is_gone
    request.close()


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.asyncio
async def test_response_is_undone_if_its_client_disconnected_while_it_was_written(leaves):
    client, undone, written = Client(), [], []
    request = client.request()

    async def undo():
        undone.append(True)

    async def send(event):
        written.append(event)
        if leaves:
            client.left.set()
            await eventually_aio(lambda: request.client_is_gone)

    await request.while_connected(asyncio.sleep(0))
    await write(Answer(201, body=b"x", undo=undo), request, send)
    request.close()
    assert undone == ([True] if leaves else [])
    assert written[-1].get("more_body") is leaves


@pytest.mark.parametrize("body", [b"", b"x", b"xyz"])
@pytest.mark.asyncio
async def test_a_client_that_leaves_with_the_whole_answer_has_it(body):
    """Regression: it closed the connection so soon that its message was released, and delivered again."""
    client, undone, got = Client(), [], []
    request = client.request()

    async def undo():
        undone.append(True)

    async def send(event):
        got.append(event.get("body", b""))
        if b"".join(got) == body:
            client.left.set()
            await eventually_aio(lambda: request.client_is_gone)

    await write(Answer(201, body=body, undo=undo), request, send)
    request.close()
    assert (b"".join(got), undone) == (body, [])


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)),
        ("Mon, 01 Jan 0001 00:00:00 GMT", datetime(1, 1, 1, tzinfo=UTC)),
        ("Sun, 32 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 UTC", None),
        ("Sun, 6 Nov 1994 08:49:37 GMT", None),
        ("1994-11-06T08:49:37Z", None),
        ("", None),
    ],
)
def test_rfc1123_dates(text, instant):
    assert dates.read_rfc1123(text) == instant


@given(st.datetimes(timezones=st.just(UTC)))
def test_rfc1123_round_trip_keeps_the_second(instant):
    assert dates.read_rfc1123(dates.write_rfc1123(instant)) == instant.replace(microsecond=0)
