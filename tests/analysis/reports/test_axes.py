"""The time axis of charts."""

from explorer.analysis.reports.scope import Range

from .report_inputs import DAY, HOUR, MINUTE, NOON


def test_the_axis_begins_where_the_history_begins():
    span = Range(NOON, NOON + 7 * DAY)
    shown = span.axis(NOON + 4 * DAY + MINUTE)
    assert (shown.starts[0], len(shown.starts), len(shown.partial)) == (NOON + 4 * DAY, 72, 72)


def test_the_axis_spans_the_whole_range_otherwise():
    span = Range(NOON + MINUTE, NOON + HOUR)
    for since in (None, NOON - DAY, NOON + 2 * HOUR):
        shown = span.axis(since)
        assert (shown.starts, shown.partial) == (span.buckets, [True, *[False] * 11])
