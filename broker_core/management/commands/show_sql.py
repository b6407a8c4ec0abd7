"""manage.py show_sql [NAME] [--explain]: prints a statement as it is run, and its plan."""

import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches

import psycopg
from django.core.management.base import BaseCommand, CommandError

from broker_core.store import connections
from broker_core.store.statements import SOURCE, SQL

PLACEHOLDER = re.compile(r"%\((\w+)\)[sbt]")
PLANNED = re.compile(r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)


class Command(BaseCommand):
    help = "Print a statement of the broker with all that it includes, or without NAME the list of statements."

    def add_arguments(self, parser):
        parser.add_argument("name", nargs="?", help="a statement's name, such as receive")
        parser.add_argument("--explain", action="store_true", help="also print its generic plan on the configured database")

    def handle(self, *args, **options):
        try:
            self._print(options["name"], options["explain"])
            self.stdout.flush()
        except BrokenPipeError:  # a reader such as head has closed the pipe; Python must not flush into it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _print(self, name, explain):
        if name is None:
            if explain:
                raise CommandError("--explain needs the name of a statement, such as: show_sql receive --explain")
            width = max(map(len, SOURCE))
            for statement_name in sorted(SOURCE):
                self.stdout.write(f"{statement_name:{width}}  {sentence(statement_name)}")
            return
        if name not in SOURCE:
            near = (
                get_close_matches(name, SOURCE, 5)
                or [statement_name for statement_name in sorted(SOURCE) if name in statement_name][:5]
            )
            hint = f"similar ones: {', '.join(near)}" if near else "show_sql without a name lists them all"
            raise CommandError(f"no statement {name!r}; {hint}")
        self.stdout.write(SOURCE[name] + ";")
        if explain:
            self.stdout.write("\n" + "\n".join(plan_of(name)))


def sentence(name: str) -> str:
    """The first sentence of the statement's comment."""
    comment = re.match(r"(?:-- .*\n)+", SOURCE[name])
    text = " ".join(line.removeprefix("-- ") for line in comment[0].splitlines()) if comment else ""
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0]


def plan_of(name: str) -> list[str]:
    """The generic plan, which the broker's own connections use. Raises CommandError if there is none."""
    if not PLANNED.match(SQL[name]):
        raise CommandError(f"PostgreSQL has no plan for {name!r}; it explains SELECT, INSERT, UPDATE and DELETE")
    try:
        return _plan(SQL[name], lambda match, places: places.setdefault(match[1], f"${len(places) + 1}"))
    except (
        psycopg.errors.AmbiguousParameter,
        psycopg.errors.DatatypeMismatch,
    ):  # one parameter is used as two types: number each use
        return _plan(SQL[name], lambda match, places: places.setdefault(f"{match[1]} at {match.start()}", f"${len(places) + 1}"))


def _plan(sql: str, place: Callable[[re.Match[str], dict[str, str]], str]) -> list[str]:
    places: dict[str, str] = {}
    numbered = PLACEHOLDER.sub(lambda match: place(match, places), sql).replace("%%", "%")
    with psycopg.ClientCursor(connections.current()) as cursor:  # does not bind parameters, which have no values here
        plan = [row[0] for row in cursor.execute(f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {numbered}")]
    return [", ".join(f"{number} {name.partition(' ')[0]}" for name, number in places.items()), *plan]
