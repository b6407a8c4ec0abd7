"""The registry of the installed families. To remove a family, delete its folder and its two lines here."""

from broker_core.common.family import register
from broker_core.queue_storage.family import QueueStorage
from broker_core.rabbitmq.family import RabbitMQ
from broker_core.service_bus.family import ServiceBus

for definition in (
    ServiceBus(),
    QueueStorage(),
    RabbitMQ(),
):
    register(definition)
