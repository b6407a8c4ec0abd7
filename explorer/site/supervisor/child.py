"""A child process in its own session: its output is prefixed, and it is restarted with back-off when it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before a restart
SETTLED_SECONDS = 60.0  # after running this long, the back-off starts from the beginning
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    """Runs in the child, before its program: Linux ends it when the supervisor is killed."""
    if _libc:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """A program that runs as long as Vitrine does.

    say: (name, line) writes a line of its output. pass_fds: descriptors that only this child inherits.
    Start it in the main thread: the parent-death signal is sent when the starting thread ends.
    """

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str], say: Callable[[str, str], None], *, pass_fds=()
    ):
        self.name = name
        self._command, self._environment, self._say, self._pass_fds = command, environment, say, pass_fds
        self._process: subprocess.Popen | None = None
        self._pump: threading.Thread | None = None
        self._started_at = 0.0
        self._pause = FIRST_PAUSE
        self._start_again_at: float | None = None

    @property
    def pid(self) -> int | None:
        running = self._running()
        return None if running is None else running.pid

    @property
    def is_running(self) -> bool:
        return self._running() is not None

    def _running(self) -> subprocess.Popen | None:
        """The process, if it is running."""
        return self._process if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the program. Raises OSError if it does not exist or no process can be created."""
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=self._pass_fds,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  it makes one system call and takes no lock
        )
        self._started_at = time.monotonic()
        self._start_again_at = None
        self._pump = threading.Thread(target=self._pump_lines, args=[self._process], name=f"output of {self.name}", daemon=True)
        self._pump.start()

    def watch(self) -> bool:
        """Restart the program after its end, when the pause is over. Returns whether it was started. Call it regularly."""
        if self.is_running:
            return False
        now = time.monotonic()
        if self._start_again_at is None:
            self._pause = FIRST_PAUSE if now - self._started_at > SETTLED_SECONDS else self._pause
            self._start_again_at = now + self._pause
            self._say("up", f"{self.name} ended ({_exit_text(self._process)}); restarting in {self._pause:.0f} s")
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if now < self._start_again_at:
            return False
        try:
            self.start()
        except OSError as problem:
            self._say("up", f"{self.name} cannot be started: {problem}")
            self._start_again_at = now + self._pause
            return False
        return True

    def ask_to_stop(self) -> None:
        running = self._running()
        if running is not None:
            with suppress(ProcessLookupError):
                running.terminate()

    def wait(self, seconds: float, hurry: threading.Event) -> None:
        """Wait for its end; after `seconds`, or when `hurry` is set, kill its process group."""
        ends_at = time.monotonic() + seconds
        while self.is_running and time.monotonic() < ends_at and not hurry.is_set():
            time.sleep(0.02)
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._pump:
            self._pump.join(1)

    def _pump_lines(self, process: subprocess.Popen) -> None:
        for line in process.stdout or ():
            if text := line.rstrip():
                self._say(self.name, text)


def _exit_text(process: subprocess.Popen | None) -> str:
    if process is None:
        return "it never started"
    code = process.returncode
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
