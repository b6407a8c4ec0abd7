"""Run mutants and list the survivors: `python -m tests.mutants [sql|rules] [--sample N] [--seed N] [--only MUTANT ...]`.

Mutants inside functions of the rules run in forks of one process for each module (`forks`), with the tests that run the changed
line. Every other mutant, and every one that survived in a fork, runs in a process of its own, with all the tests that should
catch it. All these tests run first without a mutant: if one fails, or is not there, nothing that they say about a mutant
counts, and the run ends with an error.

A mutant is caught if a test fails. A statement that PostgreSQL cannot read, and tests that do not start, are errors: neither
caught nor survivors. Each job has a database of its own, which it reuses for all its mutants.
"""

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from . import rules
from .sql import MUTANTS

MODULE_SECONDS = 3600  # for the forks of a module
SECONDS = 300  # for the tests of one mutant; a mutant that makes them hang is caught, too
TEST_SECONDS = 60  # for one test with a mutant
AIM = 0.95
# A statement that is not SQL any more fails every test, which proves nothing.
UNREADABLE = re.compile(
    r"psycopg\.errors\.(Syntax|Undefined|Ambiguous|Grouping|Datatype|CannotCoerce|WrongObject|InvalidColumn)\w*"
)
CAUGHT, SURVIVED, ERROR = "caught", "SURVIVED", "ERROR"


@dataclass(frozen=True)
class Mutant:
    which: str  # as the plugin knows it
    what: str
    tests: tuple[str, ...]  # arguments of pytest
    file: str = ""  # of a change inside a function of the rules


def sql_mutants() -> Iterator[Mutant]:
    for index, (name, old, new, tests) in enumerate(MUTANTS):
        yield Mutant(f"sql:{index}", f"{name}: {old!r} becomes {new!r}", _selection(tests))


def rule_mutants() -> Iterator[Mutant]:
    for file in rules.files():
        tree = ast.parse((rules.ROOT / file).read_text())
        in_functions = rules.in_functions(tree)
        for index, (node, what) in enumerate(rules.places(tree)):
            if not rules.is_equivalent(file, node, what):
                told = f"{file}:{getattr(node, 'lineno', '?')}: {what}"
                inside = str(file) if index in in_functions else ""
                yield Mutant(f"rules:{file}:{index}", told, rules.tests_of(file), inside)


def _selection(tests: str) -> tuple[str, ...]:
    """'service_bus/test_broker.py::test_a test_b' as arguments of pytest."""
    file, _, names = tests.partition("::")
    return tuple(f"tests/{file}::{name}" for name in names.split()) or (f"tests/{file}",)


