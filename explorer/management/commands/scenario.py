"""manage.py scenario FILE: runs a scenario, or a lesson, against a fresh namespace, and says which expectation failed."""

from pathlib import Path

from django.core.management.base import BaseCommand, CommandError, CommandParser

from broker_core.common.errors import BrokerError
from explorer.lessons import catalog, scenario
from explorer.lessons.lesson import BadLesson, load


class Command(BaseCommand):
    help = "Run a scenario file against a fresh namespace. Exits with 1 if an expectation fails (docs/lessons.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="a scenario or lesson (TOML)")
        parser.add_argument("--keep", action="store_true", help="do not delete the namespace afterwards")

    def handle(self, file: Path, keep: bool, **options) -> None:
        try:
            lesson = load(file, catalog.actions_of)
            for number, outcome in enumerate(scenario.run(lesson, keep=keep), 1):
                name = f"{number}. {outcome.step.title}"
                if outcome.failed:
                    raise CommandError(self._report(name, outcome))
                self.stdout.write(f"ok      {name}")
        except (BadLesson, BrokerError) as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(f"{lesson.title}: all {len(lesson.steps)} steps as expected.")

    def _report(self, name: str, outcome: scenario.Outcome) -> str:
        lines = [f"FAILED  {name}"]
        if outcome.refusal:
            lines.append(f"  refused:  {outcome.refusal}")
        lines += [f"  expected: {scenario.in_words(scenario.as_table(expectation))}" for expectation in outcome.unmet]
        lines += [f"  the broker did: {text}" for text in outcome.seen] or ["  the broker did: nothing"]
        return "\n".join(lines)
