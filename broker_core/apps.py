from django.apps import AppConfig


class BrokerCoreConfig(AppConfig):
    name = "broker_core"
    verbose_name = "Broker"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self):
        from . import families  # noqa: F401 - registers the installed families
