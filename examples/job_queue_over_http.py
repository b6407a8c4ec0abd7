"""The job queue of job_queue.py from the outside: over HTTP, as a program in any language would use it.

Nothing of Vitrine is needed here, only a connection string. Start job_queue.py once, which makes the queue; then, while Vitrine
runs:

    python examples/job_queue_over_http.py "$(python manage.py connection_string examples)"

What is different: a sender is not told that its message was a duplicate, and a lock is a URL, the Location that a receive answers
with. To complete the message is to delete that URL.
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

GONE = 404  # what the answer to a lost lock says


@dataclass
class Job:
    message_id: str
    body: bytes
    location: str


class HttpQueue:
    """A queue by the connection string of its namespace."""

    def __init__(self, connection_string: str, path: str):
        parts = dict(part.split("=", 1) for part in connection_string.split(";"))
        self.namespace = parts["Endpoint"].replace("sb://", "http://").rstrip("/")
        self.policy, self.key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]
        self.messages = f"{self.namespace}/{path}/messages"

    def send(self, body: bytes, message_id: str) -> None:
        self._request("POST", self.messages, body, BrokerProperties=json.dumps({"MessageId": message_id})).close()

    def receive(self, *, wait_seconds: float) -> Job | None:
        """Lock the next message, waiting for one; its lock lasts as long as the queue says."""
        with self._request("POST", f"{self.messages}/head?timeout={wait_seconds}") as answer:
            if answer.status == 204:  # none came
                return None
            properties = json.loads(answer.headers["BrokerProperties"])
            return Job(properties["MessageId"], answer.read(), answer.headers["Location"])

    def complete(self, job: Job) -> bool:
        """Returns whether the lock was still held. If not, another worker has the job by now, and will skip it."""
        try:
            self._request("DELETE", job.location).close()
        except HTTPError as refusal:
            if refusal.code == GONE:
                return False
            raise
        return True

    def _request(self, method: str, url: str, body: bytes | None = None, **headers: str) -> HTTPResponse:
        """Raises HTTPError for a refusal; its body says what was wrong, and whether trying again can help."""
        headers |= {"Authorization": self._token(), "Content-Type": "application/json"}
        return urlopen(Request(url, data=body, headers=headers, method=method), timeout=90)  # longer than the longest wait

    def _token(self, seconds: int = 600) -> str:
        """A proof that we know the key, for the whole namespace, good for ten minutes."""
        resource, expires = quote_plus(self.namespace), str(int(time.time()) + seconds)
        digest = hmac.new(self.key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(digest))
        return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={self.policy}"


def order_payout(jobs: HttpQueue, order: str, account: str, cents: int) -> None:
    jobs.send(json.dumps({"account": account, "cents": cents}).encode(), message_id=f"payout-{order}")


def do_next_job(jobs: HttpQueue, books: Books, *, wait_seconds: float = 0) -> str | None:
    """Do one job, or skip it where the books say that it is done. Returns which, or None if there was no job."""
    job = jobs.receive(wait_seconds=wait_seconds)
    if job is None:
        return None
    is_new = books.pay(job.message_id, **json.loads(job.body))
    jobs.complete(job)
    return "done" if is_new else "skipped"


def main(connection_string: str) -> None:
    jobs, books, order = HttpQueue(connection_string, "payouts"), Books(), uuid4().hex[:8]
    for attempt in ("first", "second"):
        order_payout(jobs, order, "alice", 1999)
        print(f"the {attempt} message for order {order} is accepted")
    print("the worker:", do_next_job(jobs, books, wait_seconds=10))
    print("and then:", do_next_job(jobs, books))
    print(f"alice has {books.balance('alice')} cents")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit('Use: python examples/job_queue_over_http.py "$(python manage.py connection_string examples)"')
    main(sys.argv[1])
