"""The recomputation of lives and attempts over few calls (tests/soak/recomputation.py)."""

import pytest

from . import recomputation


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_archive_agrees_with_the_event_table(empty_history):
    findings = recomputation.examine(600, seed=3, increments=3)
    assert not findings.wrong, findings.tell()
    for done in ("lives", "attempts", "locks lost", "deliveries under way"):
        assert findings.did[done], findings.tell()
