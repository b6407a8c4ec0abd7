"""What clients were told, written down by each at once, so that nothing of it is lost when a client is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """One thread's lines. Each is a single write: a killed process leaves whole lines."""

    def __init__(self, folder: Path, name: str):
        self._file = os.open(folder / f"{name}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, **facts: Any) -> None:
        os.write(self._file, json.dumps({"kind": kind, **facts}, default=str).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    """All that was written in a folder, in no order across threads."""
    for path in sorted(folder.glob("*.journal")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)
