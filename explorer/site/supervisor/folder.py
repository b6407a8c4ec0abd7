"""One supervisor a data folder, and an end to what a killed one left running."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path

import psutil


class Taken(Exception):
    """Another supervisor works on this folder; the message says which and what to do."""


class Folder:
    """The data folder while this process supervises it. The kernel frees its lock when the process dies, however it dies."""

    def __init__(self, path: Path, address: str):
        """Take the folder. Raises Taken, or OSError where it cannot be written."""
        path.mkdir(parents=True, exist_ok=True)
        self._children = path / "children.json"
        self._lock = os.open(path / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 200).decode(errors="replace").strip()
            os.close(self._lock)
            raise Taken(
                f"Vitrine is already running on {path}: {holder or 'another process'}. Use that instance, stop it with Ctrl-C, "
                "or start a second one with its own folder and port: make up VITRINE_DATA=~/.vitrine-2 PORT=8001"
            ) from None
        self._write(f"process {os.getpid()}, {address}")

    def _write(self, text: str) -> None:
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, text.encode(), 0)

    def end_leftovers(self) -> int:
        """Ask the children of a supervisor that was killed to end. Returns how many; a worker takes seconds, and may overlap."""
        leftovers = [process for process in map(_living, self._recorded()) if process]
        for process in leftovers:
            with suppress(psutil.Error):
                process.terminate()
        return len(leftovers)

    def remember(self, pids: list[int]) -> None:
        """Write down the children, for whoever comes after this process was killed. A full disk does not matter here."""
        alive = []
        for pid in pids:
            with suppress(psutil.Error):
                alive.append([pid, psutil.Process(pid).create_time()])
        with suppress(OSError):
            self._children.write_text(json.dumps(alive))

    def release(self) -> None:
        """Give the folder back, at the end."""
        self._children.unlink(missing_ok=True)
        self._write("")
        os.close(self._lock)

    def _recorded(self) -> list:
        try:
            return json.loads(self._children.read_text())
        except (OSError, ValueError):
            return []


def _living(recorded: list) -> psutil.Process | None:
    """The recorded process, unless it has ended or its number belongs to another by now."""
    try:
        pid, created = recorded
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, TypeError):
        return None
    return process if same else None
