"""Receivers: who received most, who fails more often, and numbers that lead to their deliveries."""

from explorer.analysis.reports import receivers
from explorer.analysis.reports.report import plain

from ..factories import NOON
from .scopes import HOUR, SPAN, a_scope, tables

COLUMNS = {
    "receivers": {
        "receiver": "process:w", "queues": 1, "deliveries": 100, "succeeded": 100, "lost": 0, "rejected": 0, "failed": 0,
        "work_us": 1_000_000, "work_95_us": 2_000_000, "last_at": NOON,
    },
    "times": {"receiver": "process:w", "at": NOON, "deliveries": 5},
    "all": {"receivers": 1, "deliveries": 100, "unsuccessful": 0, "generated": 7},
    "before": {"receivers": 1, "deliveries": 0, "unsuccessful": 0, "generated": 0},
}  # fmt: skip
BAD = {"receiver": "process:x", "deliveries": 60, "succeeded": 30, "lost": 20, "rejected": 6, "failed": 4}


def shown(rows, everything, times=(), **changes):
    made = tables(COLUMNS, receivers=rows, all=[everything], times=list(times), before=[{}])
    return receivers.present(a_scope("orders", **changes), {}, made)


def test_a_receiver_that_fails_clearly_more_often_is_named():
    report = shown([{}, BAD], {"receivers": 2, "deliveries": 160, "unsuccessful": 30}, compared=SPAN.before(HOUR))
    assert report.finding == (
        "2 receivers had 160 deliveries of shop/orders; w took 62.5\xa0%, half in 1.0 s. x fails more often: 50.0\xa0%, the "
        "others 0.0\xa0%. From 2026-03-01 11:00 to 2026-03-01 12:00 there were no deliveries."
    )
    figure = report.sections[0].figures[0]
    assert report.sections[0].name == "shares" and [tick.text for tick in figure.charts[0].y_ticks] == ["x", "w"]
    assert report.generated == 7


def test_numbers_link_to_their_deliveries():
    row = shown([{}, BAD], {"receivers": 2, "deliveries": 160, "unsuccessful": 30}).tables["receivers"].rows[1]
    assert [plain(value) for value in row[:8]] == ["x", 60, 1, 30, 20, 6, 4, 0.5]
    name, *numbers = [value for value in row if hasattr(value, "url")]
    assert name.url == "/actors/process/x/"
    assert [value.url.split("deliveries=")[1] for value in numbers] == [
        f"{ending}&receiver=process%3Ax" for ending in ("all", "succeeded", "lost", "rejected", "failed")
    ]


def test_receivers_that_do_not_differ_are_reported_as_such():
    same = BAD | {"succeeded": 60, "lost": 0, "rejected": 0, "failed": 0}
    report = shown([{}, same], {"receivers": 2, "deliveries": 160})
    assert report.finding.endswith("half in 1.0 s, and none fails clearly more often than the others.")
    assert [section.name for section in report.sections] == ["receivers"]
    assert shown([{}], {}).finding == "w is the only receiver of shop/orders: 100 deliveries, half in 1.0 s."
    assert shown([], {}).finding == "No messages of shop/orders were received in this range."


def test_receive_times_are_drawn_if_a_receiver_paused():
    steady = [{"at": at} for at in SPAN.buckets]
    paused = [{"receiver": "", "at": NOON}]
    assert "times" not in [one.name for one in shown([{}], {}, steady).sections]
    [section] = [part for part in shown([{}], {}, steady + paused).sections if part.name == "times"]
    drawn = section.figures[0].charts[0]
    assert [tick.text for tick in drawn.y_ticks] == ["w", "an unknown receiver"]
    assert [shape.path for shape in drawn.cells] == ["M0 0.5h12M0 1.5h1"]
