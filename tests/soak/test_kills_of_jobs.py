"""Kills of Spark's driver, one for each kind of job (tests/soak/kills_of_jobs.py)."""

import pytest

from .kills_of_jobs import KINDS, Kills


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_job_has_no_effect_and_is_repeated(empty_history):
    findings = Kills(empty_history, seed=5).run(len(KINDS))
    assert not findings.wrong, findings.tell()
    assert findings.did["folders and files cleaned up"], findings.tell()
