"""The job queue of job_queue.py over HTTP, as a program in any language can use it.

It needs a connection string and no code of Vitrine. Run job_queue.py once, which creates the queue; then, while Vitrine runs:

    python examples/job_queue_over_http.py "$(python manage.py connection_string examples --client site)"

There are two differences: the sender is not told that its message was a duplicate, and a lock is a URL, the Location in the
response to a receive. Deleting that URL completes the message.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from dataclasses import dataclass
from http.client import HTTPResponse
from urllib.error import HTTPError
from urllib.parse import quote_plus
from urllib.request import Request, urlopen
from uuid import uuid4

from books import Books

LOCK_LOST = 404  # the status of the response if the lock was lost


@dataclass
class Job:
    message_id: str
    body: bytes
    location: str
    lock_token: str


class HttpQueue:
    """A queue, by the connection string of its namespace."""

    def __init__(self, connection_string: str, path: str):
        parts = dict(part.split("=", 1) for part in connection_string.split(";"))
        self.namespace = parts["Endpoint"].replace("sb://", "http://").rstrip("/")
        self.policy, self.key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]
        self.messages = f"{self.namespace}/{path}/messages"

    def send(self, body: bytes, message_id: str) -> None:
        self._request("POST", self.messages, body, BrokerProperties=json.dumps({"MessageId": message_id})).close()

    def receive(self, *, wait_seconds: float, completing: Job | None = None) -> Job | None:
        """Lock the next message, waiting for one if necessary. The lock lasts for the queue's lock duration.

        completing: the last job, which is completed first: one request for each job in place of two. If its lock is lost, another
        worker gets the job, and skips it.
        """
        headers = {"Vitrine-Complete": completing.lock_token} if completing else {}
        with self._request("POST", f"{self.messages}/head?timeout={wait_seconds}", **headers) as answer:
            if answer.status == 204:  # no message
                return None
            properties = json.loads(answer.headers["BrokerProperties"])
            return Job(properties["MessageId"], answer.read(), answer.headers["Location"], properties["LockToken"])

    def complete(self, job: Job) -> bool:
        """Returns whether the lock was still valid. If not, another worker gets the job, and skips it."""
        try:
            self._request("DELETE", job.location).close()
        except HTTPError as refusal:
            if refusal.code == LOCK_LOST:
                return False
            raise
        return True

    def _request(self, method: str, url: str, body: bytes | None = None, /, **headers: str) -> HTTPResponse:
        """Raises HTTPError for an error response; its body has the reason, and whether a retry can succeed."""
        headers |= {"Authorization": self._token(), "Content-Type": "application/json"}
        return urlopen(Request(url, data=body, headers=headers, method=method), timeout=90)  # longer than the longest wait

    def _token(self, seconds: int = 600) -> str:
        """A shared-access token for the namespace, valid for ten minutes."""
        resource, expires = quote_plus(self.namespace), str(int(time.time()) + seconds)
        digest = hmac.new(self.key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(digest))
        return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={self.policy}"


def order_payout(jobs: HttpQueue, order: str, account: str, cents: int) -> None:
    jobs.send(json.dumps({"account": account, "cents": cents}).encode(), message_id=f"payout-{order}")


def do_next_job(jobs: HttpQueue, books: Books, *, wait_seconds: float = 0) -> str | None:
    """Process one job, or skip it if it was processed before. Returns "done" or "skipped", or None if there was no job."""
    job = jobs.receive(wait_seconds=wait_seconds)
    if job is None:
        return None
    is_new = books.pay(job.message_id, **json.loads(job.body))
    jobs.complete(job)
    return "done" if is_new else "skipped"


def do_all_jobs(jobs: HttpQueue, books: Books, *, wait_seconds: float = 0) -> list[str]:
    """Process jobs until there are none. Each is completed by the request for the next one."""
    outcomes, job = [], jobs.receive(wait_seconds=wait_seconds)
    while job is not None:
        is_new = books.pay(job.message_id, **json.loads(job.body))
        outcomes.append("done" if is_new else "skipped")
        job = jobs.receive(wait_seconds=wait_seconds, completing=job)
    return outcomes


def main(connection_string: str) -> None:
    jobs, books, order = HttpQueue(connection_string, "payouts"), Books(), uuid4().hex[:8]
    for attempt in ("first", "second"):
        order_payout(jobs, order, "alice", 1999)
        print(f"{attempt} message for order {order} accepted")
    print("the worker:", do_next_job(jobs, books, wait_seconds=10))
    print("next job:", do_next_job(jobs, books))
    for _ in range(3):
        order_payout(jobs, uuid4().hex[:8], "bob", 500)
    print("three more:", do_all_jobs(jobs, books))
    print(f"alice has {books.balance('alice')} cents")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit('Usage: python examples/job_queue_over_http.py "$(python manage.py connection_string examples --client site)"')
    main(sys.argv[1])
