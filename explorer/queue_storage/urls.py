"""URLs of the pages that only Queue Storage has. Those that all families share are in explorer.urls."""

from django.urls import path

from . import settings

urlpatterns = [
    path("new-storage-queue/", settings.create, name="storage_queue_new"),
]
