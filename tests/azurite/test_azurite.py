"""The core, the port and Azurite: the same story, the same facts, but for the differences from Azurite that are meant; and random
scripts."""

import itertools
import os
import time

import pytest

from tests.differential.comparison import compare, note

from .brokers import Azurite, Core, Port
from .scripts import WithAzurite, WithPort
from .stories import STORIES
from .telling import AT_THE_PORT, SHORTEN_FOR, facts_of, fail_shortest

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

_numbers = itertools.count(1)
pytestmark = pytest.mark.usefixtures("always_refreshed")


@pytest.mark.parametrize("name", STORIES)
def test_scripted_operations_agree_with_azurite(azurite, make_account, name):
    """The port and the core tell the same, and Azurite tells otherwise only what is listed."""
    number = next(_numbers)
    queue, account = f"story-{number}", make_account(f"port{number}")
    core = facts_of(Core(f"account{number}", queue), name)
    compare("port", name, facts_of(Port(account.url, account.key, queue), name), core, AT_THE_PORT)
    compare("Azurite", name, facts_of(Azurite(azurite, queue), name), core, MEANT)


@pytest.mark.timeout(240 + 8 * SCRIPTS + SHORTEN_FOR)  # of which a machine that is busy needs most
def test_random_scripts_agree_with_azurite(azurite, make_account):
    """`make test-azurite SEED=7 SCRIPTS=200` begins with other dice, or tries more."""
    seed = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
    seeds, account = range(seed, seed + SCRIPTS), make_account("port")
    fail_shortest(WithPort(lambda queue: Port(account.url, account.key, queue), "core"), seeds)
    comparison = WithAzurite(azurite, "scripts")
    fail_shortest(comparison, seeds)
    busy = f"; {comparison.too_slow} were not compared: this machine is too busy" if comparison.too_slow else ""
    note("Azurite", f"{SCRIPTS} scripts from seed {seed} on{busy}")
    if comparison.too_slow == SCRIPTS:
        pytest.skip("this machine is too busy for a real clock")
