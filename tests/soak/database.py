"""The database Django has, as a connection string that child processes take."""

from __future__ import annotations


def dsn_of_django() -> str:
    from django.db import connection
    from psycopg.conninfo import make_conninfo

    parameters = connection.get_connection_params()
    names = ("host", "port", "dbname", "user", "password")
    return make_conninfo(**{name: parameters[name] for name in names if parameters.get(name)})
