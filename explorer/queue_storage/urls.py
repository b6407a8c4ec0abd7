"""URLs of the pages that only Queue Storage has. Those that all families share are in explorer.urls."""

from django.urls import path

from broker_core.common.types import Family
from explorer.addresses import ENTITY
from explorer.shared.by_family import only_of

from . import clearing, settings

urlpatterns = [
    path("new-storage-queue/", settings.create, name="storage_queue_new"),
    path(f"clear/{ENTITY}", only_of(Family.QUEUE_STORAGE, clearing.clear), name="clear"),
]
