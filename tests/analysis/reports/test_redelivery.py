"""Redelivery: the answer, success by delivery, reasons and what was lost again."""

from explorer.analysis.reports import redelivery
from explorer.analysis.reports.report import plain

from ..factories import NOON
from .scopes import HOUR, SPAN, a_scope, tables

COLUMNS = {
    "steps": {"delivery": 1, "deliveries": 100, "succeeded": 90, "failed": 10},
    "reasons": {
        "entity_id": 2, "outcome": 7, "error": "Bad #", "deliveries": 12, "messages": 8, "later": 6, "held_us": 5_000_000,
        "latest": 44, "latest_at": NOON,
    },
    "worst": {
        "entity_id": 1, "sequence_number": 5, "attempt": 1, "outcome": 7, "received_at": NOON, "ended_at": NOON, "receiver": "",
        "error": None, "lost": False, "well": False,
    },
    "messages": {"messages": 100, "again": 10, "generated": 3},
    "totals": {"deliveries": 120, "well": 105, "before": 0, "before_well": 0},
    "resubmitted": {"entity_id": 1, "messages": 4, "ended": 3, "lost": 2},
}  # fmt: skip
LATE = {"delivery": 11, "deliveries": 30, "succeeded": 3}


def shown(total=None, **changes):
    rows = {name: changes.pop(name) for name in COLUMNS if name in changes}
    made = tables(COLUMNS, totals=[total or {}], messages=[{}], **rows)
    return redelivery.present(a_scope("orders", "payments", **changes), {}, made)


def test_the_answer_names_the_queue_the_reason_and_whether_another_delivery_helps():
    report = shown(steps=[LATE, {}], reasons=[{}], compared=SPAN.before(HOUR))
    assert report.finding == (
        "15 of 120 deliveries (12.5\xa0%) did not succeed, most often 12 of payments (abandoned: Bad #); delivery 1 succeeds in "
        "90.0\xa0%, delivery 11+ in 10.0\xa0%. 10 of 100 messages were delivered more than once. From 2026-03-01 11:00 to "
        "2026-03-01 12:00 there were no deliveries."
    )
    assert report.generated == 3
    assert [row[:4] for row in report.tables["steps"].rows] == [("1", 100, 90, 0.9), ("11+", 30, 3, 0.1)]
    [reason] = report.tables["reasons"].rows
    assert [plain(cell) for cell in reason[:6]] == ["payments", "abandoned", "Bad #", 12, 8, 0.75]
    assert reason[-1].url.endswith("/shop/payments/44")


def test_the_answer_says_whether_all_or_no_deliveries_succeeded():
    assert shown({"well": 120}).finding == "All 120 deliveries succeeded."
    assert shown({"deliveries": 0, "well": 0}).sections == ()
    again = shown({"before": 10, "before_well": 9}, compared=SPAN.before(HOUR)).finding
    assert again.endswith("it was 10.0\xa0% (1 of 10).")


def test_redelivered_messages_are_drawn():
    assert "messages" not in shown(worst=[{}]).tables
    rows = [{}, {"attempt": 2}, {"sequence_number": 6}]
    [drawn] = shown(worst=rows).tables["messages"].rows
    assert [plain(cell) for cell in drawn[:4]] == ["#5", "orders", 2, 2]


def test_resubmitted_messages_that_were_lost_again_are_counted():
    report = shown(resubmitted=[{}, {"entity_id": 2, "messages": 1, "ended": 0, "lost": 0}])
    [section] = [one for one in report.sections if one.name == "resubmitted"]
    assert section.sentence == "5 messages were resubmitted; 2 were lost again."
    assert section.table.rows == [("orders", 4, 2, 0.5, 1, 1), ("payments", 1, 0, 0.0, 0, 1)]
