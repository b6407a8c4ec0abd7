"""`make soak` in seconds: clients that are killed, locks that are lost, sweeps beside; then all is compared with the truth."""

import pytest

from .database import dsn_of_django
from .storm import Soak

SECONDS = 10


@pytest.mark.timeout(120)
def test_nothing_is_lost_or_doubled_and_order_is_kept(broker_database, tmp_path, settings):
    settings.VITRINE_LIMITS = "relaxed"
    findings = Soak(dsn_of_django(), tmp_path, SECONDS).run()
    assert not findings.wrong, findings.tell()
    for done in ("processes killed", "connections terminated", "late settlements refused", "accepted messages", "copies"):
        assert findings.did[done], f"there were no {done}: {findings.tell()}"
