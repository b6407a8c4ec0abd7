"""kombu's transport: what a connection is. `vitrine://<django database alias>/<namespace>`; both may be left out."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import cached_property
from queue import Empty
from typing import Any

import psycopg
from kombu.transport import virtual
from kombu.utils.scheduling import FairCycle

from broker_core import entities
from broker_core.semantics.errors import BrokerError, BrokerUnavailable, ServerBusy, StorageFull
from broker_core.semantics.types import Actor, Tier
from broker_core.store.connections import Database, using

from .channel import Channel

logger = logging.getLogger(__name__)

DEFAULT_ALIAS = "default"
DEFAULT_NAMESPACE = "celery"
_NO_ALIAS = (None, "", "localhost", "local")


class Transport(virtual.Transport):
    """A connection holds no socket of its own: the broker keeps one to the database a thread, and checks it after a fork."""

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
        asynchronous=False, heartbeats=False, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.declared: dict[str, dict[str, Any]] = {}  # queue -> how it was declared here
        self.room = threading.Event()  # set when a channel whose prefetch was used up may take again

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
            self.call(entities.ensure_namespace, self.namespace, tier=Tier.PREMIUM, actor=self.actor)
        except psycopg.errors.UndefinedTable as exc:
            raise BrokerError("The database has no Vitrine tables. Run `manage.py migrate` of the Vitrine site once.") from exc
        return super().establish_connection()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # type: ignore[override]  # as kombu's virtual one
        """Deliver one message. Raises TimeoutError (socket.timeout) when none came in time."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        while True:
            self.room.clear()
            try:
                return self.cycle.get(self._deliver, timeout=timeout)
            except Empty:
                left = self.polling_interval if ends_at is None else min(self.polling_interval, ends_at - time.monotonic())
            if left <= 0:
                raise TimeoutError()
            self.room.wait(left)

    def call(self, use_case: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a broker use case on this connection's database."""
        with using(self.database):
            return use_case(*args, **kwargs)

    def quietly(self, action: Callable[..., Any], *args: Any) -> None:
        """Do something that only tidies up, also while the connection is being lost."""
        try:
            action(*args)
        except (BrokerError, *self.connection_errors) as exc:
            logger.debug("Left undone: %s", exc)
