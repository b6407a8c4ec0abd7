"""Applications of the tests' own behind a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.wire.listening import ListenerThread, listening


@pytest.fixture
def serve() -> Iterator[Callable[..., ListenerThread]]:
    """serve(application): a listener with one HTTP port, QUEUE_STORAGE_PORT. serve(amqp=[...]): with the AMQP port.
    serve(): all of the product's that need no certificate. with_tls=True: the ports with TLS instead."""
    from broker_core.listener.ports import HttpFrontEnd, known

    with ExitStack() as stack:

        def start(application=None, *, amqp=(), settings=None, with_tls=False) -> ListenerThread:
            if application is None and not amqp and settings is None:
                return stack.enter_context(listening())
            http = [HttpFrontEnd("QUEUE_STORAGE", "Tests", application)]
            names = settings or (["QUEUE_STORAGE_TLS_PORT"] if with_tls else ["QUEUE_STORAGE_PORT", "AMQP_PORT"])
            return stack.enter_context(listening(names, list(known(http, amqp))))

        yield start
