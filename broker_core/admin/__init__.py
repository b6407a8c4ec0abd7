"""The broker in Django's admin: namespaces with their clocks, entities, rules and policies; events and sweep runs, read-only.

Every change runs a use case with the user's own actor. The admin's history records old and new values.
"""

from importlib import import_module

import broker_core.families
from broker_core.common.family import installed

from .configuration import EntityAdmin, NamespaceAdmin
from .history import MessageEventAdmin, SweepRunAdmin
from .shared import ReadOnlyAdmin, RightsAdmin, actor_of, to_the_millisecond

for family in installed():
    import_module(family.admin)
