from django.apps import AppConfig
from django.conf import settings


class BrokerCoreConfig(AppConfig):
    name = "broker_core"
    verbose_name = "Broker"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self):
        from . import families  # noqa: F401 - registers the installed families
        from .store import connections

        connections.assign(getattr(settings, "VITRINE_NAMESPACE_DATABASES", {}))
