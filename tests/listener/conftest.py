"""Certificates, and applications of the tests' own behind a listener."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.wire.listening import ListenerThread, listening


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost, the settings TLS_CERTIFICATE and TLS_KEY as a pair of paths, and a context that trusts it."""
    import trustme

    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for pem in issued.cert_chain_pems:
        pem.write_to_path(folder / "certificate.pem", append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return str(folder / "certificate.pem"), str(folder / "key.pem"), context


@pytest.fixture
def with_tls(certificate, settings) -> ssl.SSLContext:
    """The settings name a certificate. Returns a context that trusts it."""
    settings.TLS_CERTIFICATE, settings.TLS_KEY, context = certificate
    return context


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
