"""kill -9 of the database server while threads and tasks of several processes send and complete single messages, whose calls are
combined: what was acknowledged is there, or gone. VITRINE_KILLS: how often (`make soak` kills 200 times)."""

import os

import psycopg

from .acknowledged import run_under_kills, wrong_of

KILLS = int(os.environ.get("VITRINE_KILLS", "3"))


def test_what_was_acknowledged_is_there_after_any_kill(on_cluster, dsn, cluster, tmp_path):
    found = run_under_kills(cluster, dsn, tmp_path, kills=KILLS)
    assert not wrong_of(found), found
    assert found["sent"] > 100 * KILLS and found["completed"] > 10 * KILLS and found["unsure"] > KILLS, found


def test_the_comparison_finds_what_is_lost(on_cluster, dsn, cluster, tmp_path):
    """The control: a server that acknowledges before it has written loses some with each kill."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
    found = run_under_kills(cluster, dsn, tmp_path, kills=2)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")
    assert found["wrong: acknowledged sends that are not stored"], found
