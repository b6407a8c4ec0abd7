"""docs/rules.md, the code and the tests have the same rules."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBER = r"(?:SB|QS|RMQ)-(?:\d{3}|F\d\d)"  # those with F, and RMQ-300 to RMQ-399, are our own numbers
ROW = re.compile(rf"^\| ({NUMBER}) \|.*\| ([\w/]+\.py) (\w+) \|$", re.MULTILINE)
RULES = ROW.findall((ROOT / "docs" / "rules.md").read_text())
UNIMPLEMENTED_SECTIONS = "".join(
    re.findall(r"^## [^\n]*[Nn]ot implemented yet\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "rules.md").read_text(), re.M | re.S)
)
UNIMPLEMENTED = re.findall(rf"^\| ({NUMBER}) \|", UNIMPLEMENTED_SECTIONS, re.MULTILINE)
# The rules of each family by number: first and last of each run.
ALL = {
    "SB": [
        *((1, 15), (20, 40), (45, 53), (60, 67), (70, 77), (80, 94), (100, 105), (110, 124), (130, 137), (140, 148)),
        *((150, 153), (160, 167), (170, 178), (190, 197), (210, 221), (230, 236), (240, 242), (260, 265), (901, 935)),
    ],
    "QS": [
        *((1, 3), (5, 8), (10, 13), (15, 15), (20, 28), (35, 39), (45, 55), (60, 65), (70, 71), (73, 76), (78, 78), (85, 91)),
        *((95, 96), (98, 98), (105, 112), (901, 913), (916, 918), (920, 925)),
    ],
    "RMQ": [
        *((1, 29), (40, 51), (60, 80), (90, 99), (110, 128), (140, 150), (160, 162), (170, 173), (180, 180), (190, 190)),
        *((200, 211), (300, 317), (320, 354), (360, 387), (390, 394), (901, 928)),
    ],
}


def test_each_rule_has_one_row():
    numbers = [number for number, _, _ in RULES]
    assert len(numbers) > 80
    assert len(set(numbers)) == len(numbers)


def test_each_named_test_exists():
    for number, file, name in RULES:
        assert re.search(rf"^(async )?def test_{name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), (number, file, name)


def test_each_rule_cited_in_the_core_has_a_row():
    known = {number for number, _, _ in RULES} | set(UNIMPLEMENTED)
    for path in [*(ROOT / "broker_core").rglob("*.py"), *(ROOT / "broker_core").rglob("*.sql")]:
        for number in re.findall(NUMBER, path.read_text()):
            assert number in known, f"{path.relative_to(ROOT)} cites {number}, which docs/rules.md does not state"


def test_every_rule_is_stated_or_listed_as_not_implemented():
    stated = {number for number, _, _ in RULES}
    wanted = {f"{family}-{n:03d}" for family, runs in ALL.items() for first, last in runs for n in range(first, last + 1)}
    assert wanted <= stated | set(UNIMPLEMENTED), sorted(wanted - stated - set(UNIMPLEMENTED))
    assert not stated & set(UNIMPLEMENTED)
