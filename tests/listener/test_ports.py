"""Which ports are opened, and what is said of those that cannot be."""

import socket

import pytest

from broker_core.listener import ports
from broker_core.listener.front_ends import known_ports
from broker_core.listener.ports import Opened

DEFAULTS = {
    "SERVICE_BUS_PORT": 5300, "SERVICE_BUS_TLS_PORT": 5301, "QUEUE_STORAGE_PORT": 10001, "QUEUE_STORAGE_TLS_PORT": 10011,
    "AMQP_PORT": 5672, "AMQPS_PORT": 5671,
}  # fmt: skip
PLAIN = ["SERVICE_BUS_PORT", "QUEUE_STORAGE_PORT", "AMQP_PORT"]


@pytest.fixture
def free_ports(settings):
    """All ports have free numbers."""
    for name in DEFAULTS:
        with socket.create_server(("127.0.0.1", 0)) as free:
            setattr(settings, name, free.getsockname()[1])


def opened():
    found = ports.open_all(known_ports())
    for listening in found.sockets.values():
        listening.close()
    return found


def test_the_default_ports_are_those_that_clients_expect():
    from explorer.site import settings

    assert {port.setting: getattr(settings, port.setting) for port in known_ports()} == DEFAULTS
    assert settings.LISTEN_HOST == "127.0.0.1"


def test_without_a_certificate_the_ports_without_tls_are_open(free_ports):
    assert sorted(opened().sockets) == sorted(PLAIN) and not opened().problems


def test_with_a_certificate_the_ports_with_tls_are_open_too(free_ports, with_tls):
    assert sorted(opened().sockets) == sorted(DEFAULTS) and not opened().problems


@pytest.mark.parametrize("name", DEFAULTS)
def test_zero_turns_a_port_off(free_ports, with_tls, settings, name):
    setattr(settings, name, 0)
    assert sorted(opened().sockets) == sorted(set(DEFAULTS) - {name})


def test_a_port_in_use_is_named_with_what_to_do_and_the_others_are_opened(free_ports, settings):
    with socket.create_server(("127.0.0.1", settings.QUEUE_STORAGE_PORT)):
        found = opened()
    assert sorted(found.sockets) == ["AMQP_PORT", "SERVICE_BUS_PORT"]
    assert found.problems == [
        f"Port {settings.QUEUE_STORAGE_PORT} (Queue Storage) is in use by another program, and clients cannot connect there. "
        "Set QUEUE_STORAGE_PORT to another, or to 0."
    ]


def test_a_port_on_which_nothing_is_served_is_left_to_another_program(free_ports, settings):
    with socket.create_server(("127.0.0.1", settings.AMQP_PORT)):
        found = opened()
    assert sorted(found.sockets) == ["QUEUE_STORAGE_PORT", "SERVICE_BUS_PORT"] and not found.problems


def test_a_number_that_is_no_port_and_a_host_that_is_not_here_are_named(free_ports, settings):
    settings.AMQP_PORT = 99999
    assert "Port 99999 (AMQP, not served yet) cannot be used" in opened().problems[0] and "Set AMQP_PORT" in opened().problems[0]
    settings.LISTEN_HOST = "192.0.2.1"
    found = opened()
    assert not found.sockets and len(found.problems) == 3
    assert all("LISTEN_HOST to an address of this machine" in problem for problem in found.problems)


def test_a_certificate_that_cannot_be_used_turns_off_the_ports_with_tls_only(free_ports, settings, certificate, tmp_path):
    settings.TLS_CERTIFICATE, settings.TLS_KEY = certificate.chain, certificate.key
    for name, value, said in (
        ("TLS_KEY", "", "TLS_CERTIFICATE is set, and TLS_KEY is not"),
        ("TLS_KEY", str(tmp_path / "none.pem"), "none.pem cannot be used"),
        ("TLS_CERTIFICATE", __file__, "cannot be used"),
    ):
        before = getattr(settings, name)
        setattr(settings, name, value)
        found = opened()
        assert sorted(found.sockets) == sorted(PLAIN)
        [problem] = found.problems
        assert said in problem and problem.startswith("No TLS port is open: ")
        setattr(settings, name, before)


def test_a_certificate_that_cannot_be_used_any_more_leaves_the_ports_without_tls(free_ports, with_tls, settings):
    known, found = list(known_ports()), opened()
    assert ports.passed_on(known, found.sockets, ["One is taken."]) == Opened(found.sockets, ["One is taken."])
    settings.TLS_CERTIFICATE = __file__
    left = ports.passed_on(known, found.sockets, ["One is taken."])
    assert sorted(left.sockets) == sorted(PLAIN)
    assert left.problems[0] == "One is taken." and left.problems[1].startswith("No TLS port is open: ")
    assert ports.passed_on(known, left.sockets, left.problems) == left


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(free_ports, settings, certificate, tmp_path):
    from cryptography.hazmat.primitives import serialization

    with open(certificate.key, "rb") as file:
        key = serialization.load_pem_private_key(file.read(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "key.pem").write_bytes(encrypted)
    settings.TLS_CERTIFICATE, settings.TLS_KEY = certificate.chain, str(tmp_path / "key.pem")
    assert "the key is encrypted; use one without a password" in opened().problems[0]
