"""Rules of subscriptions: the SQL filter language, correlation filters and rule actions (SB-F rules).

A filter is compiled once and evaluated on a MessageView; `rules.matching` evaluates all filters of a topic together.
"""

from .actions import Action, compile_action
from .correlation import ELEMENTS, CorrelationFilter
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
