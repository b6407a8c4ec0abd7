"""The migrations: complete, and clear about tables that they cannot change."""

import io

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from broker_core.store.connections import Database
from tests.site.vitrine import free_port, manage


def test_no_migration_is_missing(db):
    call_command("makemigrations", "--check", "--dry-run", stdout=io.StringIO())


@pytest.fixture
def tables_of_an_older_version(db):
    """The URL of a database whose tables were made by migrations that are not there any more."""
    values = {k: v for k, v in Database().parameters().items() if k in ("host", "port", "user", "password")}
    with psycopg.connect(**values, dbname=connection.settings_dict["NAME"], autocommit=True) as server:
        server.execute("CREATE DATABASE vitrine_of_before")
        try:
            with psycopg.connect(**values, dbname="vitrine_of_before") as older:
                older.execute("CREATE TABLE vitrine_entity (id bigint)")
                older.execute("CREATE TABLE django_migrations (id bigserial, app text, name text, applied timestamptz)")
                older.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('broker_core', '0001_initial', now())")
            user = f"{values['user']}:{values['password']}@" if values.get("password") else f"{values['user']}@"
            port = f"&port={values['port']}" if "port" in values else ""
            yield f"postgres://{user}/vitrine_of_before?host={values['host']}{port}"
        finally:
            server.execute("DROP DATABASE vitrine_of_before WITH (FORCE)")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["migrate", "up"])
def test_tables_of_an_older_version_are_refused_with_the_remedy(tables_of_an_older_version, tmp_path, command):
    answer = manage(command, data=tmp_path, DATABASE_URL=tables_of_an_older_version, PORT=str(free_port()))
    assert answer.returncode != 0
    said = answer.stdout + answer.stderr
    assert "were made by a version before the first release" in said
    assert "manage.py export_vitrine" in said
    assert "delete the data folder" in said
    assert "Traceback" not in said
