"""Read-only use cases of Service Bus: explain why a message is not delivered, and list the rules of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.arguments import whole_numbers
from broker_core.common.explanations import is_deliverable
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, ExpiryMode, Right
from broker_core.reads.messages import Explanation, message_row
from broker_core.reads.shared import entity_id_of, require
from broker_core.service_bus.rules import explaining
from broker_core.service_bus.rules.filters import Rule, rule_from_json
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

PLACE_CAP = 1_000  # messages counted ahead of the explained one
PLACE_ROWS = 5_000  # rows read to count them


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule of a subscription. created_at: database time."""

    rule: Rule
    created_at: datetime


@use_case
def explain(address: EntityAddress, sequence_number: int, *, actor: Actor | None = None) -> Steps[Explanation | None]:
    """Why a message, in any list of the entity, is or is not delivered now; None: no such message.

    All facts are read in one snapshot. `deliverable`: whether a receive from its list may return it (if its session is unlocked:
    after the session is accepted). Raises EntityNotFound.
    """
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    while lists := (yield call("read_list_of", entity_id=entity_id, sequence_number=sequence_number)):
        rows = yield call(
            "explain_message", entity_id=entity_id, subqueue=lists[0].subqueue, sequence_number=sequence_number,
            place_cap=PLACE_CAP, scan_cap=PLACE_ROWS,
        )  # fmt: skip
        if rows:  # otherwise it was moved to another list in the meantime
            return _explanation(rows[0])
    return None


@use_case(namespace=WHOLE_DATABASE)
def rules_of(subscription_ids: Iterable[int], *, actor: Actor | None = None) -> Steps[dict[int, list[RuleRow]]]:
    """Rules by subscription id, each list ordered by name; subscriptions without rules are left out."""
    require(actor, Right.BROWSE, "rules")
    rows = yield call("read_rules", ids=whole_numbers(subscription_ids, "subscription_ids"))
    rules: dict[int, list[RuleRow]] = {}
    for row in rows:
        stored = {"name": row.name, "filter": row.filter, "action": row.action}
        rules.setdefault(row.subscription_id, []).append(RuleRow(rule_from_json(stored), row.created_at))
    return rules


def _explanation(row: Any) -> Explanation:
    message = message_row(row)
    entity = explaining.EntityFacts(
        EntityKind(row.kind),
        EntityStatus(row.status),
        row.requires_session,
        row.forward_to,
        row.forward_dead_lettered_messages_to,
        row.dead_lettering_on_message_expiration,
        ExpiryMode(row.expiry_mode),
        (row.transfer or {}).get("to"),
    )
    session = None
    if row.in_session and row.session_id is not None:
        session = explaining.SessionFacts(
            row.session_id, row.session_locked_until, row.session_locked_by, row.expired_number, row.expired_at
        )
    place = explaining.QueuePosition(min(row.before, PLACE_CAP), row.before > PLACE_CAP or row.scanned >= PLACE_ROWS)
    reasons = explaining.explain(message, entity, row.now, session=session, place=place)
    return Explanation(message, tuple(reasons), is_deliverable(reasons), row.now)
