"""The process that fuzzes one target, run by tests/fuzz/__main__.py: python -m tests.fuzz.one_target TARGET LIBFUZZER-OPTIONS"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from .requests import Served

INSTRUMENTED = ["broker_core.common", "broker_core.queue_storage", "broker_core.service_bus", "broker_core.wire"]


def requests(served: Served) -> Callable[[bytes], object]:
    from .requests import Requests

    return Requests(asyncio.new_event_loop(), served)


def main() -> None:
    target = sys.argv.pop(1)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    with atheris.instrument_imports(include=INSTRUMENTED):
        import django

        django.setup()
        from .served import SERVED
        from .targets import TARGETS
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    run: Callable[[bytes], object] = TARGETS[target] if target in TARGETS else requests(SERVED[target]())
    atheris.Setup(sys.argv, lambda data: run(bytes(data)) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
