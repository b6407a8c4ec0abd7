"""Rules of subscriptions: the SQL filter language, correlation filters, rule actions (section 4 of the Service Bus reference).

A filter is compiled once and asked with a MessageView; `service_bus.matching` asks all the filters of a topic at once.
"""

from .actions import Action, compile_action
from .correlation import CorrelationFilter
from .rules import (
    DEFAULT_RULE_NAME,
    Filter,
    Rule,
    check_rule_name,
    filter_from_json,
    filter_to_json,
    rule_from_json,
    rule_to_json,
)
from .sql import FalseFilter, SqlFilter, TrueFilter, compile_filter
from .view import MessageView
