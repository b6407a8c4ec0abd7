"""Three services with the same handles: Azurite and the listener's port by Microsoft's client, and the core by its Python API.

Times are whole seconds. What is refused is told as the wire has it: the status, the code, and what the parameter was and may be.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from xml.etree import ElementTree

import requests
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.queue import QueueServiceClient

from broker_core import namespaces, queue_storage
from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.queue_storage.rules.errors import StorageRefusal
from tests.differential.comparison import Told

TICK = timedelta(milliseconds=10)  # what the core's clock goes on by with each call: no two of them are at the same time
NEVER = 9999


@dataclass(frozen=True)
class Handle:
    """What a message is updated and deleted by."""

    id: str
    receipt: Any


@dataclass(frozen=True)
class Stored:
    """What a put tells. life: from the put to the end; None: never. hidden: from the put until it is visible."""

    handle: Handle = field(compare=False)
    life: int | None
    hidden: int

    def __repr__(self) -> str:
        return f"put, for {self.life} s, hidden for {self.hidden} s"


@dataclass(frozen=True)
class Seen:
    """A message as it is got or peeked. count: how often it was got. The rest is None where it was peeked."""

    text: str
    count: int
    life: int | None
    hidden: int | None = None
    handle: Handle | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        shown = "" if self.hidden is None else f", hidden for {self.hidden} s"
        return f"{self.text[:60]!r} got {self.count} times{shown}, for {self.life} s"


@dataclass(frozen=True)
class Changed:
    """What an update tells."""

    handle: Handle = field(compare=False)
    hidden: int

    def __repr__(self) -> str:
        return f"updated, hidden for {self.hidden} s"


class Service(Told):
    """What stories do. Every answer that is a refusal is a text."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name  # of the queue that is meant where none is given

    def put(self, text: Any, queue: str = "", **options: Any) -> Any:
        """options: visibility; life, -1 for ever. Stored, or the refusal."""
        return self._try(lambda: self._put(queue or self.name, text, **options))

    def get(self, count: int | None = None, visibility: int | None = None, queue: str = "") -> Any:
        return self._try(lambda: self._get(queue or self.name, count, visibility))

    def peek(self, count: int | None = None, queue: str = "") -> Any:
        return self._try(lambda: self._peek(queue or self.name, count))

    def update(self, handle: Handle, visibility: int, text: str | None = None, queue: str = "") -> Any:
        """Changed, or the refusal."""
        return self._try(lambda: self._update(queue or self.name, handle, visibility, text))

    def delete(self, handle: Handle, queue: str = "") -> Any:
        return self._try(lambda: self._delete(queue or self.name, handle))

    def one(self, visibility: int | None = None) -> Seen:
        """The message that a get returns."""
        (seen,) = self.get(1, visibility)
        return seen

    def texts(self, visibility: int = 60) -> list[str]:
        """What is visible, in order; it is hidden then."""
        return [seen.text for seen in self.get(32, visibility)]

    def peeked(self) -> list[str]:
        return [seen.text for seen in self.peek(32)]

    def close(self) -> None:
        """End its connections."""

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (HttpResponseError, BrokerError) as refused:
            return self._refused(refused)

    def _refused(self, refused: Any) -> str:
        """The text of a refusal."""
        raise NotImplementedError


