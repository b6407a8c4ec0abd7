"""Overview: adjacent hours are a finding, findings that overlap are an incident."""

from types import SimpleNamespace

import pytest

from explorer.analysis.jobs.constants import ARRIVALS, LOCKS, LOSSES, WAITING
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.reports import overview
from explorer.analysis.survival import CannotTell

from .report_inputs import DAY, HOUR, MINUTE, NOON, a_scope, tables

SLOW = (bin_of(60_000_000), bin_of(1_000_000))


def hour(metric: int, at: int, score: float, value: float = 200, usual: float = 100, entity_id: int = 1) -> dict:
    numbers = {"value": float(value), "usual": float(usual), "score": float(score)}
    return {"entity_id": entity_id, "metric": metric, "at": NOON + at * HOUR, **numbers}


def findings(*hours: dict) -> list:
    return overview.findings([SimpleNamespace(**hour) for hour in hours])


def test_adjacent_deviations_in_the_same_direction_are_one_finding():
    incidents = findings(hour(ARRIVALS, 1, 8), hour(ARRIVALS, 0, 10), hour(ARRIVALS, 2, -5, 0), hour(ARRIVALS, 4, 6))
    assert [(finding.start, finding.end, finding.was, finding.usual, finding.score) for finding in incidents] == [
        (NOON, NOON + 2 * HOUR, 400, 200, 10), (NOON + 4 * HOUR, NOON + 5 * HOUR, 200, 100, 6),
        (NOON + 2 * HOUR, NOON + 3 * HOUR, 0, 100, -5),
    ]  # fmt: skip
    [slow] = findings(hour(WAITING, 0, 5, 120), hour(WAITING, 1, 9, 180))
    assert (slow.was, slow.usual) == (180, 100), "of durations, the longest"


def test_findings_that_overlap_in_time_are_one_incident():
    incidents = overview.incidents(
        findings(
            hour(ARRIVALS, 0, 5), hour(ARRIVALS, 1, 5), hour(WAITING, 1, 9, *SLOW), hour(WAITING, 2, 9, *SLOW),
            hour(LOSSES, 2, 20, entity_id=2), hour(LOCKS, 3, 6), hour(LOCKS, 9, 30),
        )
    )  # fmt: skip
    assert [(incident.start, incident.end, incident.entity_ids, incident.score) for incident in incidents] == [
        (NOON + 9 * HOUR, NOON + 10 * HOUR, [1], 30), (NOON, NOON + 3 * HOUR, [2, 1], 20),
        (NOON + 3 * HOUR, NOON + 4 * HOUR, [1], 6),
    ]  # fmt: skip


def test_the_sentence_is_about_the_worst_incident():
    incidents = overview.incidents(findings(hour(ARRIVALS, 1, 5), hour(WAITING, 1, 9, *SLOW, entity_id=2), hour(LOCKS, 9, 4)))
    assert overview.sentence("all queues of shop", incidents, {1: "a", 2: "b"}) == (
        "2 incidents in all queues of shop. Most unusual, from 2026-03-01 13:00 to 2026-03-01 14:00: in b, messages waited "
        "longer than usual (1.0 min, usually 1.0 s), with 1 other finding in 2 queues at the same time."
    )
    assert overview.sentence("shop/q", [], {}) == "Nothing was unusual in shop/q for the hour and the weekday."


def test_incidents_and_findings_link_to_their_evidence():
    scope = a_scope("a", "b", end=NOON + DAY)
    inputs = tables(hours=[hour(ARRIVALS, 1, 5), hour(LOSSES, 1, 9, 9, 0, entity_id=2)])
    report = overview.present(scope, {}, inputs)
    [incident] = report.tables["incidents"].rows
    assert (
        incident[2:] == ("b and a", incident[3], 2, 9) and incident[3].value == "More messages were lost; more messages entered"
    )
    assert "/analyses/report/losses/?namespace=shop&range=custom&start=2026-03-01T13" in incident[3].url
    lost, entered = report.tables["findings"].rows
    assert (lost[1], lost[5], lost[6]) == ("b", "9", "0") and "/analyses/report/flow/?queue=1" in entered[0].url
    assert entered[5].value == "200" and entered[5].url.startswith("/analyses/messages/?queue=1&start=2026-03-01T13")
    assert report.sections[0].figures[0].charts[0].y_ticks[0].text == "b"


def test_a_short_history_says_when_an_answer_becomes_possible():
    def known(since) -> list[dict]:
        return [{"since": since, "messages": 1, "generated": 0}]

    scope = a_scope(start=NOON - DAY, end=NOON)
    with pytest.raises(CannotTell, match="begins at 2026-03-01 09:10. What is unusual can be told from 2026-03-01 16:00 on"):
        overview.present(scope, {}, tables(hours=[], known=known(NOON - 3 * HOUR + 10 * MINUTE)))
    report = overview.present(scope, {}, tables(hours=[], known=known(NOON - 20 * HOUR)))
    assert "until 2026-03-03 16:00, hours are compared only with those before them" in report.finding
    assert "begins" not in overview.present(scope, {}, tables(hours=[])).finding
    with pytest.raises(CannotTell, match="no whole hour"):
        overview.present(a_scope(start=NOON + MINUTE, end=NOON + 20 * MINUTE), {}, tables(hours=[]))


def test_incidents_are_compared_with_those_of_another_range():
    incidents = overview.incidents(findings(hour(ARRIVALS, 1, 5), hour(LOSSES, 1, 9)))
    span, names = a_scope().range, {1: "q"}
    begin = "From 2026-03-01 12:00 to 2026-03-01 13:00"
    for before, said in (
        ([hour(LOSSES, -9, 5)], f"{begin} there was 1 incident; again, more messages were lost in q."),
        ([hour(LOSSES, -9, 5, entity_id=2)], f"{begin} there was 1 incident, of another kind."),
        ([], f"{begin} nothing was known to be unusual."),
    ):
        assert overview.compared(incidents, findings(*before), span, names) == said
