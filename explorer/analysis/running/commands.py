"""What management commands share: queues by name, and runs that they execute themselves."""

from django.core.management.base import CommandError

from broker_core import namespaces
from broker_core.common.family import definition_of
from broker_core.common.types import EntityAddress, Family
from broker_core.models import Entity
from explorer.models import AnalysisRun

from . import execution
from .kinds import KINDS


def executed(run: AnalysisRun) -> AnalysisRun:
    """The run after its execution. Raises CommandError with its message if it did not succeed."""
    execution.execute(run.pk, KINDS)
    run.refresh_from_db()
    if run.state != AnalysisRun.SUCCEEDED:
        raise CommandError(run.message)
    return run


def queue_of(namespace: str, path: str, *, create: bool) -> Entity:
    """A queue by its name. create: create it if it is missing, and its namespace, which is of Service Bus then.

    Raises CommandError if it is missing, and BrokerError if it cannot be created.
    """
    matching = Entity.objects.filter(namespace__name__iexact=namespace, path__iexact=path, deleted_at=None)
    if create and not matching.exists():
        family = namespaces.ensure_namespace(namespace, Family.SERVICE_BUS).family
        definition_of(family).create_queue(EntityAddress(namespace, path))
    if (entity := matching.first()) is None:
        raise CommandError(f"There is no {namespace}/{path}. Check its name, or add --create.")
    return entity
