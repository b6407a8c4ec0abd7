"""Which statements are activity of their entity (docs/design.md D19)."""

import re
from pathlib import Path

from broker_core.common.types import MessageState, UseKind
from broker_core.store.statements import KEEPING, SQL

DESIGN = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
SECTION = DESIGN.partition("### D19.")[2].partition("## Invariants")[0]
ROWS = re.findall(r"^\| (`[^|]*) \| (\w+) \| ([^|]+) \|$", SECTION, re.MULTILINE)
TABLE = {name: activity for names, activity, _ in ROWS for name in re.findall(r"`(\w+)`", names)}
BY_ANOTHER = {  # those whose activity another statement of the same call records
    "send": "touch_by_send", "send_scheduled": "touch_by_send", "send_to_sessions": "touch_by_send",
    "take_due_at_topic": "publish", "import_messages": "create_entity",
}  # fmt: skip
INSERTS = re.compile(r"INSERT INTO vitrine_message \(")
DELETES = re.compile(r"DELETE FROM vitrine_message\b")


def changed_columns(text):
    """The columns of messages that the statement's updates set."""
    return {
        column
        for assignments in re.findall(r"UPDATE vitrine_message AS \w+\s+SET (.*?)\n *(?:FROM|WHERE|RETURNING)\b", text, re.DOTALL)
        for column in re.findall(r"(?:^|,)\s*(\w+) = ", assignments)
    }


def takes_scheduled(text):
    """Whether the statement deletes messages that are, or may be, scheduled."""
    number = int(MessageState.SCHEDULED)
    states = rf"\bstate = (?:{number}\b|%\(state\)s|ANY \(%\(states\)s|ANY \('{{[\d,]*\b{number}\b)"
    return DELETES.search(text) and re.search(states, text)


def is_looked_at(text):
    return INSERTS.search(text) or changed_columns(text) & {"subqueue", "state", "entity_id"} or takes_scheduled(text)


def test_the_table_has_all_statements_that_add_messages_or_remove_scheduled_messages():
    assert len(TABLE) > 30
    assert set(TABLE) == {name.removesuffix(KEEPING) for name, text in SQL.items() if is_looked_at(text)}


def test_each_statement_records_the_activity_of_the_table():
    for name, activity in TABLE.items():
        recorded = set(re.findall(r"last_use = (\d+)", SQL[BY_ANOTHER.get(name, name)]))
        if name == "import_messages":
            recorded = {str(int(UseKind.CREATE))} if "last_use" in SQL["create_entity"] else set()
        assert recorded == (set() if activity == "no" else {str(int(UseKind[activity.upper()]))}), name


def test_each_row_has_a_reason():
    assert all(len(why) > 10 for _, _, why in ROWS)
