"""What the tests' own database needs between tests, and at the end."""

import psycopg
import pytest
from django.db import connection

from tests.table_cleanup import end_other_sessions


@pytest.fixture
def server(db):
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}, autocommit=True) as opened:
        yield opened


def test_an_open_session_is_named_and_ended_before_its_database_is_dropped(server):
    server.execute("CREATE DATABASE vitrine_left_open")
    parameters = connection.get_connection_params() | {"dbname": "vitrine_left_open", "cursor_factory": psycopg.Cursor}
    try:
        with psycopg.connect(**parameters, application_name="forgotten", autocommit=True) as left:
            left.execute("SELECT 'left open'")
            assert end_other_sessions(server.cursor(), "vitrine_left_open", patience=0) == ["forgotten: idle: SELECT 'left open'"]
            server.execute("DROP DATABASE vitrine_left_open")
    finally:
        server.execute("DROP DATABASE IF EXISTS vitrine_left_open WITH (FORCE)")
