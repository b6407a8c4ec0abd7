"""The broker in Django's admin: namespaces with their clocks, entities, rules, policies; events and sweep runs to read.

Every change goes through a use case, as the person's own actor; the admin's history says who changed what from what.
"""

from broker_core.rabbitmq.admin import BindingAdmin, ConnectionAdmin, ConsumerAdmin, ExchangeAdmin, PolicyAdmin

from .configuration import EntityAdmin, NamespaceAdmin, RuleAdmin, SharedAccessPolicyAdmin
from .history import MessageEventAdmin, SweepRunAdmin
from .shared import ReadOnlyAdmin, RightsAdmin, actor_of, to_the_millisecond
