"""What clients do with messages: send, receive, settle, renew, peek, schedule, cancel, resubmit, purge.

Each function is a use case (see store.driver): call it for the answer now, `await name.aio(...)` under asyncio,
`name.steps(...)` to compose.
All take an `actor`; without one the calling process itself acts, with all rights. They raise the refusals of semantics.errors,
and nothing is stored or changed when they do. Rights: Send to send, schedule and cancel, Listen to receive, settle and peek,
Operate to resubmit and purge.
"""

from .operating import purge, resubmit
from .receiving import peek, receive, receive_and_delete, receive_deferred, receive_from
from .sending import cancel_scheduled, send
from .settling import abandon, complete, dead_letter, defer, release, renew

__all__ = [
    "abandon",
    "cancel_scheduled",
    "complete",
    "dead_letter",
    "defer",
    "peek",
    "purge",
    "receive",
    "receive_and_delete",
    "receive_deferred",
    "receive_from",
    "release",
    "renew",
    "resubmit",
    "send",
]
