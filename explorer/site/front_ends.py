"""Registers the broker's HTTP front ends. To remove one, delete its folder and its two lines here."""

from broker_core.service_bus import http as service_bus_http

FRONT_ENDS = [
    service_bus_http,
]
