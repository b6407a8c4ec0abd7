"""A database server of the tests' own, to be killed and filled."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from broker_core.store.connections import Database, close_all, using
from explorer.site.embedded_postgres import server

ROOT = Path(__file__).resolve().parent.parent.parent
MAX_CONNECTIONS = 60


@pytest.fixture(scope="module")
def cluster():
    """The folder of a migrated database server that takes few connections."""
    folder = Path(tempfile.mkdtemp(prefix="vitrine-", dir="/tmp"))
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(server.SETTINGS, "max_connections", str(MAX_CONNECTIONS))
        server.ensure_running(folder / "postgres")
        environment = {**os.environ, "VITRINE_DATA": str(folder), "DATABASE_URL": server.url(folder / "postgres")}
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)
        yield folder / "postgres"
        close_all()
        server.stop(folder / "postgres")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def dsn(cluster):
    return f"host={cluster} user={server.SUPERUSER} dbname={server.DATABASE}"


@pytest.fixture
def on_cluster(dsn):
    """Broker calls of the test go to the cluster."""
    with using(Database(dsn=dsn)):
        yield
    close_all()
