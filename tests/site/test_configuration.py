"""What the environment says, as typed values."""

import re
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import ProgrammingError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from psycopg.errors import UndefinedTable

from explorer.site.celery import app
from explorer.site.configuration import database_from_url, flag, one_of, secret_key, trusted_origins
from explorer.site.unready import explained

from .vitrine import manage


@pytest.mark.parametrize(
    ("text", "expected"), [("0", False), ("no", False), ("Off", False), ("1", True), ("yes", True), ("", True), (None, True)]
)
def test_a_flag_is_parsed(text, expected):
    assert flag(text, default=True) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [(None, "loopback"), ("", "loopback"), (" OFF ", "off"), ("everywhere", "everywhere")]
)
def test_one_of_several_words(text, expected):
    assert one_of("WELL_KNOWN_KEYS", text, ("loopback", "everywhere", "off")) == expected


def test_another_word_is_refused_at_the_start(tmp_path):
    output = manage("check", data=tmp_path, WELL_KNOWN_KEYS="yes")
    assert "WELL_KNOWN_KEYS must be loopback, everywhere or off, not 'yes'." in output.stderr + output.stdout


def test_database_url_is_parsed():
    database = database_from_url("postgresql://me:p%40ss@db.example:5433/broker?sslmode=require", {"prepare_threshold": 5})
    assert {name: database[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")} == {
        "NAME": "broker",
        "USER": "me",
        "PASSWORD": "p@ss",
        "HOST": "db.example",
        "PORT": "5433",
    }
    assert database["OPTIONS"] == {"prepare_threshold": 5, "sslmode": "require"}


def test_database_url_may_name_a_socket_folder():
    assert database_from_url("postgres://postgres@/vitrine?host=%2Ftmp%2Fpg", {})["HOST"] == "/tmp/pg"


@pytest.mark.parametrize("url", ["mysql://me@here/db", "postgresql://me@here", "nonsense"])
def test_an_invalid_database_url_is_refused_without_showing_it(url):
    with pytest.raises(ImproperlyConfigured, match="must look like postgresql://"):
        database_from_url(url, {})


def test_the_secret_key_is_created_once_and_readable_only_by_its_owner(tmp_path):
    key = secret_key(tmp_path / "data")
    assert len(key) > 50
    assert secret_key(tmp_path / "data") == key
    assert stat.S_IMODE((tmp_path / "data" / "secret_key").stat().st_mode) == 0o600


def test_an_empty_secret_key_file_is_replaced(tmp_path):
    (tmp_path / "secret_key").touch()
    assert len(secret_key(tmp_path)) > 50


def test_forms_are_trusted_over_tls():
    assert trusted_origins(["a.example", ".b.example", "*"], "https://v.example:8443/tools") == [
        "https://*.b.example",
        "https://a.example",
        "https://v.example:8443",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", [("sign_in_link",), ("connection_string", "demo")])
def test_without_tables_a_command_names_the_database(db, tmp_path, command):
    host = quote(connection.get_connection_params()["host"], safe="")
    done = manage(*command, data=tmp_path, DATABASE_URL=f"postgresql://postgres@/postgres?host={host}")
    assert done.returncode == 1
    assert done.stderr == "The database that DATABASE_URL names has no Vitrine tables. Run make up first.\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", [("sign_in_link",), ("connection_string", "demo"), ("migrate",)])
def test_without_a_data_folder_a_command_starts_no_server(tmp_path, command):
    done = manage(*command, data=tmp_path / "wrong", DATABASE_URL="")
    assert done.returncode == 1
    assert done.stderr == (
        f"{tmp_path / 'wrong'} is not set up. Run make up first, or set VITRINE_DATA to the value used for make up.\n"
    )
    assert not (tmp_path / "wrong" / "postgres").exists()


def test_without_a_database_url_the_command_names_the_data_folder(db, settings):
    settings.DATABASE_URL = ""
    MigrationRecorder.Migration.objects.all().delete()
    with (
        pytest.raises(ImproperlyConfigured, match=f"{settings.VITRINE_DATA} is not set up"),
        explained(),
    ):
        raise UndefinedTable


def test_tables_of_an_older_version_are_reported(db):
    MigrationRecorder.Migration.objects.filter(app="broker_core").latest("id").delete()
    with pytest.raises(ImproperlyConfigured, match="schema is out of date. Run make up or manage.py migrate first"), explained():
        raise UndefinedTable


def test_other_errors_of_a_command_are_not_replaced(db):
    with pytest.raises(ProgrammingError), explained(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM vitrine_namespace")


@pytest.mark.parametrize(
    ("task", "queue"),
    [
        ("explorer.run_operation", "operations"),
        ("explorer.run_load", "operations"),
        ("explorer.run_analysis", "analysis"),
        ("explorer.resume_operations", "sweeps"),
    ],
)
def test_each_task_goes_to_a_queue_that_a_worker_reads(task, queue):
    app.loader.import_default_modules()  # as a worker does
    assert task in app.tasks
    assert app.amqp.router.route({}, task)["queue"].name == queue
    composed = (Path(settings.BASE_DIR) / "docker-compose.yml").read_text()
    assert re.search(rf"celery .* worker .*--queues=\S*\b{queue}\b", composed)
