"""`make soak` in seconds: clients that are killed, locks that are lost, sweeps beside; then all is compared with the truth."""

import pytest

from .database import dsn_of_django
from .runner import Soak

SECONDS = 6
FAULTS = ("processes killed", "connections terminated")
DONE = {
    ("queues", "topics", "sessions"): ("late settlements refused", "servicebus accepted", "servicebus gone"),
    ("storage",): ("storage accepted", "storage got", "storage gone", "storage late receipts"),
    ("rabbit",): ("rabbit accepted", "rabbit got", "rabbit acked", "rabbit lock_lost events"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kinds", DONE, ids="-".join)
def test_no_message_is_lost_duplicated_or_locked_twice(kinds, broker_database, tmp_path, settings):
    settings.VITRINE_LIMITS = "relaxed"
    findings = Soak(dsn_of_django(), tmp_path, SECONDS, kinds=kinds).run()
    assert not findings.wrong, findings.tell()
    for done in (*FAULTS, *DONE[kinds]):
        assert findings.did[done], f"there were no {done}: {findings.tell()}"
