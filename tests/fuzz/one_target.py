"""The process that fuzzes one target, run by tests/fuzz/__main__.py: python -m tests.fuzz.one_target TARGET LIBFUZZER-OPTIONS"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress

import atheris

INSTRUMENTED = ["broker_core.common", "broker_core.queue_storage", "broker_core.wire"]


def requests() -> Callable[[bytes], object]:
    """Sends whole requests to an account that exists."""
    from broker_core import queue_storage
    from broker_core.common.errors import EntityExists
    from broker_core.queue_storage import accounts

    from .requests import ACCOUNT, KEY, Requests

    with suppress(EntityExists):
        queue_storage.create_account(ACCOUNT)
    accounts.set_keys(ACCOUNT, primary=KEY)
    return Requests(asyncio.new_event_loop())


def main() -> None:
    target = sys.argv.pop(1)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    with atheris.instrument_imports(include=INSTRUMENTED):
        import django

        django.setup()
        from .targets import TARGETS
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    run = requests() if target == "request" else TARGETS[target]
    atheris.Setup(sys.argv, lambda data: run(bytes(data)) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
