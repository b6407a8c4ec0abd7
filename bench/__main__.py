"""Runs the parts named on the command line, or all of them, on a separate database (VITRINE_DATA, else .vitrine/bench).

--large: up to ten million messages; takes half an hour and 60 GB. --small: all rows within minutes, but with small, unreliable
figures. --events N: events of the generated history, over which the jobs of the pipeline run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

# The overview comes first: it needs a fresh database.
PARTS = (
    "overview", "search", "core", "kept", "scale", "families", "fanout", "sessions", "waiting", "consumers", "growth", "trouble",
    "memory", "live", "picture", "http", "wire", "beside", "celery", "history", "operations",
)  # fmt: skip
WITHIN = ("rolled_up",)  # the end of "history", which can be run alone
SCALES = ("--small", "--large")


def main() -> int:
    os.environ.setdefault("VITRINE_DATA", str(Path(__file__).resolve().parent.parent / ".vitrine" / "bench"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    os.environ.setdefault("VITRINE_LIMITS", "relaxed")
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from . import measuring
    from .report import Report

    arguments = argparse.ArgumentParser(prog="python -m bench")
    arguments.add_argument("parts", nargs="*")
    arguments.add_argument("--events", type=int)
    for name in SCALES:
        arguments.add_argument(name, action="store_true")
    options = arguments.parse_args()
    parts = options.parts
    unknown = set(parts) - {*PARTS, *WITHIN}
    if unknown:
        print(f"No part named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    for selected, scale in ((options.small, measuring.SMALL), (options.large, measuring.LARGE)):
        if selected:
            measuring.use(scale)
    if options.events:
        measuring.use(replace(measuring.scale, history=options.events))
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        version = cursor.fetchone()[0]
    print(f"PostgreSQL {version}, Python {platform.python_version()}, {os.cpu_count()} cores shared by clients and server")
    report = Report()
    for part in parts or PARTS:
        report.part(part)
        importlib.import_module(f"bench.{part}").run(report)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
