"""Hot properties and sessions: values that stand out, sessions that stalled, and numbers that lead to their messages."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

from broker_core.common.types import Family
from explorer.analysis import dimensions
from explorer.analysis.reports import properties

from ..factories import NOON
from .scopes import HOUR, SPAN, a_scope, tables

MINUTE = timedelta(minutes=1)
COLUMNS = {
    "values": {
        "entity_id": 1, "key": "property:region", "value": "us", "messages": 200, "failed": 1, "slow": 0, "others": 50,
        "others_failed": 30, "others_slow": 0, "tested": 3,
    },
    "before": {"entity_id": 1, "key": "property:region", "value": "eu", "messages": 10, "failed": 1, "slow": 0},
    "sessions": {
        "entity_id": 1, "session": "hot", "messages": 40, "failed": 0, "wait_us": None, "still_us": 1_000_000, "since": NOON,
        "first": 3, "queue_messages": 49, "queue_sessions": 8,
    },
    "spells": {"entity_id": 1, "session": "stuck", "since": NOON, "until": NOON + 15 * MINUTE},
    "all": {"messages": 250, "generated": 2},
}  # fmt: skip
EU = {"value": "eu", "messages": 40, "failed": 20, "others": 210, "others_failed": 11}
FEW = {"value": "ca", "messages": 10, "failed": 10, "others": 240, "others_failed": 21}
STUCK = {"session": "stuck", "messages": 3, "still_us": 900_000_000, "wait_us": 5}


def shown(scope=None, **rows):
    return properties.present(scope or a_scope("q"), {}, tables(COLUMNS, all=[{}], **rows))


def test_the_value_that_fails_more_is_named():
    """10 of region ca fail, too, which are too few."""
    report = shown(a_scope("q", compared=SPAN.before(HOUR)), values=[{}, EU, FEW], before=[{}])
    assert report.finding.startswith(
        "Messages of q with region eu failed more often: 50.0\xa0% (35.2\xa0% to 64.8\xa0%), 5.2\xa0% of the others. From "
        "2026-03-01 11:00 to 2026-03-01 12:00, 10.0\xa0% ("
    )
    assert [section.name for section in report.sections] == ["failed", "values"] and report.generated == 2
    assert [row[2] for row in report.tables["values"].rows] == ["eu", "us", "ca"]
    assert report.links[0].value == "Change the properties"


def test_a_key_with_many_values_needs_a_clearer_difference():
    value = {"value": "eu", "messages": 40, "failed": 9, "others": 400, "others_failed": 30}
    assert properties.standing_out([properties.Value(**(COLUMNS["values"] | value | {"tested": 1}))], "failed")
    assert not properties.standing_out([properties.Value(**(COLUMNS["values"] | value | {"tested": 200}))], "failed")
    assert "No property of messages of shop/q has a value that failed" in shown(values=[{}]).finding


def test_numbers_link_to_the_messages_with_the_value():
    query = parse_qs(urlsplit(shown(values=[EU]).tables["values"].rows[0][3].url).query)
    assert (query["key"], query["value"], query["left_start"]) == (["property:region"], ["eu"], [NOON.isoformat()])


def test_stalled_sessions_and_busy_sessions_are_named():
    report = shown(values=[{}], sessions=[{}, STUCK], spells=[{}])
    assert report.finding.endswith(
        "Session stuck stalled longest: 15 min from 2026-03-01 12:00. "
        "Session hot has the most messages: 81.6\xa0% of its queue's."
    )
    section = report.sections[-1]
    assert [row[1] for row in section.table.rows] == ["stuck", "hot"]
    assert [tick.text for tick in section.figures[0].charts[0].y_ticks] == ["stuck"]
    assert section.table.rows[0][-1].url == "/messages/shop/q/3"


def test_the_share_of_intervals_with_stalled_sessions_is_shown():
    assert properties.stalled([(NOON - HOUR, NOON + 5 * MINUTE), (NOON + 6 * MINUTE, NOON + 11 * MINUTE)], SPAN)[:4] == [
        1, 0.8, 0.2, 0,
    ]  # fmt: skip


def test_sessions_of_the_same_id_in_two_queues_are_separate():
    rows = [STUCK | {"entity_id": i, "first": i} for i in (1, 2)]
    section = shown(a_scope("q", "r"), sessions=rows, spells=[{}, {"entity_id": 2}]).sections[-1]
    assert [tick.text for tick in section.figures[0].charts[0].y_ticks] == ["stuck", "stuck"]
    assert {row[-1].url for row in section.table.rows} == {"/messages/shop/q/1", "/messages/shop/r/2"}


def test_storage_queues_have_no_properties():
    report = shown(a_scope("q", family=Family.QUEUE_STORAGE))
    assert not report.links and report.finding == properties.NONE


def test_values_are_formatted():
    assert dimensions.text("size", "512") == "512 to 1,023 bytes"
    assert dimensions.words("time-to-live", "90000000") == "time-to-live 1 min 30 s"
