"""That the faults of `make mutants` can be made: their texts are in the statements, and the tests that should fail exist."""

from pathlib import Path

import pytest

from broker_core.store import statements
from tests.mutants.sql import MUTANTS

TESTS = Path(__file__).parent


def resolved(text: str) -> str:
    """A statement's text with the numbers of its names, such as @STATE_ACTIVE."""
    return statements._with_numbers(text, TESTS / "mutants" / "sql.py")


@pytest.mark.parametrize(("statement", "text", "fault", "tests"), MUTANTS)
def test_a_fault_changes_its_statement_and_names_existing_tests(statement, text, fault, tests):
    assert resolved(text) in statements.SQL[statement]
    assert resolved(text) != resolved(fault)
    file, _, names = tests.partition("::")
    text_of_tests = (TESTS / file).read_text()
    for name in names.split():
        assert f"def {name.partition('[')[0]}(" in text_of_tests
