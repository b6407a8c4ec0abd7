"""The core against Azurite: the same story, the same facts, but for the differences that are meant; and random scripts."""

import itertools
import os
import time

import pytest

from broker_core.queue_storage import getting
from tests.differential.comparison import compare, note

from .brokers import Azurite, Core
from .scripts import Comparison, made, shortest
from .stories import STORIES

NO_CODE = "QS-910: each refusal here has its code and details; Azurite's has none"
NOT_CHECKED = "names are C# identifiers, as the documents say; Azurite does not check them"
NOT_IN_XML = "QS-912: refused, where Azurite stores it and then fails for all who read"
# By story and fact: why the core does otherwise.
MEANT: dict[tuple[str, str], str] = {
    ("names_of_queues", "create a|b (3)"): "no name has such a sign; Azurite's pattern lets it in by mistake",
    ("metadata", "upper case"): "QS-924: names are kept in lower case",
    **{("metadata", fact): NOT_CHECKED for fact in ("a digit first", "a dash", "a dot", "a dollar")},
    ("metadata", "nine thousand"): "the documents' 8 KiB in all, which Azurite does not check",
    ("a_deleted_queue", "peek what is wrong"): NO_CODE,
    ("what_a_put_tells", "life of -2"): NO_CODE,
    **{("getting", f"{what} {count}"): NO_CODE for what in ("get", "peek") for count in (0, -1)},
    **{
        ("what_xml_cannot_carry", f"put U+{number:04X}"): NOT_IN_XML
        for number in (0x00, 0x01, 0x08, 0x0B, 0x0C, 0x0E, 0x1F, 0xFFFE, 0xFFFF)
    },
    **{("what_xml_cannot_carry", fact): NOT_IN_XML for fact in ("update", "what is got then")},
    ("receipts_of_one_get", "the receipt of the other"): "QS-916: a receipt for each message, where Azurite has one for each get",
    (
        "expired_unseen",
        "the count before anybody looks",
    ): "QS-901: what has expired does not count; Azurite's does until somebody looks",
}
SCRIPTS = int(os.environ.get("SCRIPTS") or 40)
SHORTEN_FOR = 180  # seconds

_numbers = itertools.count(1)
pytestmark = pytest.mark.usefixtures("always_refreshed")


@pytest.fixture
def always_refreshed(monkeypatch):
    """However slow the machine is: a get that finds too little looks from the beginning."""
    monkeypatch.setattr(getting, "CHEAP_REFRESH", float("inf"))


@pytest.mark.parametrize("name", STORIES)
def test_scripted_operations_agree_with_azurite(azurite, broker_database, name):
    number = next(_numbers)
    queue = f"story-{number}"
    compare("Azurite", name, facts_of(Azurite(azurite, queue), name), facts_of(Core(f"account{number}", queue), name), MEANT)


def facts_of(service, name):
    """The facts of a story. It is told of a queue that is there and empty."""
    began = time.monotonic()
    service.create()
    STORIES[name](service)
    service.drop()
    assert time.monotonic() - began < 60
    return service.facts


@pytest.mark.timeout(240 + 8 * SCRIPTS + SHORTEN_FOR)  # of which a machine that is busy needs most
def test_random_scripts_agree_with_azurite(azurite, broker_database):
    """`make test-azurite SEED=7 SCRIPTS=200` begins with other dice, or tries more."""
    seed = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
    comparison, seeds = Comparison(azurite, "scripts"), range(seed, seed + SCRIPTS)
    differences = comparison.differences(map(made, seeds))
    busy = f"; {comparison.too_slow} were not compared: this machine is too busy" if comparison.too_slow else ""
    note("Azurite", f"{SCRIPTS} scripts from seed {seed} on{busy}")
    for number, difference in zip(seeds, differences, strict=True):
        if difference:
            least = shortest(difference, comparison, SHORTEN_FOR)
            pytest.fail(f"SEED={number} SCRIPTS=1 ends otherwise here than in Azurite:\n{least}", pytrace=False)
    if comparison.too_slow == SCRIPTS:
        pytest.skip("this machine is too busy for a real clock")
