"""kill -9 of the database server while threads and tasks of several processes send and complete single messages, whose calls are
combined: what was acknowledged is there, or gone. VITRINE_KILLS: how often (`make soak` kills 200 times)."""

import os

from .acknowledged import run_under_kills, wrong_of

KILLS = int(os.environ.get("VITRINE_KILLS", "3"))


def test_what_was_acknowledged_is_there_after_any_kill(on_cluster, dsn, cluster, tmp_path):
    found = run_under_kills(cluster, dsn, tmp_path, kills=KILLS)
    assert not wrong_of(found), found
    assert found["sent"] > 100 * KILLS and found["completed"] > 10 * KILLS and found["unsure"] > KILLS, found
    assert found["contended"] > 10 * KILLS, found


def test_without_the_flush_acknowledged_sends_are_lost(on_cluster, dsn, cluster, tmp_path):
    """The control: the test above can fail."""
    for turn in range(5):  # nearly each turn loses some
        (folder := tmp_path / str(turn)).mkdir()
        found = run_under_kills(cluster, dsn, folder, kills=2, flushes=False)
        if lost := found["wrong: acknowledged sends that are not stored"]:
            break
    assert lost, found
