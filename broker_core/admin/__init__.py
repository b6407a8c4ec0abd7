"""The broker in Django's admin: namespaces with their clocks, entities, rules, policies; events and sweep runs to read.

Every change goes through a use case, as the person's own actor; the admin's history says who changed what from what.
"""

from importlib import import_module

import broker_core.families
from broker_core.common.family import installed

from .configuration import EntityAdmin, NamespaceAdmin
from .history import MessageEventAdmin, SweepRunAdmin
from .shared import ReadOnlyAdmin, RightsAdmin, actor_of, to_the_millisecond

for family in installed():
    import_module(family.admin)
