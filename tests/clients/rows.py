"""Clients in the database without a process that serves them."""

import itertools
import json
from typing import Any

from broker_core.common.types import EntityAddress
from broker_core.store import connections, driver
from broker_core.store.statements import call

_numbers = itertools.count(1)
OF_CLIENT: dict[str, Any] = {
    "protocol": "Queue Storage REST", "peer": "10.0.0.7", "port": 10001, "is_tls": False, "product": "azsdk-python-storage-queue",
    "version": "12.18.1", "description": "azsdk-python-storage-queue/12.18.1 Python/3.11", "actor": "key:app",
    "holder": "http:app@10.0.0.7", "namespace": "", "age": 61, "idle": 3, "last_request": "GET /shop/orders/messages",
    "messages_in": 12, "messages_out": 3_400, "bytes_in": 5_000, "bytes_out": 7_000_000, "messages_per_second": 12.5,
    "bytes_per_second": 4_200,
}  # fmt: skip
OF_LINK: dict[str, Any] = {
    "channel": None, "name": "", "subqueue": 0, "direction": "receives", "mode": "lease", "credit": None, "unsettled": 0,
    "messages": 3_400, "messages_per_second": 12.5,
}  # fmt: skip


def process(label: str = "listener") -> int:
    """The epoch of a process that lives for an hour, although nobody holds its lock."""
    return (
        connections.current()
        .execute(
            "INSERT INTO vitrine_broker_process (label, started_at, lease_until) "
            "VALUES (%s, clock_timestamp(), clock_timestamp() + interval '1 h') RETURNING epoch",
            [label],
        )
        .fetchall()[0]
        .epoch
    )


def connect(*entities: EntityAddress, epoch: int | None = None, **of_client: Any) -> str:
    """The id of a client that is connected, and uses these entities."""
    epoch, number = epoch or process(), next(_numbers)
    namespace = {"namespace": entities[0].namespace} if entities else {}
    row = OF_CLIENT | namespace | {"number": number} | of_client
    links = [
        OF_LINK | {"client": number, "number": next(_numbers), "namespace": address.namespace, "path": address.path}
        for address in entities
    ]
    with connections.using(connections.DEFAULT):
        driver.run(_record(epoch=epoch, clients=json.dumps([row]), links=json.dumps(links), ended=[], ended_links=[]))
    return f"{epoch}-{number}"


def _record(**params: Any):
    assert (yield call("record_clients", **params))
