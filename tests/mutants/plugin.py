"""Applies one mutant to the code under test, in memory: `VITRINE_MUTANT=sql:7 pytest -p tests.mutants.plugin ...`."""

import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path

import hypothesis

from . import rules

# The same examples for each mutant, none made smaller, and no complaint about a busy machine: only what fails is asked.
hypothesis.settings.register_profile(
    "mutants",
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("mutants")

kind, _, which = os.environ.get("VITRINE_MUTANT", "").partition(":")


class _Mutated(SourceFileLoader):
    def get_code(self, fullname):
        return compile(rules.mutated(Path(self.path), int(which.rpartition(":")[2])), self.path, "exec")


class _Finder:
    """Loads the mutated module in place of the one in its file."""

    def find_spec(self, name, path=None, target=None):
        file = which.rpartition(":")[0]
        if name.replace(".", "/") + ".py" == file:
            return spec_from_file_location(name, rules.ROOT / file, loader=_Mutated(name, str(rules.ROOT / file)))
        return None


if kind == "rules":
    sys.meta_path.insert(0, _Finder())


def pytest_sessionstart():
    if kind == "sql":
        from broker_core.store import statements

        from .sql import MUTANTS

        name, old, new, _ = MUTANTS[int(which)]
        old, new = (statements._with_numbers(text, Path("tests/mutants/sql.py")) for text in (old, new))
        if old not in statements.SQL[name]:
            raise LookupError(f"statement {name!r} has no text {old!r}; bring tests/mutants/sql.py up to date")
        statements.SQL[name] = statements.SQL[name].replace(old, new)
