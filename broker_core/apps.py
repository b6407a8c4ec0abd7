from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created


class BrokerCoreConfig(AppConfig):
    name = "broker_core"
    verbose_name = "Broker"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self):
        from . import families  # noqa: F401 - registers the installed families
        from .store import connections

        connections.assign(getattr(settings, "VITRINE_NAMESPACE_DATABASES", {}))
        connection_created.connect(_watch)


def _watch(connection, **_) -> None:
    """Notice when the database does not respond to a statement of Django's."""
    from .store import connections, hangs

    hangs.watch(connection.connection, connections.Database(connection.alias))
