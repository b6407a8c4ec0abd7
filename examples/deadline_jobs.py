"""Jobs with a deadline, and a client that is notified when its job expires.

A client wants a report within half a minute. The deadline is the message's time-to-live: a worker never receives an expired job,
so no work is done for a client that has stopped waiting. The queue dead-letters expired messages. A watcher receives them,
notifies the client, and sends the job to a slower queue without a deadline, which is processed at night.

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
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import LockedMessage, Message, entities

REPORTS = EntityAddress("examples", "reports")
AT_NIGHT = EntityAddress("examples", "reports-at-night")
REPLIES = EntityAddress("examples", "replies-of-one-client")

EXPIRED = "TTLExpiredException"  # the broker's dead-letter reason


def create_queues(reports: EntityAddress, at_night: EntityAddress, replies: EntityAddress) -> None:
    namespaces.ensure_namespace(reports.namespace, Family.SERVICE_BUS)
    entities.ensure_queue(reports, dead_lettering_on_message_expiration=True)  # otherwise expired messages are dropped
    entities.ensure_queue(at_night)
    entities.ensure_queue(replies)


# The client


def ask_for(report: str, reports: EntityAddress, replies: EntityAddress, *, within: timedelta) -> str:
    """Send the job with the deadline as its time-to-live. Returns the job's id, the correlation id of its replies."""
    job = str(uuid4())
    service_bus.send(reports, [Message(report.encode(), message_id=job, reply_to=replies.path, time_to_live=within)])
    return job


def answers(replies: EntityAddress, *, wait_seconds: float = 0) -> list[tuple[str, str, str]]:
    """The replies so far: the job's id, its outcome ("done", "expired" or "failed"), and the text."""
    messages = service_bus.receive_and_delete(replies, 100, max_wait_seconds=wait_seconds)
    return [(message.correlation_id, message.subject, message.body.decode()) for message in messages]


def place_of_reply(job: LockedMessage) -> EntityAddress:
    return EntityAddress(job.address.namespace, job.broker_properties["reply_to"])


def answer_to(job: LockedMessage, what: str, text: str) -> Message:
    """A reply, whose correlation id is the job's message id."""
    return Message(text.encode(), subject=what, correlation_id=job.message_id)


# The worker, the same for both queues


def work_off(queue: EntityAddress) -> int:
    """Write up to ten waiting reports. Returns how many."""
    jobs = service_bus.receive(queue, 10)
    for job in jobs:
        report = f"Report: {job.body.decode()}"
        with service_bus.transaction(via=queue) as together:  # reply and complete, or neither
            together.send(place_of_reply(job), [answer_to(job, "done", report)])
            together.complete(queue, job.lock_token)
    return len(jobs)


# The watcher


def watch(reports: EntityAddress, at_night: EntityAddress, *, wait_seconds: float = 0) -> int:
    """Process dead letters: reply to each client, and send expired jobs to the slower queue. Returns how many there were.

    Each job is one transaction. If the watcher fails within it, nothing is changed, and another watcher gets the job when the
    lock ends: no client is notified twice, and no report is written twice.
    """
    late = service_bus.receive(reports.dead_letter, 10, max_wait_seconds=wait_seconds)
    for job in late:
        with service_bus.transaction(via=reports) as together:
            if job.dead_letter_reason == EXPIRED:
                answer = answer_to(job, "expired", "The report was not ready in time. You will get it tomorrow.")
                again = Message(job.body, message_id=job.message_id, reply_to=job.broker_properties["reply_to"])
                together.send(at_night, [again])
            else:  # every delivery failed; another attempt would not help
                answer = answer_to(job, "failed", job.dead_letter_description or job.dead_letter_reason)
            together.send(place_of_reply(job), [answer])
            together.complete(reports.dead_letter, job.lock_token)
    return len(late)


def main() -> None:
    create_queues(REPORTS, AT_NIGHT, REPLIES)

    ask_for("sales of today", REPORTS, REPLIES, within=timedelta(seconds=30))
    work_off(REPORTS)
    print("with a worker:           ", answers(REPLIES))

    ask_for("sales of ten years", REPORTS, REPLIES, within=timedelta(seconds=2))
    print("without a worker, the job expires in two seconds ...")
    watch(REPORTS, AT_NIGHT, wait_seconds=10)
    print("reply to the client:     ", answers(REPLIES))

    work_off(AT_NIGHT)
    print("after the night's worker:", answers(REPLIES))


if __name__ == "__main__":
    main()
