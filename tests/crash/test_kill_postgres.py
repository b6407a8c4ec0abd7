"""kill -9 of the database server, or of one of its processes, while clients send and receive: nothing accepted is lost."""

import os
import signal
from contextlib import suppress

import psycopg
import pytest

from explorer.site.embedded_postgres import server
from tests.soak.runner import APPLICATION, Soak

SECONDS = 4


def kill_the_server(soak, folder):
    """kill -9 of its first process; then it is started again, as `up` would."""
    os.kill(int((folder / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    server.ensure_running(folder)
    soak.done["servers killed"] += 1


def kill_a_backend(soak):
    """kill -9 of a process that serves a client: the server ends all the others, and recovers by itself."""
    with suppress(psycopg.OperationalError), psycopg.connect(soak.dsn, autocommit=True) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = %s ORDER BY state = 'idle', random() LIMIT 1"
        if found := connection.execute(query, [APPLICATION]).fetchone():
            os.kill(found[0], signal.SIGKILL)
            soak.done["backends killed"] += 1


@pytest.mark.slow
def test_a_killed_database_loses_no_acknowledged_message(on_cluster, dsn, cluster, tmp_path, settings):
    settings.VITRINE_LIMITS = "relaxed"
    faults = (lambda soak: kill_the_server(soak, cluster), kill_a_backend)
    findings = Soak(dsn, tmp_path, SECONDS, faults=faults).run()
    assert not findings.wrong, findings.tell()
    for done in ("servers killed", "backends killed", "servicebus accepted", "refusals by BrokerUnavailable"):
        assert findings.did[done], f"there were no {done}: {findings.tell()}"
