"""manage.py storage_sas ACCOUNT or ACCOUNT/QUEUE: prints a shared access signature of Queue Storage."""

from datetime import MAXYEAR, UTC, datetime, timedelta

from django.core.management.base import BaseCommand, CommandError

from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import accounts, get_queue
from broker_core.queue_storage.rules import sas

LONGEST = 7 * 86_400  # seconds


class Command(BaseCommand):
    help = "Print a shared access signature for a storage account or one of its queues, as the query of a URL."

    def add_arguments(self, parser):
        parser.add_argument("name", help="a storage account; account/queue for the messages of one queue")
        parser.add_argument("--permissions", help="letters (default: all): rwdlacup of an account, raup of a queue")
        parser.add_argument("--start", default="", help="when it becomes valid, in UTC: 2030-01-31T12:00:00Z (default: now)")
        parser.add_argument("--seconds", type=int, default=3600, help="for how long it is valid then (default: %(default)s)")
        parser.add_argument("--ip", default="", help="an address of clients, or a range: 10.0.0.1-10.0.0.9 (default: any)")
        parser.add_argument("--https-only", action="store_true", help="it is refused over HTTP")

    def handle(self, *, name: str, permissions: str | None, start: str, seconds: int, ip: str, https_only: bool, **options):
        account, _, queue = name.partition("/")
        known = sas.QUEUE_LETTERS if queue else "".join(sas.LETTERS)
        letters = known if permissions is None else "".join(letter for letter in known if letter in permissions)
        if not letters or not set(permissions or "") <= set(known):
            raise CommandError(f"--permissions must be some of the letters {known}, not {permissions!r}.")
        if not 1 <= seconds <= LONGEST:
            raise CommandError(f"--seconds must be between 1 and {LONGEST:,}.")
        begin = sas.read_instant(start) if start else datetime.now(UTC)
        if begin is None or begin.year == MAXYEAR:
            raise CommandError(f"--start must be a time in UTC such as 2030-01-31T12:00:00Z, not {start!r}.")
        if ip and sas.read_addresses(ip) is None:
            raise CommandError(f"--ip must be an address, or a range such as 10.0.0.1-10.0.0.9, not {ip!r}.")
        expiry = f"{begin + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
        try:
            key = accounts.get_keys(account).primary_key
            if queue:
                get_queue(EntityAddress(account, queue))
        except BrokerError as exc:
            raise CommandError(str(exc)) from exc
        of_account = {} if queue else {"services": "q", "types": "sco"}
        made = sas.Sas(
            permission=letters,
            start=start or None,
            expiry=expiry,
            addresses=ip,
            protocols="https" if https_only else "",
            **of_account,
        )
        self.stdout.write(sas.as_query(sas.signed(made, key, account=account, queue=queue or None)))
