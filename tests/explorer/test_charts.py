"""The geometry of charts: pure."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from explorer.charts import axis, columns, labels, rows, scale
from explorer.charts import chart as frame

HOURS = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in range(22)]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 4), (3, 4), (4, 4), (5, 5), (9, 10), (10, 10), (11, 20), (41, 50), (620, 800), (1001, 2000)]
)
def test_an_axis_ends_at_a_round_number_and_its_ticks_are_whole(value, top):
    assert scale.count_end(value) == top
    ticks = axis.count_ticks(top)
    assert (ticks[0], ticks[-1]) == (0, top)
    assert len({b - a for a, b in zip(ticks, ticks[1:], strict=False)}) == 1


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (None, "–"),
        (timedelta(microseconds=430), "0.4 ms"),
        (timedelta(milliseconds=12), "12 ms"),
        (timedelta(seconds=1.26), "1.3 s"),
        (timedelta(seconds=42), "42 s"),
        (timedelta(minutes=3, seconds=30), "3.5 min"),
        (timedelta(hours=2), "2.0 h"),
        (timedelta(days=9), "9.0 days"),
    ],
)
def test_a_duration_has_one_unit(duration, text):
    assert labels.brief(duration) == text


@pytest.mark.parametrize(
    ("least", "most", "first", "last"),
    [
        (timedelta(0), timedelta(0), "0.1 ms", "1 ms"),
        (timedelta(seconds=1), timedelta(seconds=1), "1 s", "10 s"),
        (timedelta(seconds=0.3), timedelta(minutes=4), "100 ms", "10 min"),
        (timedelta(days=200), timedelta(days=900), "10 days", "100 days"),
    ],
)
def test_a_logarithmic_axis_encloses_its_values(least, most, first, last):
    ticks = [labels.round_duration(tick) for tick in scale.decades(least, most)]
    assert (ticks[0], ticks[-1]) == (first, last)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"), (0.0001, "0.1 ms"), (0.0025, "2.5 ms"), (0.5, "500 ms"), (1, "1 s"), (30, "30 s"), (450, "7.5 min"),
        (5400, "1.5 h"), (43_200, "12 h"), (86_400, "1 day"), (302_400, "3.5 days"), (9_676_800, "112 days"),
    ],
)  # fmt: skip
def test_a_duration_at_a_label_of_an_axis(seconds, text):
    assert labels.round_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (950, "950"), (1000, "1 k"), (1500, "1,500"), (12_500, "12.5 k"), (8_000_000, "8 M")]
)
def test_a_count_at_a_label_of_a_small_chart(count, text):
    assert labels.round_count(count) == text


@pytest.mark.parametrize(
    ("value", "multiples", "end"),
    [
        (1, scale.STEPS, 1),
        (3, scale.STEPS, 5),
        (0.03, scale.STEPS, 0.05),
        (11, scale.COUNTS, 20),
        (0.21, rows.SHARES, 0.25),
    ],
)
def test_a_value_is_rounded_up_to_a_multiple_of_a_power_of_ten(value, multiples, end):
    assert scale.round_up(value, multiples) == pytest.approx(end)


def test_round_durations_ascend_and_each_divides_a_later_one():
    """So that an axis of time finds steps for intervals of any of these lengths."""
    assert list(scale.DURATIONS) == sorted(set(scale.DURATIONS))
    assert all(any(not later % duration for later in scale.DURATIONS[i + 1 :]) for i, duration in enumerate(scale.DURATIONS[:-1]))


@pytest.mark.parametrize(
    ("value", "at"), [(HOURS[0], 50), (HOURS[5], 75), (HOURS[10], 100), (HOURS[10] + timedelta(minutes=6), 100.5)]
)
def test_a_linear_scale_places_values_in_proportion(value, at):
    assert scale.linear(HOURS[0], HOURS[10], 50, 100)(value) == at
    assert scale.linear(HOURS[0], HOURS[0], 50, 100)(value) == 100


@pytest.mark.parametrize(("milliseconds", "at"), [(1, 100), (10, 75), (31.623, 62.5), (1000, 25), (10_000, 0), (0, 125)])
def test_a_logarithmic_scale_has_its_decades_at_equal_distances(milliseconds, at):
    second = timedelta(seconds=1)
    assert scale.logarithmic(second / 1000, 10 * second, 100, 0)(timedelta(milliseconds=milliseconds)) == at


def heights(path: str) -> list[float]:
    """Of the bars of a path, in order."""
    return [round(float(low) - float(high), 1) for low, high in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", path)]


def test_stacked_bars_are_proportional():
    chart = columns.stacked_bars(HOURS[:2], {"a": [4, 2], "b": [0, 2]}, "column")
    full = frame.HEIGHT - frame.TOP - frame.BOTTOM
    below, above = chart.shapes
    assert heights(below.path) == [full, full / 2]
    assert heights(above.path) == [full / 2]
    assert f" {chart.top}" not in below.path.split("M")[2]
    assert [tick.text for tick in chart.y_ticks] == ["0", "1", "2", "3", "4"]


def test_labels_of_a_logarithmic_axis_do_not_overlap():
    """One day is near 10 h, and one minute near 10 s."""
    span = [timedelta(milliseconds=0.1), timedelta(days=1)]
    ticks = columns.duration_lines(HOURS[:2], {"p50": span}, "column").y_ticks
    assert [tick.text for tick in ticks][-3:] == ["10 min", "1 h", "1 day"]
    assert all(below.at - above.at >= 11 for below, above in zip(ticks, ticks[1:], strict=False))


def test_a_line_is_interrupted_where_values_are_missing():
    second = timedelta(seconds=1)
    [shape] = columns.duration_lines(HOURS[:5], {"p50": [second, second, None, second, None]}, "column").shapes
    assert re.findall(r"[MLH]", shape.path) == ["M", "L", "M", "H"]


@pytest.mark.parametrize("variant", [*frame.WIDTHS, *frame.COLUMN_WIDTHS])
@pytest.mark.parametrize("count", [1, 2, 22])
def test_labels_of_time_do_not_overlap_and_stay_inside(variant, count):
    chart = columns.stacked_bars(HOURS[:count], {"a": [1] * count}, variant)
    positions = [tick.at for tick in chart.x_ticks]
    assert positions
    assert all(b - a >= axis.CHARACTER * 6 for a, b in zip(positions, positions[1:], strict=False))
    assert positions[-1] <= chart.width - 20 or len(positions) == 1


@pytest.mark.parametrize(
    ("first", "length", "count", "texts"),
    [
        (
            datetime(2026, 3, 1, 23, 11, tzinfo=UTC),
            timedelta(minutes=1),
            380,
            ["00:00", "01:00", "02:00", "03:00", "04:00", "05:00"],
        ),
        (
            datetime(2026, 3, 1, 13, tzinfo=UTC),
            timedelta(hours=1),
            24,
            ["15:00", "18:00", "21:00", "02 Mar", "03:00", "06:00", "09:00"],
        ),
        (datetime(2026, 3, 1, tzinfo=UTC), timedelta(days=1), 3, ["01 Mar", "02 Mar", "03 Mar"]),
        (datetime(2026, 3, 1, 13, 7, tzinfo=UTC), timedelta(minutes=1), 2, ["13:07", "13:08"]),
        (datetime(2026, 3, 2, tzinfo=UTC), timedelta(days=7), 40, ["13 Apr", "08 Jun", "03 Aug", "28 Sep"]),
    ],
)
def test_labels_of_time_are_at_round_times_and_mark_a_new_day(first, length, count, texts):
    starts = [first + i * length for i in range(count)]
    labels = [tick.text for tick in columns.stacked_bars(starts, {"a": [1] * count}, "column").x_ticks]
    assert labels == texts


def test_columns_too_narrow_to_point_at_have_no_tip():
    for count, tips in ((400, []), (22, ["tip"] * 22)):
        times = [timedelta(seconds=1.01**i) for i in range(count)]
        drawn = columns.share_curve(times, {"share": [0.5] * count}, ["tip"] * count, "narrow")
        assert [spot.title for spot in drawn.spots] == tips


def test_no_values_draw_an_empty_chart():
    assert columns.duration_lines(HOURS[:1], {"p50": [None]}, "narrow").shapes[0].path == ""
    assert columns.stacked_bars([], {"a": []}, "column").x_ticks == []


def test_the_circles_of_marks_at_the_same_place_are_below_each_other():
    marks = frame.placed_marks([(10.0, "A", "a"), (12.0, "B", "b"), (20.0, "C", "c"), (80.0, "D", "d")])
    assert [mark.y for mark in marks] == [0, 17, 34, 0]
