"""Django's PostgreSQL engine. At the first connection it starts the embedded server unless it is running."""

from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.backends.postgresql import base
from django.db.utils import OperationalError

from . import server


def nothing_set_up() -> ImproperlyConfigured:
    """The error for a data folder without a server."""
    return ImproperlyConfigured(
        f"{settings.VITRINE_DATA} is not set up. Run make up first, or set VITRINE_DATA to the value used for make up."
    )


class DatabaseWrapper(base.DatabaseWrapper):
    """ENGINE = "explorer.site.embedded_postgres"; OPTIONS["data"] is the server's data folder.

    may_set_up: whether the first connection may create a server if there is none; else it raises ImproperlyConfigured.
    """

    may_set_up = True

    def get_connection_params(self) -> dict:
        """Complete psycopg parameters, also for connections other than Django's. Starts the server if it is not running.

        Raises django.db.OperationalError if it cannot be started.
        """
        if not self.settings_dict["HOST"]:
            folder = Path(self.settings_dict["OPTIONS"]["data"])
            if not (self.may_set_up or server.is_set_up(folder)):
                raise nothing_set_up()
            try:
                self.settings_dict["HOST"] = server.ensure_running(folder)
            except server.CannotStart as problem:
                raise OperationalError(str(problem)) from problem
        params = super().get_connection_params()
        params.pop("data", None)
        return params
