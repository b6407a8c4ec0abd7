"""A RabbitMQ server of one's own: on loopback only, with its files in a folder given, and gone at the end.

It has its own node name and its own port mapper, so it meets no other RabbitMQ of this machine; its cookie lies in its folder.
`python -m tests.differential.server` installs Debian's package where there is none and where that can be done.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from .process import LOOPBACK, Processes, free_ports

HOME_OF_SCRIPTS = Path("/usr/lib/rabbitmq/bin")  # Debian's; those in the path change to another user first
STARTS_WITHIN = 90  # seconds


def find() -> Path | None:
    """The server's own script, or None."""
    program = HOME_OF_SCRIPTS / "rabbitmq-server"
    return program if program.exists() else None


def install() -> str | None:
    """Install Debian's package where there is no server. Returns why that was not possible."""
    if find():
        return None
    if not shutil.which("apt-get"):
        return "there is no RabbitMQ server, and no apt-get to install one with"
    if os.geteuid() != 0:
        return "there is no RabbitMQ server, and only root can install one: apt-get install rabbitmq-server"
    print("Installing RabbitMQ, once: about 45 MB.", flush=True)
    # RUNLEVEL: a package installed at runlevel 1 starts no service. This server is started by the tests alone.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "rabbitmq-server"]):
        done = subprocess.run(["apt-get", "-q", *command], env=environment, check=False, capture_output=True, text=True)
        if done.returncode and command[0] == "install":
            return f"RabbitMQ could not be installed: {done.stderr.strip().splitlines()[-1:]}"
    return None if find() else "RabbitMQ was installed, but not where it is expected"


class Server:
    """A running node. port: AMQP's; http: where the management API is. Use it as a context manager."""

    def __init__(self, folder: Path):
        self.folder = folder / "rabbitmq"
        self.port, self._management, self._distribution, self._mapper = free_ports(4)
        self.http = f"http://{LOOPBACK}:{self._management}"
        self._processes = Processes(self.folder)

    def __enter__(self) -> Server:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = {LOOPBACK}:{self.port}\n"
            f"management.tcp.ip = {LOOPBACK}\nmanagement.tcp.port = {self._management}\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
        try:
            mapper = ["epmd", "-address", LOOPBACK, "-port", str(self._mapper)]
            self._processes.start("epmd", mapper, self._environment())
            self._processes.start("node", [str(find())], self._environment())
            self._processes.wait("node", self._answers, STARTS_WITHIN)
        except BaseException:
            self._processes.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop()

    def _environment(self) -> dict[str, str]:
        own = {
            "HOME": self.folder,  # where Erlang keeps its cookie
            "RABBITMQ_NODENAME": f"vitrine-{os.getpid()}@localhost",
            "RABBITMQ_CONFIG_FILE": self.folder / "rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": self.folder / "none.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.folder / "enabled_plugins",
            "RABBITMQ_MNESIA_BASE": self.folder / "data",
            "RABBITMQ_LOG_BASE": self.folder / "log",
            "RABBITMQ_GENERATED_CONFIG_DIR": self.folder / "generated",
            "RABBITMQ_PID_FILE": self.folder / "pid",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": self._distribution,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": self._mapper,
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ", "ERL_"))}
        return inherited | {name: str(value) for name, value in own.items()}

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), 1), urlopen(f"{self.http}/api", timeout=2):
                return True
        except (OSError, URLError):
            return False


if __name__ == "__main__":
    if problem := install():
        print(f"{problem}. The tests that need it are skipped.", file=sys.stderr)
