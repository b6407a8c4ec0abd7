"""Where clients find the ports of the listener, by the settings. They say nothing about whether a listener runs."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from django.conf import settings

from .peers import address_of


def endpoint(setting: str) -> str | None:
    """The host and port that clients name, such as "127.0.0.1:10001"; None: the port is off, or is for TLS without a certificate.

    setting: of the port, such as QUEUE_STORAGE_PORT.
    """
    port = getattr(settings, setting, 0)
    is_tls = setting.endswith("_TLS_PORT") or setting == "AMQPS_PORT"
    if not port or (is_tls and not has_tls()):
        return None
    return f"{_host()}:{port}"


def has_tls() -> bool:
    """Whether the TLS ports can be opened."""
    return bool(getattr(settings, "TLS_CERTIFICATE", "") and getattr(settings, "TLS_KEY", ""))


def _host() -> str:
    """LISTEN_HOST; if that means all addresses of the machine, the host of the site's public address."""
    host = getattr(settings, "LISTEN_HOST", "") or "127.0.0.1"
    address = address_of(host)
    if address is not None and address.is_unspecified:
        host = urlsplit(getattr(settings, "VITRINE_PUBLIC_URL", "")).hostname or "localhost"
    return f"[{host}]" if _is_ipv6(host) else host


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).version == 6
    except ValueError:
        return False
