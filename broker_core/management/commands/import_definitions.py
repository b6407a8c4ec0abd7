"""manage.py import_definitions FILE: imports exchanges, queues, bindings and policies from RabbitMQ's definitions.json."""

import sys
from collections import Counter
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.rabbitmq.definitions import Result, import_definitions


class Command(BaseCommand):
    help = (
        "Create and update virtual hosts, exchanges, queues, bindings, policies and operator policies from RabbitMQ's "
        "definitions.json. Nothing is deleted; existing queues and exchanges that differ are kept. Each object is reported "
        "separately; failures do not affect other objects."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", help="the definitions file, or - for standard input")
        parser.add_argument("--vhost", help="the target, for a file of one virtual host")

    def handle(self, *, file, vhost, **options):
        try:
            outcomes = import_definitions(_read(file), vhost)
        except BrokerError as exc:
            raise CommandError(f"{str(exc).removesuffix('.')}. Nothing was stored.") from exc
        for outcome in outcomes:
            (self.stderr if outcome.result is Result.FAILED else self.stdout).write(str(outcome))
        counts = Counter(outcome.result for outcome in outcomes)
        if counts[Result.FAILED]:
            raise CommandError(f"{counts[Result.FAILED]:,} of {len(outcomes):,} failed; see the results above.")


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise CommandError(f"{file} cannot be read: {exc.strerror}.") from exc
