"""The front ends that the listener serves. To remove one, delete its folder and its two lines here."""

from broker_core.queue_storage import http as queue_storage_http

from .ports import HttpFrontEnd

HTTP_FRONT_ENDS = [
    HttpFrontEnd("QUEUE_STORAGE", "Queue Storage", queue_storage_http.application),
]
