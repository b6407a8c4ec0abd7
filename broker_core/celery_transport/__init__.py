"""Celery, or anything else on kombu, with this broker as its message broker (docs/design.md D2). `docs/celery.md` is its manual.

Importing this module makes `vitrine://<django database alias>/<namespace>` known to kombu; it opens nothing. Outside Django the
database is named by the transport option `dsn`.

A task is a message: publishing is a send, taking a task a receive in peek-lock mode, acknowledging completes, requeueing
abandons, rejecting dead-letters, and what was taken but never started is released when the worker stops. A task's countdown or
ETA is the message's schedule.

    codec.py     a kombu payload as a broker message, and back without loss
    queues.py    what a Celery queue is called and how it is set up on the broker
    bindings.py  exchanges' bindings, shared by all processes
    holdings.py  the messages this process holds: renewing and settling them
    channel.py   kombu's channel and quality of service
    transport.py kombu's transport: the connection
"""

from kombu.transport import TRANSPORT_ALIASES

import broker_core.families

SCHEME = "vitrine"
TRANSPORT_ALIASES.setdefault(SCHEME, "broker_core.celery_transport.transport:Transport")
