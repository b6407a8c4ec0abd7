"""docs/rules.md, the code and the tests tell the same rules."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBER = r"SB-(?:\d{3}|F\d\d)"  # those with F are our own, for the filter language
ROW = re.compile(rf"^\| ({NUMBER}) \|.*\| ([\w/]+\.py) (\w+) \|$", re.MULTILINE)
RULES = ROW.findall((ROOT / "docs" / "rules.md").read_text())
WIRE = (ROOT / "docs" / "rules.md").read_text().partition("## Waits for the wire")[2]
WAITING = re.findall(rf"^\| ({NUMBER}) \|", WIRE, re.MULTILINE)
# The rules of Service Bus by number: first and last of each run.
ALL = [
    *((1, 15), (20, 40), (45, 53), (60, 67), (70, 76), (80, 94), (100, 105), (110, 124), (130, 137), (140, 148)),
    *((150, 153), (160, 167), (170, 178), (190, 197), (210, 221), (230, 236), (240, 242), (260, 265), (901, 933)),
]


def test_each_row_names_a_rule_once():
    numbers = [number for number, _, _ in RULES]
    assert len(numbers) > 80
    assert len(set(numbers)) == len(numbers)


def test_each_test_named_is_there():
    for number, file, name in RULES:
        assert re.search(rf"^(async )?def test_{name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), (number, file, name)


def test_each_rule_cited_in_the_core_has_a_row():
    known = {number for number, _, _ in RULES} | set(WAITING)
    for path in [*(ROOT / "broker_core").rglob("*.py"), *(ROOT / "broker_core").rglob("*.sql")]:
        for number in re.findall(NUMBER, path.read_text()):
            assert number in known, f"{path.relative_to(ROOT)} cites {number}, which docs/rules.md does not state"


def test_every_rule_is_stated_or_said_to_wait_for_the_wire():
    stated = {number for number, _, _ in RULES}
    wanted = {f"SB-{number:03d}" for first, last in ALL for number in range(first, last + 1)}
    assert wanted <= stated | set(WAITING), sorted(wanted - stated - set(WAITING))
    assert not stated & set(WAITING)
