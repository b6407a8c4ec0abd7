"""The explorer as a Django app."""

from django.apps import AppConfig
from django.core.signals import request_finished


class ExplorerConfig(AppConfig):
    """Mountable in any Django site that has `broker_core` installed."""

    name = "explorer"
    label = "explorer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import families  # noqa: F401  registers the families' pages
        from .people import sign_in_limits  # noqa: F401  records sign-ins

        request_finished.connect(_leave_broker_connections, dispatch_uid="explorer.leave_broker_connections")


def _leave_broker_connections(**_) -> None:
    """Leave the broker's connections of this thread to the next request: under ASGI each request has its own thread."""
    from broker_core.store.connections import leave_to_other_threads

    leave_to_other_threads()
