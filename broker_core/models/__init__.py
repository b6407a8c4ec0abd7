"""Tables only: no rule and no query lives here. The SQL that works on them is in `broker_core/store/sql`.

Messages, events and the counts ledger are written by hand-made statements alone, so their tables are made by SQL in the first
migration (storage parameters, partitions, indexes that the ORM has no words for) and mapped here unmanaged, for reading.
"""

from .celery import CeleryBinding
from .entities import Entity, EntityCounter, Namespace, Rule, SharedAccessPolicy
from .history import ArchiveEpoch, ArchiveFile, ArchiveSlice
from .messages import Message, MessageEvent
from .rabbitmq import Binding, BrokerProcess, Connection, Consumer, Exchange, Policy
from .sweeps import SweepRun
