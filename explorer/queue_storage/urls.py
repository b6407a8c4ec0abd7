"""URLs of the pages that only Queue Storage has. Those that all families share are in explorer.urls."""

from functools import partial

from django.urls import path

from broker_core.common.types import Family
from explorer.addresses import ENTITY
from explorer.frames.by_family import only_of

from . import keys, service_properties, settings, signatures

_own = partial(only_of, Family.QUEUE_STORAGE)

urlpatterns = [
    path("administration/account-keys/<namespace:namespace>/", _own(keys.account), name="account_keys"),
    path("administration/new-signature/<namespace:namespace>/", _own(signatures.of_account), name="account_signature"),
    path(f"administration/new-signature/{ENTITY}", _own(signatures.of_queue), name="queue_signature"),
    path("service-properties/<namespace:namespace>/", _own(service_properties.change), name="service_properties"),
    path("new-storage-queue/", settings.create, name="storage_queue_new"),
]
