"""The registry of the installed families. To remove a family, delete its folder and its two lines here."""

from broker_core.common.family import register
from broker_core.queue_storage.family import QUEUE_STORAGE
from broker_core.rabbitmq.family import RABBITMQ
from broker_core.service_bus.family import SERVICE_BUS

for definition in (
    SERVICE_BUS,
    QUEUE_STORAGE,
    RABBITMQ,
):
    register(definition)
