"""docs/rules.md, the code and the tests tell the same rules."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBER = r"SB-(?:\d{3}|F\d\d)"  # those with F are our own, for the filter language
ROW = re.compile(rf"^\| ({NUMBER}) \|.*\| ([\w/]+\.py) (\w+) \|$", re.MULTILINE)
RULES = ROW.findall((ROOT / "docs" / "rules.md").read_text())
# Cited where it is said that they do not apply yet, or only in a front end.
NOT_YET = {"SB-029", "SB-040", "SB-104", "SB-130", "SB-160", "SB-170", "SB-913"}


def test_each_row_names_a_rule_once():
    numbers = [number for number, _, _ in RULES]
    assert len(numbers) > 80
    assert len(set(numbers)) == len(numbers)


def test_each_test_named_is_there():
    for number, file, name in RULES:
        assert re.search(rf"^(async )?def test_{name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), (number, file, name)


def test_each_rule_cited_in_the_core_has_a_row():
    known = {number for number, _, _ in RULES} | NOT_YET
    for path in [*(ROOT / "broker_core").rglob("*.py"), *(ROOT / "broker_core").rglob("*.sql")]:
        for number in re.findall(NUMBER, path.read_text()):
            assert number in known, f"{path.relative_to(ROOT)} cites {number}, which docs/rules.md does not state"