def pytest(arguments: Iterable[str], data: Path, seconds: float, **environ: str) -> tuple[int | None, str]:
    """What pytest exits with (None: not in time), and what it printed."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "--reuse-db", "-p", "no:cacheprovider"]
    try:
        ended = subprocess.run(
            [*command, *arguments],
            check=False,
            cwd=rules.ROOT,
            env={**os.environ, "VITRINE_DATA": str(data), **environ},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return None, f"not finished after {seconds} s"
    return ended.returncode, ended.stdout + ended.stderr


def run_tests(tests: Iterable[str], data: Path) -> tuple[int | None, str]:
    """Without a mutant, in a new database: the tables of the last run may have been others."""
    return pytest(["--maxfail=20", "--create-db", "-p", "tests.mutants.plugin", *tests], data, 4 * SECONDS)


def in_a_process(mutant: Mutant, data: Path) -> list[tuple[Mutant, str, str]]:
    arguments = ["-x", f"--timeout={TEST_SECONDS}", "-p", "tests.mutants.plugin", *mutant.tests]
    exit_code, printed = pytest(arguments, data, SECONDS, VITRINE_MUTANT=mutant.which)
    return [(mutant, verdict(mutant, exit_code, printed), last_line(printed))]


def in_forks(mutants: list[Mutant], data: Path) -> list[tuple[Mutant, str, str]]:
    """The answers for mutants of one module; SURVIVED is not final."""
    argument = f"{mutants[0].file}:{','.join(mutant.which.rpartition(':')[2] for mutant in mutants)}"
    data.mkdir(parents=True, exist_ok=True)
    file = data / "found.json"
    file.unlink(missing_ok=True)
    arguments = ["--timeout=0", "-p", "tests.mutants.forks", *mutants[0].tests]  # each fork has a limit of its own
    _, printed = pytest(arguments, data, MODULE_SECONDS, VITRINE_MUTANTS=argument, VITRINE_FOUND=str(file))
    if not file.exists():
        return [(mutant, ERROR, last_line(printed)) for mutant in mutants]
    document = json.loads(file.read_text())
    noticed = [document[mutant.which.rpartition(":")[2]] for mutant in mutants]
    return [(mutant, CAUGHT if test else SURVIVED, test) for mutant, test in zip(mutants, noticed, strict=True)]


def verdict(mutant: Mutant, exit_code: int | None, printed: str) -> str:
    if mutant.which.startswith("sql") and UNREADABLE.search(printed):
        return ERROR
    # 2: the tests could not be imported; with a mutant of a rule that is a fault noticed, since they can without it.
    caught = (None, 1, 2) if mutant.which.startswith("rules") else (None, 1)
    return CAUGHT if exit_code in caught else SURVIVED if exit_code == 0 else ERROR


def last_line(printed: str) -> str:
    """The first test that failed, or else how the run ended."""
    failed = re.search(r"(?:^FAILED|^ERROR|Exit: without a mutant:) (\S+)", printed, re.MULTILINE)
    return failed[1] if failed else (printed.strip().splitlines() or ["nothing was printed"])[-1]


def in_parallel(run: Callable, work: Iterable, folders: list[Path]) -> Iterator:
    """What `run(item, folder)` returns for each item, as they end; each folder is used by one at a time."""
    free: SimpleQueue[Path] = SimpleQueue()
    for folder in folders:
        free.put(folder)

    def with_a_folder(item):
        folder = free.get()
        try:
            return run(item, folder)
        finally:
            free.put(folder)

    with ThreadPoolExecutor(len(folders)) as jobs:
        yield from (job.result() for job in as_completed([jobs.submit(with_a_folder, item) for item in work]))


def chosen(given: argparse.Namespace) -> list[Mutant]:
    sql = [] if given.kind == "rules" or given.module else list(sql_mutants())
    of_rules = [] if given.kind == "sql" else list(rule_mutants())
    if given.module:
        of_rules = [mutant for mutant in of_rules if any(part in mutant.which for part in given.module)]
    if given.quick:
        of_rules = [mutant for mutant in of_rules if mutant.file]
    if given.only:
        return [mutant for mutant in sql + of_rules if mutant.which in given.only]
    return sql + random.Random(given.seed).sample(of_rules, min(given.sample or len(of_rules), len(of_rules)))


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("kind", nargs="?", choices=["sql", "rules"])
    asked.add_argument("--sample", type=int, default=60, help="how many mutants of the rules, chosen at random; 0: all")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--module", nargs="*", default=[], help="only rules whose path has one of these, such as common/durations")
    asked.add_argument("--quick", action="store_true", help="only mutants inside functions; survivors are not tried again")
    asked.add_argument("--only", nargs="*", help="these mutants, such as sql:7")
    asked.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = asked.parse_args()
    base = Path(os.environ.get("VITRINE_DATA") or rules.ROOT / ".vitrine" / "test")
    folders = [base / f"mutants{n}" for n in range(options.jobs)]
    started = time.monotonic()
    try:
        return run(chosen(options), folders, quick=options.quick)
    finally:
        for folder in filter(Path.exists, folders):
            stop = [sys.executable, "manage.py", "embedded_postgres", "stop"]
            environ = {**os.environ, "VITRINE_DATA": str(folder)}
            subprocess.run(stop, check=False, cwd=rules.ROOT, env=environ, capture_output=True)
        print(f"{time.monotonic() - started:.0f} s")


def tests_pass(mutants: list[Mutant], folders: list[Path]) -> bool:
    tests = sorted({each for mutant in mutants for each in mutant.tests})
    shares = [tests[n :: len(folders)] or tests[:1] for n in range(len(folders))]
    print(f"{len(mutants)} mutants; first their tests without any:", flush=True)
    broken = 0
    for exit_code, printed in in_parallel(run_tests, shares, folders):
        print(f"  {printed.strip().splitlines()[-1]}", flush=True)
        if exit_code != 0:
            broken += 1
            print("".join(f"    {line}\n" for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))), end="")
    return not broken


def run(mutants: list[Mutant], folders: list[Path], *, quick: bool = False) -> int:
    if not quick and not tests_pass(mutants, folders):
        print("Tests fail without a mutant: mend those first.")
        return 2
    by_answer: dict[str, list[Mutant]] = {CAUGHT: [], SURVIVED: [], ERROR: []}

    def note(mutant, answer, why):
        by_answer[answer].append(mutant)
        print(f"{answer:9}{mutant.which}  {mutant.what}  ({why})", flush=True)

    of_modules = defaultdict(list)
    for mutant in mutants:
        of_modules[mutant.file].append(mutant)
    single = of_modules.pop("", [])
    for answers in in_parallel(in_forks, sorted(of_modules.values(), key=len, reverse=True), folders):
        for mutant, answer, why in answers:
            if answer == SURVIVED and not quick:
                single.append(mutant)
            else:
                note(mutant, answer, why)
    for answers in in_parallel(in_a_process, single, folders):
        note(*answers[0])
    for answer in (SURVIVED, ERROR):
        for mutant in by_answer[answer]:
            print(f"  {answer:9}{mutant.which}  {mutant.what}")
    caught, survived, errors = (len(by_answer[answer]) for answer in (CAUGHT, SURVIVED, ERROR))
    share = caught / len(mutants) if mutants else 0
    print(f"{caught} caught, {survived} survived, {errors} errors, of {len(mutants)} mutants ({share:.1%})")
    return 0 if share >= AIM and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
