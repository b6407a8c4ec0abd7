"""A job queue that processes each job once, although messages can be delivered more than once.

A broker delivers each message at least once. There are two causes of a second delivery:

- The sender gets no response (its network failed) and does not know whether the job was stored. It has to send it again.
- A worker fails after the work and before it completes the message. Its lock expires, and another worker gets the message.

For the first, the queue has duplicate detection: it drops a message whose id was seen in the last ten minutes. For the second,
the worker stores the message's id in its own database, in the same transaction as the work: see `pay` in books.py.
"""

import json
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import vitrine_here  # noqa: F401  (finds the Vitrine of this repository)
from books import Books

from broker_core import namespaces, service_bus
from broker_core.common.errors import LockLost
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import Message, entities

PAYOUTS = EntityAddress("examples", "payouts")


def create_queue(jobs: EntityAddress) -> None:
    namespaces.ensure_namespace(jobs.namespace, Family.SERVICE_BUS)
    entities.ensure_queue(
        jobs,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=10),
        lock_duration=timedelta(seconds=5),  # how long the job of a failed worker waits
    )


# The sender


def order_payout(jobs: EntityAddress, order: str, account: str, cents: int) -> bool:
    """Send the job to pay for an order. Returns False for a duplicate, which is dropped and gets no sequence number.

    The message's id is derived from the order and is not random, so sending the same job again sends the same message.
    """
    body = json.dumps({"account": account, "cents": cents}).encode()
    (number,) = service_bus.send(jobs, [Message(body, message_id=f"payout-{order}", subject="payout")])
    return number is not None


# The worker


class PowerCut(Exception):
    """The worker fails between the work and completing the message."""


def do_next_job(jobs: EntityAddress, books: Books, *, wait_seconds: float = 0, power_cut: bool = False) -> str | None:
    """Process one job, or skip it if it was processed before. Returns "done" or "skipped", or None if there was no job.

    power_cut: fail at the worst moment, after the work and before completing the message.
    """
    for message in service_bus.receive(jobs, max_wait_seconds=wait_seconds):
        is_new = books.pay(message.message_id, **json.loads(message.body))
        if power_cut:
            raise PowerCut
        with suppress(LockLost):  # the lock has expired: another worker gets the job, and skips it
            service_bus.complete(jobs, message.lock_token)
        return "done" if is_new else "skipped"
    return None


def main() -> None:
    create_queue(PAYOUTS)
    books, order = Books(), uuid4().hex[:8]

    print(f"job for order {order} sent; new:", order_payout(PAYOUTS, order, "alice", 1999))
    print("sent again after a lost response; new:", order_payout(PAYOUTS, order, "alice", 1999))

    try:
        do_next_job(PAYOUTS, books, power_cut=True)
    except PowerCut:
        print("the first worker paid and failed before completing the message; its lock expires in 5 seconds")

    print("the second worker gets the same message:", do_next_job(PAYOUTS, books, wait_seconds=10))
    print("next job:", do_next_job(PAYOUTS, books))
    print(f"alice has {books.balance('alice')} cents: paid once")


if __name__ == "__main__":
    main()
