"""Ensures one supervisor per data folder, and ends the processes that a killed one left running."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path

import psutil

from explorer.site.data_folder import make_private


class Taken(Exception):
    """Another supervisor uses this folder. The text says which one and what to do."""


class Folder:
    """The data folder, locked by this process. The kernel releases the lock when the process ends, however it ends."""

    def __init__(self, path: Path, address: str):
        """Lock the folder. Raises Taken, or OSError if it cannot be written."""
        make_private(path)
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
        """Terminate the children of a killed supervisor. Returns how many; workers may take seconds to end."""
        leftovers = [process for process in map(_living, self._recorded()) if process]
        for process in leftovers:
            with suppress(psutil.Error):
                process.terminate()
        return len(leftovers)

    def remember(self, pids: list[int]) -> None:
        """Store the children's pids, for the next supervisor if this one is killed. A full disk is ignored."""
        alive = []
        for pid in pids:
            with suppress(psutil.Error):
                alive.append([pid, psutil.Process(pid).create_time()])
        with suppress(OSError):
            self._children.write_text(json.dumps(alive))

    def release(self) -> None:
        """Unlock the folder."""
        self._children.unlink(missing_ok=True)
        self._write("")
        os.close(self._lock)

    def _recorded(self) -> list:
        try:
            return json.loads(self._children.read_text())
        except (OSError, ValueError):
            return []


def _living(recorded: list) -> psutil.Process | None:
    """The recorded process, unless it has ended or its pid was reused."""
    try:
        pid, created = recorded
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, TypeError):
        return None
    return process if same else None
