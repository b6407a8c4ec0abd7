"""A pytest plugin, loaded before Django's settings are: each worker has a data folder, and so a PostgreSQL, of its own."""

import os
from pathlib import Path

WORKER = os.environ.get("PYTEST_XDIST_WORKER")

if WORKER:
    folder = Path(os.environ.get("VITRINE_DATA") or Path(__file__).resolve().parent.parent / ".vitrine" / "test")
    if folder.name != WORKER:
        os.environ["VITRINE_DATA"] = str(folder / WORKER)
