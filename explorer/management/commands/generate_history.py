"""manage.py generate_history: writes the history of a realistic load to the archive, with known parameters."""

from datetime import UTC, datetime

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor
from explorer.analysis.running import commands
from explorer.analysis.running.additions import request_generation


class Command(BaseCommand):
    help = (
        "Write generated history straight to the archive: messages by a daily rhythm with bursts, work with a heavy tail, poison "
        "messages, and outages of consumers. The parameters are written beside it. Messages are marked as generated. Uses Spark."
    )

    def add_arguments(self, parser):
        parser.add_argument("namespace", help="it and its queues are created if missing; a new one is of Service Bus")
        parser.add_argument("--queues", type=int, default=5, help="their names are generated-1 and so on (default: 5)")
        parser.add_argument("--messages", type=int, default=1_000_000, help="of all queues (default: 1,000,000)")
        parser.add_argument("--days", type=float, default=7.0, help="before the end (default: 7)")
        parser.add_argument("--until", type=datetime.fromisoformat, help="the end, an ISO time (default: now)")
        parser.add_argument("--skew", type=float, help="the first queue's share of the messages, 0 to 1 (default: equal shares)")
        parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same times (default: 0)")

    def handle(self, *, namespace, queues, messages, days, until, skew, seed, **options):
        if queues < 1 or messages < queues or days <= 0 or not 0 < (1 if skew is None else skew) <= 1:
            raise CommandError("Give at least one queue, one message for each, more than 0 days, and a skew above 0 and up to 1.")
        until = until or datetime.now(UTC)
        try:
            created = [commands.queue_of(namespace, f"generated-{number}", create=True) for number in range(1, queues + 1)]
            run = request_generation(
                created, messages=messages, days=days, until=until if until.tzinfo else until.replace(tzinfo=UTC), skew=skew,
                seed=seed, actor=Actor.local(),
            )  # fmt: skip
        except BrokerError as problem:
            raise CommandError(str(problem)) from None
        self.stdout.write(commands.executed(run).message)
