"""Registers the families that have pages. To remove a family, delete its folder and its two lines here."""

from explorer.queue_storage.family import QUEUE_STORAGE
from explorer.rabbitmq.family import RABBITMQ
from explorer.service_bus.family import SERVICE_BUS

from .frames.family import register

for pages in (
    SERVICE_BUS,
    QUEUE_STORAGE,
    RABBITMQ,
):
    register(pages)
