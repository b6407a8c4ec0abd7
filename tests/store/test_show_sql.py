"""manage.py show_sql prints what is run, and how the database would run it."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from broker_core.management.commands.show_sql import PLANNED
from broker_core.store.statements import SQL

ROOT = Path(__file__).resolve().parents[2]


def shown(*args):
    out = io.StringIO()
    call_command("show_sql", *args, stdout=out)
    return out.getvalue()


def test_a_statement_is_shown_with_its_comments_and_includes():
    text = shown("receive")
    assert text.startswith("-- Lock up to max_count available messages")
    assert "-- include:" not in text
    assert not re.search(r"@[A-Z]", text)
    bare = [line.partition("--")[0].strip() for line in text.splitlines()]
    assert "\n".join(line for line in bare if line) == SQL["receive"] + ";"


def test_the_list_has_a_sentence_for_each_statement():
    lines = shown().splitlines()
    assert [line.split()[0] for line in lines] == sorted(SQL)
    assert [line for line in lines if not re.fullmatch(r"\w+ +[A-Z(`'].*\.", line)] == []


@pytest.mark.parametrize(
    ("name", "error"), [("recieve", "no statement 'recieve'; similar ones: receive"), ("zzz", "lists them all")]
)
def test_an_unknown_name_is_refused_with_similar_ones(name, error):
    with pytest.raises(CommandError, match=error):
        shown(name)


def test_the_plan_is_that_of_the_broker(db):
    text = shown("receive", "--explain")
    assert re.search(r"Index Scan using vitrine_message_pkey on vitrine_message", text)
    assert "$1" in text


def test_closing_the_pipe_ends_the_command_silently():
    """As in `manage.py show_sql | head`."""
    with subprocess.Popen(
        [sys.executable, "manage.py", "show_sql"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0)


def test_a_plan_requires_a_statement_with_a_plan():
    without = next(name for name in SQL if not PLANNED.match(SQL[name]))
    with pytest.raises(CommandError, match=f"no plan for '{without}'"):
        shown(without, "--explain")
    with pytest.raises(CommandError, match="needs the name"):
        shown("--explain")
