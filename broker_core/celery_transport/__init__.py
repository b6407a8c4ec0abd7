"""A kombu transport, so that Celery can use this broker (docs/design.md D2). The manual is docs/celery.md.

Importing this module registers `vitrine://<django database alias>/<namespace>` with kombu, without opening a connection. Outside
Django the transport option `dsn` gives the database.

A task is a message: publishing sends it, consuming receives it in peek-lock mode, acknowledging completes, requeueing abandons,
rejecting dead-letters, and tasks that were received but not started are released when the worker stops. A countdown or ETA
becomes the message's schedule.

    codec.py     converts between kombu payloads and broker messages, losslessly
    queues.py    names and settings of Celery queues on the broker
    bindings.py  bindings of exchanges, shared by all processes
    holdings.py  the messages that this process holds: lock renewal and settlement
    channel.py   kombu's channel and quality of service
    transport.py kombu's transport: the connection
"""

from kombu.transport import TRANSPORT_ALIASES

import broker_core.families
from broker_core.common.types import Family

SCHEME = "vitrine"
FAMILY = Family.SERVICE_BUS  # of the namespaces whose queues are Celery's
TRANSPORT_ALIASES.setdefault(SCHEME, "broker_core.celery_transport.transport:Transport")
