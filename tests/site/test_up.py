"""`manage.py up` as a process: what it serves, what it refuses in words, and how it stops."""

import os
import re
import socket
from contextlib import suppress
from io import StringIO
from pathlib import Path

import httpx
import psutil
import pytest

from explorer.site.supervisor import up as supervisor
from tests.eventually import eventually

from .vitrine import Vitrine, free_port, manage

STATIC_FILE = re.compile(r"(?:src|href)=\"(/tools/vitrine/static/[^\"]+)\"")


@pytest.fixture(scope="module")
def vitrine():
    with Vitrine(PATH_PREFIX="/tools/vitrine") as running:
        yield running


@pytest.mark.slow
def test_every_part_reports_its_health(vitrine):
    parts = eventually(lambda: (health := vitrine.health()) and health["worker"]["state"] == "ok" and health, 30)
    assert {name: part["state"] for name, part in parts.items() if name != "java"} == {
        "web": "ok", "database": "ok", "listener": "ok", "worker": "ok", "beat": "ok", "disk": "ok"
    }  # fmt: skip


@pytest.mark.slow
def test_network_clients_are_served_and_a_restarted_listener_has_the_same_ports(vitrine):
    """A client that connects while none runs waits in the socket's queue."""
    url = f"http://127.0.0.1:{vitrine.service_bus_port}/health"
    assert httpx.get(url, timeout=10).json()["status"] == "healthy"
    before = vitrine.process("listener").pid
    vitrine.kill("listener")
    eventually(lambda: (health := vitrine.health()) and health["listener"]["state"] == "not running", 10)
    assert httpx.get(url, timeout=30).json()["status"] == "healthy"
    assert vitrine.process("listener").pid != before
    ports = {
        "Queue Storage": vitrine.queue_storage_port,
        "Service Bus REST and Service Bus administration": vitrine.service_bus_port,
    }
    assert eventually(lambda: (health := vitrine.health()) and health["listener"].get("ports") == ports, 10)


@pytest.mark.slow
def test_a_port_for_clients_that_is_in_use_is_reported_and_the_rest_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = Vitrine(QUEUE_STORAGE_PORT=str(port))
        try:
            other.up()
            said = f"Port {port} (Queue Storage) is in use by another program, and clients cannot connect there."
            assert f"{said} Set QUEUE_STORAGE_PORT to another, or to 0." in other.output
            assert httpx.get(f"http://127.0.0.1:{other.service_bus_port}/health", timeout=30).status_code == 200
            assert eventually(lambda: other.health()["listener"]["state"] == "some ports are not open", 10)
        finally:
            other.remove()


def test_the_start_prints_its_steps_and_the_link(vitrine):
    said = [line.partition(" | ")[2] for line in vitrine.output.splitlines() if line.startswith("      up |")]
    assert said[:6] == [
        f"starting PostgreSQL in {vitrine.data / 'postgres'}",
        "creating or updating the tables",
        "setting up roles",
        "collecting the static files",
        "starting web, listener, worker, analysis, beat",
        "",
    ]
    assert said[6].startswith("Vitrine is at ")


def test_the_link_follows_when_a_slow_web_server_responds(monkeypatch, capsys):
    slow = supervisor.Up(wanted_port=8000)
    slow._owns_postgres = False
    answers = iter([False, False, False, True])

    def print_link(command: str, port: int, stdout: StringIO) -> None:
        stdout.write("http://the-link")
        slow._stopping.set()

    monkeypatch.setattr(supervisor, "WEB_LATE_SECONDS", 0)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(supervisor, "_answers", lambda url: next(answers))
    monkeypatch.setattr(supervisor, "call_command", print_link)
    slow._watch(folder=None, bound_port=8000)
    printed = capsys.readouterr().out
    assert printed.count("the web server has not responded yet") == 1
    assert "Sign in with this one-time link: http://the-link" in printed


def test_nobody_can_connect_while_the_parts_stop():
    stopping = supervisor.Up(wanted_port=8000)
    stopping._owns_postgres = False
    connectable = []

    class Part:
        name = "listener"

        def ask_to_stop(self):
            with suppress(ConnectionRefusedError), socket.create_connection(address):
                connectable.append(address)

        def wait(self, seconds, hurry):
            pass

    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    stopping._children = [Part()]
    stopping._stop([listening])
    assert not connectable


def _sign_in(client: httpx.Client, link: str) -> httpx.Response:
    token = client.get(link).text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    return client.post(link, data={"csrfmiddlewaretoken": token}, headers={"Referer": link})


