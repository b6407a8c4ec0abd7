"""Hostile inputs for each parser: it reads them or refuses them, as it promises."""

from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from broker_core.service_bus.administration import documents, elements

from .hostile import hostile
from .kept import cases_of
from .seeds import SEEDS
from .targets import TARGETS

EXAMPLES, INPUTS_EACH = 45, 20  # 900 for each parser, about 10,000 together


def _entity(data):
    return documents.read_entity(data, tuple(elements.DESCRIPTION))


@pytest.mark.parametrize("target", TARGETS)
def test_any_input_is_read_or_refused(target):
    @settings(max_examples=EXAMPLES)
    @given(st.integers(0, 2**32))
    def check(seed):
        random = Random(seed)
        for _ in range(INPUTS_EACH):
            data = hostile(target, random)
            try:
                TARGETS[target](data)
            except BaseException:
                note(f"the input: {data!r}")
                raise

    check()


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_that_were_found_are_read_or_refused(target):
    for case in cases_of(target):
        TARGETS[target](case.read_bytes())


@pytest.mark.parametrize(("target", "read"), [("entity", _entity), ("rule", documents.read_rule)])
def test_each_valid_document_is_read(target, read):
    """The test of the test: what changed documents are made of."""
    for data in SEEDS[target]:
        assert read(data)
