"""Servers that a test starts for itself: on loopback only, with their files in a folder of their own, and gone at the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

LOOPBACK = "127.0.0.1"


class Processes:
    """Processes that belong together, each with a log in the folder. Those that began last end first."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._running: list[subprocess.Popen] = []

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True
            )
        self._running.append(process)

    def wait(self, name: str, answers: Callable[[], bool], seconds: float) -> None:
        """Until it answers. Raises RuntimeError with the end of its log where the last process has ended, or takes too long."""
        ends_at = time.monotonic() + seconds
        while self._running[-1].poll() is None and time.monotonic() < ends_at:
            if answers():
                return
            time.sleep(0.2)
        log = (self.folder / f"{name}.log").read_text()
        raise RuntimeError(f"{name} did not start within {seconds:g} s:\n{log[-3000:]}")

    def stop(self) -> None:
        for process in reversed(self._running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        self._running.clear()


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports
