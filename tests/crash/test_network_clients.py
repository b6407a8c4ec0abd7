"""kill -9 of the listener, the web server and the database under network clients: nothing that was acknowledged over the port is
lost, nothing is there twice, and what was removed stays away."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing, suppress

import pytest

from explorer.site.embedded_postgres import server
from tests.eventually import eventually
from tests.site.vitrine import environment, free_port
from tests.soak.network import PORTS, Promises, ServiceBus, Storage, kill_the_database, run
from tests.wire.listening import ROOT, ListenerProcess


@pytest.mark.slow
def test_a_killed_listener_and_database_lose_nothing_acknowledged(on_cluster, cluster):
    url = server.url(cluster)
    with closing(ListenerProcess(PORTS, DATABASE_URL=url, **dict.fromkeys(PORTS, "1"))) as listener:
        scenes = [Storage(listener.port("QUEUE_STORAGE_PORT")), ServiceBus(listener.port("SERVICE_BUS_PORT"), at_root=True)]
        listener.start()

        def kill():
            listener.kill()
            listener.start()

        def restart():
            assert listener.terminate() == 0
            listener.start()

        outcome = run(scenes, [kill, lambda: kill_the_database(cluster), kill, restart])
    assert not outcome.wrong, outcome.tell()


class WebServer:
    """The explorer's web server as a process, at the same port after each start."""

    def __init__(self, folder, url):
        self.port = free_port()
        self._environment = environment(folder, DATABASE_URL=url, CONNECTIONS_PER_ADDRESS="0")
        self.process: subprocess.Popen | None = None

    def start(self):
        command = [sys.executable, "-m", "explorer.site.web", "--port", str(self.port), "--log-level=critical"]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self._environment)
        eventually(self._is_up, 60)

    def _is_up(self):
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.slow
def test_a_killed_web_server_and_database_lose_nothing_acknowledged(on_cluster, cluster, tmp_path):
    with closing(WebServer(tmp_path, server.url(cluster))) as web:
        web.start()
        outcome = run([ServiceBus(web.port, at_root=False)], [web.kill, lambda: kill_the_database(cluster), web.kill])
    assert not outcome.wrong, outcome.tell()


def test_what_is_compared():
    """The test of the test."""
    promises = Promises(sent={"a", "b", "c", "d"}, accepted={"a", "b", "c"}, ending={"b", "c"}, ended={"c"})
    assert promises.compare(["a"]) == promises.compare(["a", "b", "d"]) == []
    assert promises.compare([]) == ["a was accepted and is lost"]
    assert promises.compare(["a", "a", "c", "e"]) == [
        "c was removed and is there",
        "a is there 2 times",
        "e was never sent",
    ]
