"""Connection strings: what a program needs to sign in with a shared access policy."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

from broker_core.common.connection_strings import NOT_YET, SITE, ConnectionString
from broker_core.wire.endpoints import endpoint, has_tls

AMQP_PORT, PORT, TLS_PORT = "AMQP_PORT", "SERVICE_BUS_PORT", "SERVICE_BUS_TLS_PORT"
_EMULATOR = ";UseDevelopmentEmulator=true"  # SDKs then use no TLS, and the port that is named


def connection_strings(namespace: str, path: str | None, policy: str, key: str) -> list[ConnectionString]:
    """Those for a key of a policy. path: of the entity that the policy belongs to; None: to the namespace."""
    amqp, http = endpoint(AMQP_PORT) or "127.0.0.1:5672", endpoint(PORT) or "127.0.0.1:5300"
    tls = endpoint(TLS_PORT) or "127.0.0.1:5301"
    site = _site()
    signed = f"SharedAccessKeyName={policy};SharedAccessKey={key}" + (f";EntityPath={path}" if path else "")
    why_not_http = "" if endpoint(PORT) else f"{PORT} is 0"
    why_not_tls = "" if endpoint(TLS_PORT) else f"{TLS_PORT} is 0" if has_tls() else "TLS_CERTIFICATE and TLS_KEY are not set"
    return [
        ConnectionString("rest", "REST API", f"Endpoint=sb://{http}/;{signed}", http, why_not_http),
        ConnectionString(
            SITE, "REST API of this site", f"Endpoint=sb://{site}/servicebus/{namespace}/;{signed}", site.partition("/")[0]
        ),
        ConnectionString(
            "amqp", "Azure Service Bus SDKs (AMQP 1.0)", f"Endpoint=sb://{amqp}/;{signed}{_EMULATOR}", amqp, NOT_YET
        ),
        ConnectionString(
            "admin", "ServiceBusAdministrationClient", f"Endpoint=sb://{http}/;{signed}{_EMULATOR}", http, why_not_http
        ),
        ConnectionString(
            "admin-tls", "ServiceBusAdministrationClient with TLS", f"Endpoint=sb://{tls}/;{signed}", tls, why_not_tls
        ),
    ]


def _site() -> str:
    """The site's host, port and prefix, as VITRINE_PUBLIC_URL has them; without it, those of localhost."""
    local = f"http://localhost:{getattr(settings, 'PORT', 8000)}{getattr(settings, 'PATH_PREFIX', '')}"
    parts = urlsplit(getattr(settings, "VITRINE_PUBLIC_URL", "") or local)
    return f"{parts.netloc}{parts.path.rstrip('/')}"
