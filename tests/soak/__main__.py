"""python -m tests.soak [--seconds 180] [--kills 200] [--network-kills 20] [--seed N]
                     [--kinds queues topics sessions storage rabbit] [--no-what-if]

A soak on a database of its own, the proof of the analyses that answer "what if", then kills of its whole server, and of a
listener under network clients. The data folder is VITRINE_DATA, else .vitrine/soak. Prints what was done, and what was wrong;
then the exit code is 1. A server named by DATABASE_URL is not killed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from .families import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Clients, kills and sweeps; then all is checked.")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--kills", type=int, default=200, help="of the whole database server under contended senders")
    parser.add_argument("--network-kills", type=int, default=20, help="of a listener or its database under network clients")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--what-if", action=argparse.BooleanOptionalAction, default=True, help="compare analyses with real runs")
    options = parser.parse_args()
    os.environ.setdefault("VITRINE_DATA", str(Path(__file__).resolve().parent.parent.parent / ".vitrine" / "soak"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    os.environ["VITRINE_LIMITS"] = "relaxed"
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from broker_core.store.connections import close_all
    from explorer.site.embedded_postgres import server

    from . import network, what_if
    from .database import dsn_of_django
    from .findings import Findings
    from .killed_server import KilledServer
    from .runner import Soak

    call_command("migrate", verbosity=0)
    with tempfile.TemporaryDirectory(prefix="vitrine-soak-") as folder:
        print(f"{options.seconds:g} s of {', '.join(options.kinds)}, seed {options.seed}", flush=True)
        findings = Soak(dsn_of_django(), Path(folder), options.seconds, options.seed, tuple(options.kinds)).run()
    print(findings.tell())
    analyses = what_if.examine(options.seed) if options.what_if else Findings()
    print(analyses.tell())
    wrong = [*findings.wrong, *analyses.wrong]
    if options.kills and not settings.DATABASE_URL:
        with tempfile.TemporaryDirectory(prefix="vitrine-kills-") as folder:
            server_folder = Path(settings.EMBEDDED_POSTGRES)
            outcome = KilledServer(server_folder, dsn_of_django(), Path(folder), options.kills, options.seed).run()
        print(outcome.tell())
        wrong = [*wrong, *outcome.wrong]
    if options.network_kills and not settings.DATABASE_URL:
        outcome = network.kill_servers(Path(settings.EMBEDDED_POSTGRES), options.network_kills, options.seed)
        print(outcome.tell())
        wrong = [*wrong, *outcome.wrong]
    close_all()
    if not settings.DATABASE_URL:
        server.stop(settings.EMBEDDED_POSTGRES)
    print(f"{len(wrong)} findings")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
