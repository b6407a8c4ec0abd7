"""Registers the families that have pages. To remove a family, delete its folder and its two lines here."""

from explorer.queue_storage.family import StoragePages
from explorer.rabbitmq.family import RabbitPages
from explorer.service_bus.family import ServiceBusPages

from .frames.family import register

for pages in (
    ServiceBusPages(),
    StoragePages(),
    RabbitPages(),
):
    register(pages)
