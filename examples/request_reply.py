"""Request and reply over queues: each client has its own reply queue, which is deleted automatically.

All clients send their questions to one queue, from which any number of servers receive. Each client receives its answers from
its own queue. A question names that queue (reply_to), and an answer names its question (correlation_id), so that a client can
have many open questions.

A client creates its queue when it starts. After five idle minutes the broker deletes the queue with its messages
(auto_delete_on_idle), also if the client has crashed. A waiting receive is activity.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import vitrine_here  # noqa: F401  (finds the Vitrine of this repository)

from broker_core import namespaces, service_bus
from broker_core.common.errors import EntityNotFound, LockLost
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import LockedMessage, Message, entities

QUESTIONS = EntityAddress("examples", "questions")
IDLE = timedelta(minutes=5)  # the shortest that the service allows


class Client:
    """Sends questions and returns each answer to its caller. Use it with `async with`."""

    def __init__(self, questions: EntityAddress, name: str):
        self.questions = questions
        self.replies = EntityAddress(questions.namespace, f"replies/{name}-{uuid4().hex[:8]}")
        self.asked: dict[str, asyncio.Future[str]] = {}  # by message id

    async def __aenter__(self) -> "Client":
        await entities.create_queue.aio(self.replies, auto_delete_on_idle=IDLE)
        self.listening = asyncio.create_task(self.listen())
        return self

    async def __aexit__(self, *_) -> None:
        await stop(self.listening)  # the broker deletes the queue

    async def ask(self, question: str, *, within_seconds: float = 30) -> str:
        """Return the answer. Raises TimeoutError; the question then expires, and no server answers it."""
        question_id = str(uuid4())
        self.asked[question_id] = asyncio.get_running_loop().create_future()
        message = Message(
            question.encode(),
            message_id=question_id,
            reply_to=self.replies.path,
            time_to_live=timedelta(seconds=within_seconds),
        )
        try:
            await service_bus.send.aio(self.questions, [message])
            return await asyncio.wait_for(self.asked[question_id], within_seconds)
        finally:
            del self.asked[question_id]

    async def listen(self) -> None:
        while True:
            for answer in await service_bus.receive_and_delete.aio(self.replies, 100, max_wait_seconds=60):
                waiting = self.asked.get(answer.correlation_id)
                if waiting and not waiting.done():  # otherwise it came too late
                    waiting.set_result(answer.body.decode())


async def serve(questions: EntityAddress, answer: Callable[[str], str]) -> None:
    """Answer questions until cancelled. Several servers can run, here or on other machines."""
    while True:
        for question in await service_bus.receive.aio(questions, 10, max_wait_seconds=60):
            await reply(questions, question, answer(question.body.decode()))
            with suppress(LockLost):  # the lock expired: another server answers too, and the client ignores that
                await service_bus.complete.aio(questions, question.lock_token)


async def reply(questions: EntityAddress, question: LockedMessage, text: str) -> None:
    """Send an answer to the question's reply queue. If the queue was deleted, its client is no longer active."""
    to = EntityAddress(questions.namespace, question.broker_properties["reply_to"])
    try:
        await service_bus.send.aio(to, [Message(text.encode(), correlation_id=question.message_id)])
    except EntityNotFound:
        print(f"{to} does not exist any more; the answer is dropped")


async def ask_all(questions: EntityAddress, name: str, numbers: range) -> list[str]:
    """Run one client that asks for the squares of some numbers concurrently."""
    async with Client(questions, name) as client:
        return await asyncio.gather(*[client.ask(str(number)) for number in numbers])


async def stop(*tasks: asyncio.Task) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def square(number: str) -> str:
    return f"{number} x {number} = {int(number) ** 2}"


async def main() -> None:
    await namespaces.ensure_namespace.aio(QUESTIONS.namespace, Family.SERVICE_BUS)
    await entities.ensure_queue.aio(QUESTIONS)
    servers = [asyncio.create_task(serve(QUESTIONS, square)) for _ in range(2)]
    clients = {"ada": range(1, 4), "bob": range(10, 13), "cyd": range(100, 103)}
    for name, answers in zip(
        clients, await asyncio.gather(*[ask_all(QUESTIONS, name, numbers) for name, numbers in clients.items()]), strict=True
    ):
        print(name, "received", answers)
    print("The reply queues are deleted after five idle minutes; until then the explorer shows them.")
    await stop(*servers)


if __name__ == "__main__":
    asyncio.run(main())
