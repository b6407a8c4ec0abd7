"""kombu's transport, which is a connection: `vitrine://<django database alias>/<namespace>`; both parts are optional."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from queue import Empty
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from kombu.transport import virtual
from kombu.utils.scheduling import FairCycle

from broker_core import namespaces
from broker_core.common.errors import BrokerError, BrokerUnavailable, ServerBusy, StorageFull
from broker_core.common.types import Actor, Tier
from broker_core.store.connections import Database, database_of, using

from . import FAMILY
from .channel import GATHERING_SECONDS, MOST_AT_ONCE, Channel

logger = logging.getLogger(__name__)

DEFAULT_ALIAS = "default"
DEFAULT_NAMESPACE = "celery"
_NO_ALIAS = (None, "", "localhost", "local")
SECONDS_BETWEEN_LOOKS = 1.0  # without being woken: a signal that ends the worker does not end its wait. Runs no statement.


class _LoopWaker:
    """Makes a worker's event loop (kombu's Hub) iterate on `wake`. A loop without readers only sleeps."""

    def __init__(self, loop: Any, on_tick: Callable[[], None]) -> None:
        self._loop, self._on_tick = loop, on_tick
        self._timer: Any = None  # of `wake_after`
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        loop.add_reader(self._reader, self._drain)
        self._regular = loop.call_repeatedly(SECONDS_BETWEEN_LOOKS, self.wake)
        loop.on_tick.add(on_tick)

    def wake(self) -> None:
        """Make the loop iterate. Thread-safe."""
        with suppress(OSError):  # the buffer is full, so the loop will iterate; or the socket is closed
            self._writer.send(b"\0")

    def wake_after(self, seconds: float) -> None:
        """Make the loop iterate after this time, if it is not to do so already. For the loop's thread."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._timed)
            self.wake()  # in this iteration the loop has already decided how long it sleeps

    def _timed(self) -> None:
        self._timer = None  # timers run at the beginning of an iteration

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            self._reader.recv(4096)

    def close(self) -> None:
        for timer in filter(None, (self._regular, self._timer)):
            timer.cancel()
        self._loop.on_tick.discard(self._on_tick)
        self._loop.remove_reader(self._reader)
        self._reader.close()
        self._writer.close()


class Transport(virtual.Transport):
    """A connection has no socket of its own: the broker has one database connection per thread, and checks it after a fork.

    It is `asynchronous` because of Celery's prefork pool. Without an event loop the pool's children share one pipe and its lock:
    if a child is killed while it waits for work, the lock is never released, and the worker stops running tasks.
    """

    client: Any  # kombu's Connection
    cycle: FairCycle

    Channel = Channel
    driver_type = "vitrine"
    driver_name = "psycopg"
    default_port = None
    can_parse_url = False
    connection_errors = (  # type: ignore[assignment]  # mypy infers the type from kombu's tuple of one class
        *virtual.Transport.connection_errors,
        BrokerUnavailable,
        ServerBusy,
        StorageFull,
        psycopg.OperationalError,
        psycopg.InterfaceError,
    )
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, heartbeats=False, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.declared: dict[str, dict[str, Any]] = {}  # queue -> arguments of its declaration in this process
        self._woken = threading.Event()  # set when messages may have arrived, and when a full channel can receive again
        self._is_gathering = False  # whether a channel waits for prefetch capacity to gather
        self._waker: _LoopWaker | None = None  # in a worker with an event loop

    @cached_property
    def database(self) -> Database:
        """Given by the transport option `dsn`, or by the alias of a Django database as the URL's host; else the namespace's."""
        dsn = self.client.transport_options.get("dsn")
        host = self.client.hostname
        if dsn:
            return Database(dsn=dsn)
        return database_of(self.namespace) if host in _NO_ALIAS else Database(host)

    @cached_property
    def namespace(self) -> str:
        return (self.client.virtual_host or "").strip("/") or DEFAULT_NAMESPACE

    @cached_property
    def actor(self) -> Actor:
        """The holder of locks: host and process."""
        return Actor.local(f"celery@{socket.gethostname()}:{os.getpid()}")

    @property
    def default_connection_params(self) -> dict[str, Any]:
        return {"hostname": DEFAULT_ALIAS, "virtual_host": DEFAULT_NAMESPACE}

    def driver_version(self) -> str:
        return psycopg.__version__

    def establish_connection(self) -> Transport:
        """Connect to the database and create the namespace if needed. Raises one of connection_errors if kombu should retry."""
        try:
            self.call(namespaces.ensure_namespace, self.namespace, FAMILY, tier=Tier.PREMIUM, actor=self.actor)
        except ImproperlyConfigured as exc:
            raise BrokerError(
                "The Django settings name no database. Outside Django, set broker_transport_options['dsn'] of the Celery app to "
                "the PostgreSQL database of the Vitrine site, such as 'postgresql://shop:secret@db.example.com/vitrine'."
            ) from exc
        except psycopg.errors.UndefinedTable as exc:
            raise BrokerError("The database has no Vitrine tables. Run `manage.py migrate` on the Vitrine site once.") from exc
        return super().establish_connection()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver messages at each iteration of the worker's event loop: for each result, on `wake`, and when prefetch capacity
        has gathered. Without messages an iteration needs no statement."""
        self._waker = _LoopWaker(loop, self._deliver_batch)

    def close_connection(self, connection: Any) -> None:
        if self._waker is not None:
            self._waker.close()
            self._waker = None
        super().close_connection(connection)

    def _deliver_batch(self) -> None:
        """Deliver available messages, at most MOST_AT_ONCE, so that the loop can do other work in between."""
        has_delivered = False
        with suppress(Empty):
            for _ in range(MOST_AT_ONCE):
                self.cycle.get(self._deliver, timeout=0)
                has_delivered = True
        if has_delivered:
            self.wake()  # a prefork pool hands tasks to its processes in the next iteration

    def wake(self) -> None:
        """There may be messages or prefetch capacity: check now. Thread-safe."""
        self._woken.set()
        if (waker := self._waker) is not None:
            waker.wake()

    def wake_when_gathered(self) -> None:
        """Wait for prefetch capacity to accumulate: check again after GATHERING_SECONDS. Called by the delivering thread."""
        self._is_gathering = True
        if self._waker is not None:
            self._waker.wake_after(GATHERING_SECONDS)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # type: ignore[override]  # as kombu's virtual one
        """Deliver one message. Raises TimeoutError (socket.timeout) if none arrives in time."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        while True:
            self._woken.clear()
            self._is_gathering = False
            try:
                return self.cycle.get(self._deliver, timeout=timeout)
            except Empty:
                wait = GATHERING_SECONDS if self._is_gathering else SECONDS_BETWEEN_LOOKS
            left = wait if ends_at is None else min(wait, ends_at - time.monotonic())
            if left <= 0:
                raise TimeoutError()
            self._woken.wait(left)

    def call(self, use_case: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a broker use case on this connection's database."""
        with using(self.database):
            return use_case(*args, **kwargs)

    def call_ignoring_errors(self, action: Callable[..., Any], *args: Any) -> None:
        """Run a clean-up action; it may fail, for example while the connection is being lost."""
        try:
            action(*args)
        except (BrokerError, *self.connection_errors) as exc:
            logger.debug("Not done: %s", exc)
