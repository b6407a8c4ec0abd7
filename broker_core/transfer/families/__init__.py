"""What each family adds to an export and its import: lines of its own, settings, fields of messages, what must hold at the end.

A part is a module with `lines_before`, `lines_after`, `described`, `told_of_message` for writing, and a class `Reader` for
reading one namespace (see `part.Reader`). `exporting` and `importing` know no family.
"""

from types import ModuleType

from broker_core.semantics.types import Family

from . import queue_storage, rabbitmq, service_bus

_PARTS: dict[Family, ModuleType] = {
    Family.SERVICE_BUS: service_bus,
    Family.QUEUE_STORAGE: queue_storage,
    Family.RABBITMQ: rabbitmq,
}


def part_of(family: Family) -> ModuleType:
    """The module that knows a family."""
    return _PARTS[family]