def test_the_link_signs_in_once_and_pages_and_files_have_the_prefix(vitrine):
    link = vitrine.sign_in_link()
    assert link.startswith(vitrine.url + "/sign-in/")
    with httpx.Client(follow_redirects=True) as client:
        assert _sign_in(client, link).url.path == "/tools/vitrine/"
        assert client.get(f"{vitrine.url}/static/explorer/app.css").status_code == 200
        assert client.get(f"http://127.0.0.1:{vitrine.port}/sign-in/").status_code == 200  # behind a proxy that strips the prefix
    assert "This link has already been used." in httpx.get(link).text


def test_a_first_load_is_small_and_its_files_are_cached(vitrine):
    """60 KB as they come over the line, with headers, in 8 requests; each file under a name of its content's, which a browser
    never asks for again."""
    with httpx.Client(follow_redirects=True, headers={"Accept-Encoding": "gzip"}) as client:
        link = manage("sign_in_link", data=vitrine.data, PORT=str(vitrine.port), PATH_PREFIX="/tools/vitrine").stdout.strip()
        answer = _sign_in(client, link)
        assert answer.url.path == "/tools/vitrine/"
        files = [client.get(f"http://127.0.0.1:{vitrine.port}{path}") for path in set(STATIC_FILE.findall(answer.text))]
    assert 5 <= len(files) <= 7
    assert all(answer.headers["Content-Encoding"] == "gzip" for answer in [answer, *files])
    assert all("immutable" in file.headers["Cache-Control"] for file in files)
    headers = sum(len(name) + len(value) + 4 for part in [answer, *files] for name, value in part.headers.raw)
    assert headers + sum(part.num_bytes_downloaded for part in [answer, *files]) < 60 * 1024


@pytest.mark.slow
def test_a_second_start_on_the_same_folder_names_the_running_process(vitrine):
    second = manage("up", data=vitrine.data, PORT=str(free_port()))
    assert second.returncode == 1
    assert f"already running on {vitrine.data}: process {vitrine.supervisor.pid}" in second.stderr
    assert "VITRINE_DATA=" in second.stderr
    assert "Traceback" not in second.stderr
    assert vitrine.supervisor.poll() is None


@pytest.mark.slow
def test_a_separate_command_uses_the_running_database(vitrine):
    before = vitrine.process("postgres").pid
    assert manage("sign_in_link", data=vitrine.data).stdout.startswith("http://127.0.0.1:8000/sign-in/")
    assert vitrine.process("postgres").pid == before


def test_no_other_user_can_reach_the_database(vitrine):
    assert (vitrine.data / "postgres").stat().st_mode & 0o077 == 0
    kinds = {connection.family for connection in vitrine.process("postgres").net_connections() if connection.status == "LISTEN"}
    assert socket.AF_INET not in kinds
    assert (vitrine.data / "secret_key").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_port_in_use_is_reported_before_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = manage("up", data=tmp_path, PORT=str(port))
    assert refused.returncode == 1
    assert f"Port {port} is in use by another program. Choose another: make up PORT={port + 1}" in refused.stderr
    assert not (tmp_path / "postgres").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"PORT": "http"}, "PORT must be a number"),
        ({"PORT": "99999"}, "Port 99999 cannot be used"),
        ({"DATABASE_URL": "mysql://me@here/db"}, "DATABASE_URL must look like postgresql://"),
        ({"DATABASE_URL": "postgresql://me:secret@127.0.0.1:1/db"}, "127.0.0.1:1, database db) cannot be reached"),
    ],
)
def test_invalid_settings_are_reported(tmp_path, settings, says):
    refused = manage("up", data=tmp_path, **{"PORT": str(free_port())} | settings)
    assert refused.returncode == 1
    assert says in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "secret@" not in refused.stderr


@pytest.mark.slow
def test_a_path_too_long_for_a_socket_is_reported(tmp_path):
    refused = manage("up", data=tmp_path / ("long" * 25), PORT=str(free_port()))
    assert refused.returncode == 1
    assert "Set VITRINE_DATA to a folder with a shorter path" in refused.stderr


def test_a_data_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    refused = manage("up", data=Path(tmp_path / "file" / "data"), PORT=str(free_port()))
    assert refused.returncode == 1
    assert "choose another with VITRINE_DATA" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_ctrl_c_stops_everything_and_keeps_the_data(vitrine):
    """The last test of this module: it stops what the others use."""
    parts = [vitrine.process("postgres"), *vitrine.children()]
    assert vitrine.interrupt() == 0
    gone, alive = psutil.wait_procs(parts, timeout=2)
    assert not alive
    assert (vitrine.data / "postgres" / "PG_VERSION").exists()
    assert "Traceback" not in vitrine.output
    with socket.create_server(("127.0.0.1", vitrine.port)):
        pass
    assert os.path.getsize(vitrine.data / "up.lock") == 0
