"""manage.py import_config FILE: imports namespaces from the official emulator's Config.json."""

import sys
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.durations import human
from broker_core.common.errors import BrokerError
from broker_core.service_bus.configured_limits import limits
from broker_core.service_bus.emulator_config import Change, apply_plan
from broker_core.service_bus.rules import emulator_config
from broker_core.service_bus.rules.entity_settings import DURATIONS, SERVICE_NAMES


class Command(BaseCommand):
    help = (
        "Create or update namespaces, queues, topics, subscriptions and rules from the official Service Bus emulator's "
        "Config.json. Comments, trailing commas and wider ranges are accepted. Missing keys take the service's "
        "defaults. Either everything is stored or nothing."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", help="the configuration file, or - for standard input")
        parser.add_argument(
            "--emulator-defaults",
            action="store_true",
            help="missing keys take the emulator's defaults (DefaultMessageTimeToLive PT1H, MaxDeliveryCount 3)",
        )

    def handle(self, *, file, emulator_defaults, **options):
        plan = emulator_config.read(_text(file), emulator_defaults=emulator_defaults, limits=limits())
        if plan.problems:
            raise CommandError("\n".join([*map(str, plan.problems), "Nothing was stored."]))
        try:
            changes = apply_plan(plan)
        except BrokerError as exc:
            raise CommandError(f"{str(exc).removesuffix('.')}. Nothing was stored.") from exc
        for change in changes:
            self.stdout.write(_line(change))


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as exc:
        raise CommandError(f"{file} cannot be read: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise CommandError(f"{file} is not in UTF-8: the byte at position {exc.start} cannot be read.") from exc


def _line(change: Change) -> str:
    differences = ", ".join(
        f"{SERVICE_NAMES.get(n, n)} {_formatted(n, b)} -> {_formatted(n, a)}" for n, (b, a) in change.settings.items()
    )
    return f"{change.did} {change.what} {change.address}" + (f": {differences}" if differences else "")


def _formatted(name: str, value) -> str:
    if name in DURATIONS:
        return human(value)
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
