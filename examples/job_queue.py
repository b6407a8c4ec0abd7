"""A job queue whose jobs are done once, although messages come twice.

A broker delivers each message at least once. Two accidents make it more than once:

- The sender gets no answer (its network went away) and does not know whether the job is in. It has to send again.
- A worker dies after the work and before it said so. Its lock ends, and the message goes to another worker.

Against the first, the queue has duplicate detection: it drops a message whose id it took in the last ten minutes. Against the
second no broker can help, as it cannot look into the worker's books. So the worker writes the message's id into them, in the
same transaction as the work: see `pay` in books.py.
"""

import json
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import vitrine_here  # noqa: F401  (finds the Vitrine of this repository)
from books import Books

from broker_core import namespaces, service_bus
from broker_core.common.errors import LockLost
from broker_core.common.types import EntityAddress, Message
from broker_core.service_bus import entities

PAYOUTS = EntityAddress("examples", "payouts")


def create_queue(jobs: EntityAddress) -> None:
    namespaces.ensure_namespace(jobs.namespace)
    entities.ensure_queue(
        jobs,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=10),
        lock_duration=timedelta(seconds=5),  # so long the job of a worker that died has to wait
    )


# The sender


def order_payout(jobs: EntityAddress, order: str, account: str, cents: int) -> bool:
    """Send the job to pay for an order. Returns whether it is new: a duplicate is accepted and dropped, and gets no number.

    The message's id comes from the order, not from chance. So whoever sends the same job again, sends the same message.
    """
    body = json.dumps({"account": account, "cents": cents}).encode()
    (number,) = service_bus.send(jobs, [Message(body, message_id=f"payout-{order}", subject="payout")])
    return number is not None


# The worker


class PowerCut(Exception):
    """The worker's machine goes dark."""


def do_next_job(jobs: EntityAddress, books: Books, *, wait_seconds: float = 0, power_cut: bool = False) -> str | None:
    """Do one job, or skip it where the books say that it is done. Returns which, or None if there was no job.

    power_cut: die in the worst moment, between the work and the word about it.
    """
    for message in service_bus.receive(jobs, max_wait_seconds=wait_seconds):
        is_new = books.pay(message.message_id, **json.loads(message.body))
        if power_cut:
            raise PowerCut
        with suppress(LockLost):  # the lock ended meanwhile: another worker has the job by now, and will skip it
            service_bus.complete(jobs, message.lock_token)
        return "done" if is_new else "skipped"
    return None


def main() -> None:
    create_queue(PAYOUTS)
    books, order = Books(), uuid4().hex[:8]

    print(f"order {order} is paid: the job is new:", order_payout(PAYOUTS, order, "alice", 1999))
    print("no answer came, so it is sent again: new:", order_payout(PAYOUTS, order, "alice", 1999))

    try:
        do_next_job(PAYOUTS, books, power_cut=True)
    except PowerCut:
        print("the first worker paid, and died before it could say so; its lock ends in 5 seconds")

    print("the second worker gets the same message:", do_next_job(PAYOUTS, books, wait_seconds=10))
    print("and then:", do_next_job(PAYOUTS, books))
    print(f"alice has {books.balance('alice')} cents: paid once")


if __name__ == "__main__":
    main()
