"""A database and an archive for a proof of the analyses, so that nothing else is in them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_database() -> Iterator[Path]:
    """A new database beside that of VITRINE_DATA, else .vitrine/soak, and a folder for the archive and the runs. Both are removed
    at the end, and the embedded server is stopped."""
    os.environ.setdefault("VITRINE_DATA", str(Path(__file__).resolve().parent.parent.parent / ".vitrine" / "soak"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    from broker_core.store.connections import close_all
    from explorer.analysis.running import driver
    from explorer.site.embedded_postgres import server

    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        with tempfile.TemporaryDirectory(prefix="vitrine-soak-") as folder:
            use_folder(Path(folder))
            yield Path(folder)
            driver.end_kept()
    finally:
        driver.end_kept()
        close_all()
        connection.creation.destroy_test_db(name, verbosity=0)
        if not settings.DATABASE_URL:
            server.stop(settings.EMBEDDED_POSTGRES)


def use_folder(folder: Path) -> None:
    """Have the archive and the runs in a folder."""
    from django.conf import settings

    settings.ARCHIVE_URL, settings.RUNS_FOLDER = str(folder / "archive"), folder / "runs"
    settings.SPARK_MASTER, settings.SPARK_NICE = "local[2]", 0
