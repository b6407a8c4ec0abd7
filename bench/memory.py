"""The memory of each process of Vitrine (`manage.py up` on a separate data folder), and of a client."""

from __future__ import annotations

import logging

import psutil

from broker_core import service_bus
from broker_core.service_bus.rules.values import Message
from explorer.site.embedded_postgres.memory import shared_buffers
from tests.site.vitrine import Vitrine, eventually

from .measuring import BODY, a_queue, in_processes, make_bare_tables

PARTS = ("web", "listener", "worker", "analysis", "beat")
MB = 2**20


def run(report) -> None:
    """Megabytes of each process; shared memory is counted proportionally (PSS) if the system reports it."""
    make_bare_tables()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    [client] = in_processes([_client])
    report.line("a process that has sent and received 10,000 messages", f"{client:,.0f} MB")
    vitrine = Vitrine()
    try:
        vitrine.up()
        eventually(lambda: (parts := vitrine.health()) and parts["worker"]["state"] == "ok", 60)
        for part in PARTS:
            process = vitrine.process(part)
            family = [process, *process.children(recursive=True)]
            remark = f"{len(family)} processes" if len(family) > 1 else ""
            report.line(f"{part}", f"{sum(map(_megabytes, family)):,.0f} MB", remark)
        report.line("supervisor", f"{_megabytes(psutil.Process(vitrine.supervisor.pid)):,.0f} MB")
        server = vitrine.process("postgres")
        family = [server, *server.children(recursive=True)]
        report.line(
            "PostgreSQL",
            f"{sum(map(_megabytes, family)):,.0f} MB",
            f"{len(family)} processes, shared buffers ({shared_buffers()}) among them",
        )
    finally:
        vitrine.remove()


def _megabytes(process: psutil.Process) -> float:
    """Megabytes of a process; 0 if it has ended."""
    try:
        info = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0.0
    return getattr(info, "pss", info.rss) / MB


def _client() -> float:
    queue = a_queue()
    for _ in range(100):
        service_bus.send(queue, [Message(BODY)] * 100)
        service_bus.receive_and_delete(queue, 100)
    return _megabytes(psutil.Process())
