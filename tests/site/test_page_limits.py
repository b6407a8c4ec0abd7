"""The pages in progress: how many at once, how many wait, and when a turn begins and ends."""

import asyncio
from collections import Counter

import httpx
import pytest
from django.conf import settings

from explorer.site import page_limits
from explorer.site.page_limits import ANONYMOUS, SIGNED_IN

SESSION = [(b"cookie", settings.SESSION_COOKIE_NAME.encode() + b"=abc")]


class Pages:
    """An application whose pages take until they are let go."""

    def __init__(self):
        self.in_progress, self.most, self.answers = 0, 0, Counter()
        self.let_go = asyncio.Event()

    async def __call__(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        self.in_progress += 1
        self.most = max(self.most, self.in_progress)
        await self.let_go.wait()
        self.in_progress -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def get(self, headers=(), events=None):
        waiting = asyncio.Queue()
        for event in events or [{"type": "http.request", "body": b"", "more_body": False}]:
            waiting.put_nowait(event)

        async def send(event):
            if event["type"] == "http.response.start":
                self.answers[event["status"]] += 1
                self.headers = dict(event["headers"])

        await page_limits.limited_pages(self)({"type": "http", "headers": list(headers)}, waiting.get, send)

    def ask(self, count, headers=(), events=None):
        return [asyncio.ensure_future(self.get(headers, events)) for _ in range(count)]


@pytest.fixture(autouse=True)
def turns():
    page_limits._turns.clear()


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("headers", "limit"), [((), ANONYMOUS), ([(b"cookie", b"other=1")], ANONYMOUS), (SESSION, SIGNED_IN)])
@pytest.mark.asyncio
async def test_the_number_of_pages_in_progress_is_limited_and_others_wait(headers, limit):
    pages = Pages()
    asked = pages.ask(limit.in_progress + 5, headers)
    await settled()
    assert pages.in_progress == limit.in_progress and not pages.answers
    pages.let_go.set()
    await asyncio.gather(*asked)
    assert pages.most == limit.in_progress and pages.answers == {200: limit.in_progress + 5}


@pytest.mark.asyncio
async def test_signed_in_users_do_not_wait_for_anonymous_clients():
    pages = Pages()
    asked = [*pages.ask(ANONYMOUS.in_progress + 5), *pages.ask(1, SESSION)]
    await settled()
    assert pages.in_progress == ANONYMOUS.in_progress + 1
    pages.let_go.set()
    await asyncio.gather(*asked)


@pytest.mark.asyncio
async def test_a_request_is_refused_when_too_many_wait():
    pages = Pages()
    asked = pages.ask(ANONYMOUS.in_progress + ANONYMOUS.waiting)
    await settled()
    await pages.get()
    assert pages.answers == {503: 1} and pages.headers[b"retry-after"] == b"2"
    pages.let_go.set()
    await asyncio.gather(*asked)
    assert pages.answers == {503: 1, 200: len(asked)}


@pytest.mark.asyncio
async def test_a_page_that_waits_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(page_limits, "PATIENCE_SECONDS", 0.01)
    pages = Pages()
    asked = pages.ask(ANONYMOUS.in_progress)
    await settled()
    await pages.get()
    assert pages.answers == {503: 1}
    pages.let_go.set()
    await asyncio.gather(*asked)


@pytest.mark.asyncio
async def test_a_request_with_an_incomplete_body_takes_no_slot():
    pages = Pages()
    slow = pages.ask(ANONYMOUS.in_progress + 1, events=[{"type": "http.request", "body": b"a", "more_body": True}])
    complete = pages.ask(ANONYMOUS.in_progress)
    await settled()
    assert pages.in_progress == ANONYMOUS.in_progress
    pages.let_go.set()
    await asyncio.gather(*complete)
    for request in slow:
        request.cancel()


@pytest.mark.asyncio
async def test_a_page_that_fails_or_is_cancelled_frees_its_slot():
    class Fails(Pages):
        async def __call__(self, scope, receive, send):
            await receive()
            raise ValueError

    for _ in range(ANONYMOUS.in_progress + 1):
        with pytest.raises(ValueError):
            await Fails().get()
    pages = Pages()
    for request in pages.ask(ANONYMOUS.in_progress):
        await settled()
        request.cancel()
    pages.let_go.set()
    await pages.get()
    assert pages.answers == {200: 1}


def test_the_site_limits_its_pages_and_not_its_health_check(live_site, monkeypatch):
    monkeypatch.setattr(page_limits, "ANONYMOUS", page_limits.Limit(0, 0))
    answer = httpx.get(f"{live_site}/sign-in/")
    assert answer.status_code == 503 and "Too many pages" in answer.text
    assert httpx.get(f"{live_site}/sign-in/", cookies={settings.SESSION_COOKIE_NAME: "abc"}).status_code == 200
    assert httpx.get(f"{live_site}/healthz").status_code == 200
