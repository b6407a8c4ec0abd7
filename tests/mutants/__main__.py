"""Run mutants and list the survivors: `python -m tests.mutants [sql|rules] [--sample N] [--seed N] [--only N ...]`.

A mutant is caught if a test fails. One that stops the tests from starting is neither caught nor a survivor: it is an error.
"""

import argparse
import ast
import os
import random
import subprocess
import sys
from collections.abc import Iterator

from . import rules
from .sql import MUTANTS

SECONDS = 300  # for the tests of one mutant; a mutant that makes them hang is caught, too
Mutant = tuple[str, str, list[str]]  # how the plugin knows it, what it does, the tests


def sql_mutants() -> Iterator[Mutant]:
    for index, (name, old, new, tests) in enumerate(MUTANTS):
        yield f"sql:{index}", f"{name}: {old!r} becomes {new!r}", [f"tests/{tests}"]


def rule_mutants() -> Iterator[Mutant]:
    for file in rules.files():
        for index, (node, what) in enumerate(rules.places(ast.parse((rules.ROOT / file).read_text()))):
            yield f"rules:{file}:{index}", f"{file}:{getattr(node, 'lineno', '?')}: {what}", rules.tests_of(file)


def is_caught(mutant: Mutant) -> bool | None:
    """None: the tests could not be run."""
    which, _, tests = mutant
    command = [sys.executable, "-m", "pytest", "-qx", "--no-header", "--reuse-db", "-p", "tests.mutants.plugin", *tests]
    try:
        ended = subprocess.run(
            command,
            check=False,
            cwd=rules.ROOT,
            env={**os.environ, "VITRINE_MUTANT": which},
            capture_output=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return True
    # 2: the tests could not be imported with the mutant; of a rule that is a fault noticed.
    return {0: False, 1: True, 2: True if which.startswith("rules") else None}.get(ended.returncode)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("kind", nargs="?", choices=["sql", "rules"])
    asked.add_argument("--sample", type=int, default=60, help="how many mutants of the rules, chosen at random; 0: all")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--only", type=int, nargs="*", help="of the mutants of statements: these")
    given = asked.parse_args()
    chosen: list[Mutant] = []
    if given.kind != "rules":
        chosen += [mutant for n, mutant in enumerate(sql_mutants()) if given.only is None or n in given.only]
    if given.kind != "sql":
        all_of_them = list(rule_mutants())
        chosen += random.Random(given.seed).sample(all_of_them, min(given.sample or len(all_of_them), len(all_of_them)))
    answers = {True: "caught", False: "SURVIVED", None: "ERROR"}
    found: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for mutant in chosen:
        caught = is_caught(mutant)
        found[caught].append(mutant[1])
        print(f"{answers[caught]:9}{mutant[0]}  {mutant[1]}", flush=True)
    print(f"{len(found[True])} of {len(chosen)} caught, {len(found[False])} survived, {len(found[None])} errors")
    for what in [*found[False], *found[None]]:
        print(f"  {what}")
    return 0 if len(found[True]) >= 0.95 * len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
