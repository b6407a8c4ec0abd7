"""kombu's transport: what a connection is. `vitrine://<django database alias>/<namespace>`; both may be left out."""

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
from kombu.transport import virtual
from kombu.utils.scheduling import FairCycle

from broker_core import namespaces
from broker_core.common.errors import BrokerError, BrokerUnavailable, ServerBusy, StorageFull
from broker_core.common.types import Actor, Tier
from broker_core.store.connections import Database, using

from .channel import GATHERING_SECONDS, MOST_AT_ONCE, Channel

logger = logging.getLogger(__name__)

DEFAULT_ALIAS = "default"
DEFAULT_NAMESPACE = "celery"
_NO_ALIAS = (None, "", "localhost", "local")


class _Bell:
    """Turns a worker's event loop (kombu's Hub) at intervals and when it is rung: one that reads from nothing only sleeps."""

    def __init__(self, loop: Any, on_turn: Callable[[], None], interval: float) -> None:
        self._loop, self._on_turn = loop, on_turn
        self._heard, self._rung = socket.socketpair()
        self._heard.setblocking(False)
        self._rung.setblocking(False)
        loop.add_reader(self._heard, self._hush)
        loop.call_repeatedly(interval, self.ring)
        loop.on_tick.add(on_turn)

    def ring(self) -> None:
        """From any thread."""
        with suppress(OSError):  # full, so it rings already; or closed
            self._rung.send(b"\0")

    def _hush(self) -> None:
        with suppress(BlockingIOError):
            self._heard.recv(4096)

    def close(self) -> None:
        self._loop.on_tick.discard(self._on_turn)
        self._loop.remove_reader(self._heard)
        self._heard.close()
        self._rung.close()


class Transport(virtual.Transport):
    """A connection holds no socket of its own: the broker keeps one to the database a thread, and checks it after a fork.

    It is `asynchronous` for the sake of Celery's prefork pool. Without an event loop the pool's children share one pipe and its
    lock: a child that is killed while it waits for work takes the lock with it, and the worker runs nothing from then on.
    """

    client: Any  # kombu's Connection
    cycle: FairCycle

    Channel = Channel
    driver_type = "vitrine"
    driver_name = "psycopg"
    default_port = None
    can_parse_url = False
    polling_interval = 0.05
    connection_errors = (  # type: ignore[assignment]  # kombu's own tuple of one class is taken for the type
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
        self.declared: dict[str, dict[str, Any]] = {}  # queue -> how it was declared here
        self._room = threading.Event()  # set when a channel whose prefetch was used up may take again
        self._bell: _Bell | None = None  # in a worker that has an event loop

    @cached_property
    def database(self) -> Database:
        """The transport option `dsn`, or the alias of a Django database in the place of the host."""
        dsn = self.client.transport_options.get("dsn")
        host = self.client.hostname
        return Database(dsn=dsn) if dsn else Database(alias=DEFAULT_ALIAS if host in _NO_ALIAS else host)

    @cached_property
    def namespace(self) -> str:
        return (self.client.virtual_host or "").strip("/") or DEFAULT_NAMESPACE

    @cached_property
    def actor(self) -> Actor:
        """Who is named as a lock's holder: the host and the process."""
        return Actor.local(f"celery@{socket.gethostname()}:{os.getpid()}")

    @property
    def default_connection_params(self) -> dict[str, Any]:
        return {"hostname": DEFAULT_ALIAS, "virtual_host": DEFAULT_NAMESPACE}

    def driver_version(self) -> str:
        return psycopg.__version__

    def establish_connection(self) -> Transport:
        """Reach the database and make sure that the namespace is there.

        Raises one of connection_errors where trying again can help, which kombu then does.
        """
        try:
            self.call(namespaces.ensure_namespace, self.namespace, tier=Tier.PREMIUM, actor=self.actor)
        except psycopg.errors.UndefinedTable as exc:
            raise BrokerError("The database has no Vitrine tables. Run `manage.py migrate` on the Vitrine site once.") from exc
        return super().establish_connection()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver whenever the worker's event loop turns, which it does for each result, and at every interval."""
        self._bell = _Bell(loop, self._look, min(self.polling_interval, GATHERING_SECONDS))

    def close_connection(self, connection: Any) -> None:
        if self._bell is not None:
            self._bell.close()
            self._bell = None
        super().close_connection(connection)

    def _look(self) -> None:
        """Deliver what is there, up to a batch: the loop has more to do before the next one."""
        with suppress(Empty):
            for _ in range(MOST_AT_ONCE):
                self.cycle.get(self._deliver, timeout=0)
            self.look_again()

    def look_again(self) -> None:
        """Do not wait for the interval's end: there may be something to take, or room for it. From any thread."""
        self._room.set()
        if (bell := self._bell) is not None:
            bell.ring()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # type: ignore[override]  # as kombu's virtual one
        """Deliver one message. Raises TimeoutError (socket.timeout) when none came in time."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        while True:
            self._room.clear()
            try:
                return self.cycle.get(self._deliver, timeout=timeout)
            except Empty:
                left = self.polling_interval if ends_at is None else min(self.polling_interval, ends_at - time.monotonic())
            if left <= 0:
                raise TimeoutError()
            self._room.wait(left)

    def call(self, use_case: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a broker use case on this connection's database."""
        with using(self.database):
            return use_case(*args, **kwargs)

    def quietly(self, action: Callable[..., Any], *args: Any) -> None:
        """Do something that only tidies up, also while the connection is being lost."""
        try:
            action(*args)
        except (BrokerError, *self.connection_errors) as exc:
            logger.debug("Not done: %s", exc)
