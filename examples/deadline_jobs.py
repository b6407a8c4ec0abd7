"""Jobs with a deadline, and a client that hears of it when its job missed it.

A client wants a report within half a minute. Its deadline is the message's time-to-live: a worker that is late never sees the
job, so nobody works for a client that has stopped waiting. The queue puts expired messages into its dead-letter queue, where a
watcher finds them. It tells the client that there will be no report now, and sends the job on to a slower queue without a
deadline, where it is done at night.

    client --> reports --> worker -----------------------> replies --> client
                  | expired                                   ^  ^
                  v                                           |  |
           $DeadLetterQueue --> watcher --"expired"-----------+  |
                                   |                             |
                                   +--> reports-at-night --> worker
"""

from datetime import timedelta
from uuid import uuid4

import vitrine_here  # noqa: F401  (finds the Vitrine of this repository)

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, LockedMessage, Message
from broker_core.service_bus import entities

REPORTS = EntityAddress("examples", "reports")
AT_NIGHT = EntityAddress("examples", "reports-at-night")
REPLIES = EntityAddress("examples", "replies-of-one-client")

EXPIRED = "TTLExpiredException"  # the reason the broker gives


def create_queues(reports: EntityAddress, at_night: EntityAddress, replies: EntityAddress) -> None:
    namespaces.ensure_namespace(reports.namespace)
    entities.ensure_queue(reports, dead_lettering_on_message_expiration=True)  # without it, expired messages just go
    entities.ensure_queue(at_night)
    entities.ensure_queue(replies)


# The client


def ask_for(report: str, reports: EntityAddress, replies: EntityAddress, *, within: timedelta) -> str:
    """Send the job; the client's deadline is its time-to-live. Returns the job's id, by which its answers are known."""
    job = str(uuid4())
    service_bus.send(reports, [Message(report.encode(), message_id=job, reply_to=replies.path, time_to_live=within)])
    return job


def answers(replies: EntityAddress, *, wait_seconds: float = 0) -> list[tuple[str, str, str]]:
    """What has come: the job's id, what became of it ("done", "expired" or "failed"), and the text."""
    found = service_bus.receive_and_delete(replies, 100, max_wait_seconds=wait_seconds)
    return [(message.correlation_id, message.subject, message.body.decode()) for message in found]


def place_of_reply(job: LockedMessage) -> EntityAddress:
    return EntityAddress(job.address.namespace, job.broker_properties["reply_to"])


def answer_to(job: LockedMessage, what: str, text: str) -> Message:
    """An answer names the job that it is about."""
    return Message(text.encode(), subject=what, correlation_id=job.message_id)


# The worker, the same for both queues


def work_off(queue: EntityAddress) -> int:
    """Write the reports that wait. Returns how many."""
    jobs = service_bus.receive(queue, 10)
    for job in jobs:
        report = f"Report: {job.body.decode()}"
        with service_bus.transaction(via=queue) as together:  # the answer and the end of the job: both, or neither
            together.send(place_of_reply(job), [answer_to(job, "done", report)])
            together.complete(queue, job.lock_token)
    return len(jobs)


# The watcher


def watch(reports: EntityAddress, at_night: EntityAddress, *, wait_seconds: float = 0) -> int:
    """Look after the jobs that were put aside: answer each client, and send on what was late. Returns how many there were.

    All that belongs to one job is one transaction. Should the watcher die within it, the job is as it was, and when its lock ends
    another watcher gets it: no client hears twice that its job expired, and no report is written twice.
    """
    late = service_bus.receive(reports.dead_letter, 10, max_wait_seconds=wait_seconds)
    for job in late:
        with service_bus.transaction(via=reports) as together:
            if job.dead_letter_reason == EXPIRED:
                said = answer_to(job, "expired", "Nobody had time. You will have it tomorrow.")
                again = Message(job.body, message_id=job.message_id, reply_to=job.broker_properties["reply_to"])
                together.send(at_night, [again])
            else:  # no worker could do it: to try again would help nobody
                said = answer_to(job, "failed", job.dead_letter_description or job.dead_letter_reason)
            together.send(place_of_reply(job), [said])
            together.complete(reports.dead_letter, job.lock_token)
    return len(late)


def main() -> None:
    create_queues(REPORTS, AT_NIGHT, REPLIES)

    ask_for("sales of today", REPORTS, REPLIES, within=timedelta(seconds=30))
    work_off(REPORTS)
    print("a worker is there:", answers(REPLIES))

    ask_for("sales of ten years", REPORTS, REPLIES, within=timedelta(seconds=2))
    print("all workers are busy; the deadline passes in two seconds ...")
    watch(REPORTS, AT_NIGHT, wait_seconds=10)
    print("the client hears: ", answers(REPLIES))

    work_off(AT_NIGHT)
    print("in the morning:   ", answers(REPLIES))


if __name__ == "__main__":
    main()
