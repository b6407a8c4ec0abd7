"""Fuzz the parsers and whole requests, guided by coverage: python -m tests.fuzz --minutes 60 [--targets xml rule].

Half of the time is for whole requests, on a database of its own. Inputs that made something fail are kept in tests/fuzz/cases/,
which `make test` replays; those that reached new code in VITRINE_DATA/fuzz/, from which the next run goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.soak.own_database import own_database
from tests.wire.listening import database_url_of_tests

from .kept import CASES
from .seeds import PIECES, REQUESTS, SEEDS

NOT_INSTALLED = "Not fuzzed: atheris is not installed here. It needs Linux and CPython 3.11 to 3.13: pip install atheris==3.0.0"
MOST_FINDINGS = 10  # of one target; then the next one has its turn
_EXECUTED = re.compile(r"stat::number_of_executed_units: +(\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers and whole requests.")
    parser.add_argument("--minutes", type=float, default=60.0, help="in all")
    parser.add_argument("--targets", nargs="+", default=list(SEEDS), choices=list(SEEDS), metavar="TARGET", help=" ".join(SEEDS))
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print(NOT_INSTALLED)
        return 0
    findings = 0
    with ExitStack() as stack:
        environment = {**os.environ, "FAILED_AUTHENTICATION_DELAY_SECONDS": "0", "FAILED_AUTHENTICATIONS": "0"}
        if not set(REQUESTS).isdisjoint(options.targets):
            stack.enter_context(own_database())
            environment["DATABASE_URL"] = database_url_of_tests()
        for target, seconds in shares(options.targets, options.minutes * 60).items():
            findings += fuzz(target, seconds, environment)
    print(f"{findings} findings.")
    return 1 if findings else 0


def shares(targets: list[str], seconds: float) -> dict[str, float]:
    """The seconds for each target: half of all for whole requests."""
    groups = [group for group in ([t for t in targets if t not in REQUESTS], [t for t in targets if t in REQUESTS]) if group]
    return {target: seconds / len(groups) / len(group) for group in groups for target in group}


def fuzz(target: str, seconds: float, environment: dict[str, str]) -> int:
    """Returns how many inputs were found."""
    corpus, cases = _corpus(target), CASES / target
    cases.mkdir(parents=True, exist_ok=True)
    ends_at, executed, findings = time.monotonic() + seconds, 0, 0
    while findings < MOST_FINDINGS and (left := int(ends_at - time.monotonic())) > 0:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.one_target",
            target,
            str(corpus),
            f"-dict={corpus.parent / f'{target}.pieces'}",
        ]
        limits = [f"-max_total_time={left}", "-timeout=30", "-max_len=8192", "-print_final_stats=1"]
        command += [*limits, f"-artifact_prefix={cases}/"]
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        output = ran.stdout.decode(errors="replace")
        executed += sum(map(int, _EXECUTED.findall(output)))
        if ran.returncode == 0:
            break
        findings += 1
        print(f"{target}: found an input, in {cases}\n{output[-6000:]}", flush=True)
    print(f"{target}: {executed:,} executions in {seconds:.0f} s, {findings} findings", flush=True)
    return findings


def _corpus(target: str) -> Path:
    """A folder with the seeds and what earlier runs added, beside a dictionary of the pieces."""
    data = Path(os.environ.get("VITRINE_DATA") or Path(__file__).resolve().parent.parent.parent / ".vitrine" / "soak")
    corpus = data / "fuzz" / target
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[target]):
        (corpus / f"seed-{number}").write_bytes(seed)
    escaped = ["".join(f"\\x{byte:02x}" for byte in piece) for piece in PIECES[target] if len(piece) <= 64]
    (corpus.parent / f"{target}.pieces").write_text("".join(f'"{text}"\n' for text in escaped))
    return corpus


if __name__ == "__main__":
    sys.exit(main())
