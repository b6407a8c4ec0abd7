"""A certificate for the ports with TLS, and what clients need to trust it."""

from __future__ import annotations

import ssl
from typing import NamedTuple

import pytest


class Certificate(NamedTuple):
    """chain, key: files for the settings TLS_CERTIFICATE and TLS_KEY. authority: the file of the certificate that clients have to
    trust. context: one that trusts it."""

    chain: str
    key: str
    authority: str
    context: ssl.SSLContext


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Certificate:
    """A certificate for localhost and 127.0.0.1."""
    import trustme

    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for pem in issued.cert_chain_pems:
        pem.write_to_path(folder / "certificate.pem", append=True)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    chain, key, trusted = (str(folder / f"{name}.pem") for name in ("certificate", "key", "authority"))
    return Certificate(chain, key, trusted, context)


@pytest.fixture
def with_tls(certificate, settings) -> Certificate:
    """The settings name the certificate."""
    settings.TLS_CERTIFICATE, settings.TLS_KEY = certificate.chain, certificate.key
    return certificate
