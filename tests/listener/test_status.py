"""What a listener says of itself in the database, and when it is not there any more."""

import asyncio
import itertools

import httpx
import pytest

from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, Right
from broker_core.listener import status
from broker_core.listener.status import Listening, OpenPort
from broker_core.runtime import processes
from tests.eventually import eventually, eventually_aio


def test_a_listener_is_listed_with_its_ports_until_it_is_killed(listener_process):
    [running] = eventually(status.listeners, 10)
    assert running.listening.ports == [
        OpenPort("Service Bus REST and Service Bus administration", listener_process.port("SERVICE_BUS_PORT")),
        OpenPort("Queue Storage", listener_process.port("QUEUE_STORAGE_PORT")),
        OpenPort("AMQP, not served yet", listener_process.port("AMQP_PORT")),
    ]
    listener_process.kill()
    assert eventually(lambda: status.listeners() == [])


def test_a_process_that_does_not_listen_is_not_listed(transactional_db):
    processes.join()
    try:
        assert status.listeners() == []
    finally:
        processes.leave_all()


def test_the_list_requires_the_right_to_browse(db):
    with pytest.raises(NotAuthorized):
        status.listeners(actor=Actor("user", "nobody", Right(0)))


async def test_the_state_is_recorded_again_when_it_changes_and_in_a_new_epoch(transactional_db, monkeypatch):
    monkeypatch.setattr(status, "SECONDS", 0.02)
    state = Listening([OpenPort("AMQP", 5672)], ["Port 1 is in use."])
    recording = asyncio.create_task(status.keep_recorded(lambda: state))

    async def is_recorded():
        return [running.listening for running in await status.listeners.aio()] == [state]

    try:
        await eventually_aio(is_recorded)
        state = Listening(state.ports, state.problems, {"too many connections": 3})
        await eventually_aio(is_recorded)
        await asyncio.to_thread(processes.leave_all)
        await eventually_aio(is_recorded)
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        await asyncio.to_thread(processes.leave_all)


async def test_a_defect_does_not_end_the_recording(transactional_db, monkeypatch):
    monkeypatch.setattr(status, "SECONDS", 0.02)
    looks = itertools.count(1)

    def current():
        if next(looks) == 1:
            raise OSError("no file descriptor is free")
        return Listening([OpenPort("AMQP", 5672)])

    async def is_recorded():
        return bool(await status.listeners.aio())

    recording = asyncio.create_task(status.keep_recorded(current))
    try:
        await eventually_aio(is_recorded)
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        await asyncio.to_thread(processes.leave_all)


def test_the_service_bus_port_answers_the_health_check_of_the_emulator(listener, transactional_db):
    url = f"http://127.0.0.1:{listener.port('SERVICE_BUS_PORT')}/health"
    answer = httpx.get(url)
    assert answer.status_code == 200
    assert answer.json() == {"status": "healthy", "message": "Service is healthy."}