class Wire(Service):
    """A service that is called by Microsoft's client. What that would refuse by itself is put into the query behind its back."""

    def __init__(self, url: str, key: str, name: str):
        super().__init__(name)
        credential = {"account_name": url.rpartition("/")[2], "account_key": key}
        self._session = requests.Session()
        transport = RequestsTransport(session=self._session, session_owner=False)
        self._service = QueueServiceClient(url, credential=credential, retry_total=0, transport=transport)
        self._answer: Any = None

    def close(self) -> None:
        self._session.close()

    def create(self, name: str = "", metadata: dict[str, str] | None = None) -> str:
        """created, there, or the refusal."""
        outcome = self._try(lambda: self._queue(name or self.name).create_queue(metadata=metadata))
        return {"204": "there"}.get(outcome, outcome) if isinstance(outcome, str) else "created"

    def drop(self, name: str = "") -> str:
        return self._try(lambda: _done(self._queue(name or self.name).delete_queue()))

    def metadata(self, name: str = "") -> Any:
        return self._try(lambda: dict(self._queue(name or self.name).get_queue_properties().metadata))

    def set_metadata(self, metadata: dict[str, str], name: str = "") -> str:
        return self._try(lambda: _done(self._queue(name or self.name).set_queue_metadata(metadata)))

    def names(self, prefix: str = "") -> Any:
        return self._try(lambda: [queue.name for queue in self._service.list_queues(name_starts_with=prefix)])

    def clear(self, queue: str = "") -> str:
        return self._try(lambda: _done(self._queue(queue or self.name).clear_messages()))

    def count(self, queue: str = "") -> Any:
        return self._try(lambda: self._queue(queue or self.name).get_queue_properties().approximate_message_count)

    def _put(self, queue: str, text: Any, visibility: int | None = None, life: int | None = None) -> Stored:
        sent = self._queue(queue).send_message(text, visibility_timeout=visibility, time_to_live=life)
        hidden = _seconds(sent.inserted_on, sent.next_visible_on)
        return Stored(Handle(sent.id, sent.pop_receipt), _life(sent.inserted_on, sent.expires_on), hidden)

    def _get(self, queue: str, count: int | None, visibility: int | None) -> list[Seen]:
        messages = self._queue(queue).receive_messages(
            messages_per_page=count, visibility_timeout=visibility, raw_response_hook=self._keep_answer
        )
        return [
            Seen(
                m.content,
                m.dequeue_count,
                _life(m.inserted_on, m.expires_on),
                _seconds(self._answered_at(), m.next_visible_on),
                Handle(m.id, m.pop_receipt),
            )
            for m in next(messages.by_page(), [])
        ]

    def _peek(self, queue: str, count: int | None) -> list[Seen]:
        asked = {} if count is None else {"params": {"numofmessages": count}}
        messages = self._queue(queue).peek_messages(**asked)
        return [Seen(m.content, m.dequeue_count, _life(m.inserted_on, m.expires_on)) for m in messages]

    def _update(self, queue: str, handle: Handle, visibility: int, text: str | None) -> Changed:
        updated = self._queue(queue).update_message(
            handle.id, handle.receipt, text, visibility_timeout=visibility, raw_response_hook=self._keep_answer
        )
        return Changed(Handle(handle.id, updated.pop_receipt), _seconds(self._answered_at(), updated.next_visible_on))

    def _delete(self, queue: str, handle: Handle) -> str:
        return _done(self._queue(queue).delete_message(handle.id, handle.receipt))

    def _queue(self, name: str) -> Any:
        return self._service.get_queue_client(name)

    def _keep_answer(self, answer: Any) -> None:
        self._answer = answer.http_response

    def _answered_at(self) -> datetime:
        """The service's time of its last answer, by which it reckoned, in whole seconds."""
        raise NotImplementedError

    def _refused(self, refused: Any) -> str:
        if refused.response is None:
            raise refused
        return _refusal_of(refused.response)


class Azurite(Wire):
    """The emulator, whose clock is the real one."""

    def __init__(self, server: Any, name: str):
        super().__init__(server.url, server.key, name)

    def wait(self, seconds: float) -> None:
        self.close()  # Node.js closes what is idle for 5 s, under the next request; none is sent twice
        time.sleep(seconds)

    def _answered_at(self) -> datetime:
        return parsedate_to_datetime(self._answer.headers["date"])


class Stepped(Service):
    """A service with an account of its own, whose clock goes on as a story waits, and by a tick with each call."""

    account: str

    def pause(self, account: str) -> None:
        self.account = account
        self._now = namespaces.pause_clock(account).now

    def wait(self, seconds: float) -> None:
        self._step(timedelta(seconds=seconds))

    def _step(self, by: timedelta) -> None:
        self._now = namespaces.step_clock(self.account, by).now

    def _try(self, call: Callable[[], Any]) -> Any:
        self._step(TICK)
        return super()._try(call)


class Port(Stepped, Wire):
    """The listener's port. url: of the account there."""

    def __init__(self, url: str, key: str, name: str):
        super().__init__(url, key, name)
        self.pause(url.rpartition("/")[2])

    def _answered_at(self) -> datetime:
        return self._now.replace(microsecond=0)


