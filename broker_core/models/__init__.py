"""The tables, without rules or queries; the SQL is in the `sql/` folders of `broker_core/store` and of the families.

The tables of messages, events and the ledger of counts are written only by hand-written statements. A migration creates them in
SQL (storage parameters, partitions and indexes that the ORM cannot express); they are mapped here unmanaged, for reading.
"""

from .celery import CeleryBinding
from .clients import Client, ClientLink
from .entities import Entity, EntityCounter, Namespace, Rule, SharedAccessPolicy
from .history import (
    ArchivedProperties,
    ArchiveEpoch,
    ArchiveFile,
    ArchiveRebuild,
    ArchiveSlice,
    ArchiveUnusedFile,
)
from .messages import Message, MessageEvent
from .queue_storage import StorageAccount
from .rabbitmq import Binding, BrokerProcess, Connection, Consumer, Exchange, Policy
from .sweeps import SweepRun
