"""The broker in Django's admin: namespaces with their clocks, entities, rules and policies; events and sweep runs, read-only.

Every change runs a use case with the user's own actor. The admin's history records old and new values.
"""

from importlib import import_module

import broker_core.families
from broker_core.common.family import installed
from broker_core.model_admin import ReadOnlyAdmin, RightsAdmin, actor_of, to_the_millisecond

from .configuration import EntityAdmin, NamespaceAdmin
from .history import MessageEventAdmin, SweepRunAdmin

for family in installed():
    import_module(family.admin)