class Core(Stepped):
    """The core itself."""

    def __init__(self, account: str, name: str):
        super().__init__(name)
        queue_storage.ensure_account(account)
        self.pause(account)

    def create(self, name: str = "", metadata: dict[str, str] | None = None) -> str:
        outcome = self._try(lambda: queue_storage.create_queue(self._at(name or self.name), metadata=metadata))
        return outcome if isinstance(outcome, str) else "created" if outcome.created else "there"

    def drop(self, name: str = "") -> str:
        return self._try(lambda: _done(queue_storage.delete_queue(self._at(name or self.name))))

    def metadata(self, name: str = "") -> Any:
        return self._try(lambda: dict(queue_storage.get_queue(self._at(name or self.name)).metadata))

    def set_metadata(self, metadata: dict[str, str], name: str = "") -> str:
        return self._try(lambda: _done(queue_storage.set_metadata(self._at(name or self.name), metadata)))

    def names(self, prefix: str = "") -> Any:
        return self._try(lambda: [queue.name for queue in queue_storage.list_queues(self.account, prefix)])

    def clear(self, queue: str = "") -> str:
        return self._try(lambda: _done(queue_storage.clear(self._at(queue or self.name))))

    def count(self, queue: str = "") -> Any:
        return self._try(lambda: queue_storage.approximate_count(self._at(queue or self.name)))

    def _put(self, queue: str, text: Any, visibility: int | None = None, life: int | None = None) -> Stored:
        options: dict[str, Any] = {} if visibility is None else {"visibility_timeout": timedelta(seconds=visibility)}
        if life is not None:
            options["time_to_live"] = None if life == -1 else timedelta(seconds=life)
        put = queue_storage.put(self._at(queue), text, **options)
        hidden = _seconds(put.inserted_at, put.visible_at)
        return Stored(Handle(put.message_id, put.pop_receipt), _life(put.inserted_at, put.expires_at), hidden)

    def _get(self, queue: str, count: int | None, visibility: int | None) -> list[Seen]:
        asked: dict[str, Any] = {} if count is None else {"count": count}
        options: dict[str, Any] = {} if visibility is None else {"visibility_timeout": timedelta(seconds=visibility)}
        return [
            Seen(
                m.text,
                m.dequeue_count,
                _life(m.inserted_at, m.expires_at),
                _seconds(self._now, m.visible_at),
                Handle(m.message_id, m.pop_receipt),
            )
            for m in queue_storage.get(self._at(queue), **asked, **options)
        ]

    def _peek(self, queue: str, count: int | None) -> list[Seen]:
        asked: dict[str, Any] = {} if count is None else {"count": count}
        messages = queue_storage.peek(self._at(queue), **asked)
        return [Seen(m.text, m.dequeue_count, _life(m.inserted_at, m.expires_at)) for m in messages]

    def _update(self, queue: str, handle: Handle, visibility: int, text: str | None) -> Changed:
        hidden = timedelta(seconds=visibility)
        updated = queue_storage.update(self._at(queue), handle.id, handle.receipt, visibility_timeout=hidden, text=text)
        return Changed(Handle(handle.id, updated.pop_receipt), _seconds(self._now, updated.visible_at))

    def _delete(self, queue: str, handle: Handle) -> str:
        return _done(queue_storage.delete(self._at(queue), handle.id, handle.receipt))

    def _at(self, queue: str) -> EntityAddress:
        return EntityAddress(self.account, queue)

    def _refused(self, refused: Any) -> str:
        if isinstance(refused, StorageRefusal):
            return _refusal(refused.status, refused.code, refused.details)
        return f"{type(refused).__name__} {refused}"


def _done(_: Any) -> str:
    return "done"


def _seconds(since: datetime, until: datetime) -> int:
    return round((until - since).total_seconds())


def _life(since: datetime, until: datetime | None) -> int | None:
    return None if until is None or until.year == NEVER else _seconds(since, until)


def _refusal_of(answer: Any) -> str:
    """Of an answer on the wire."""
    details = {}
    if answer.text():
        details = {element.tag: element.text for element in ElementTree.fromstring(answer.text())}
    return _refusal(answer.status_code, answer.headers.get("x-ms-error-code", ""), details)


def _refusal(status: int, code: str, details: Any) -> str:
    """With the details that a program reads; the prose is each service's own."""
    parts = [f"{name}={details[name]}" for name in sorted(details) if name not in ("Code", "Message", "Reason")]
    return re.sub(r" +", " ", " ".join([str(status), code, *parts])).strip()
