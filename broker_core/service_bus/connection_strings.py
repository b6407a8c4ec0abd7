"""Connection strings: what a program needs to sign in with a shared access policy."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

from broker_core.common.connection_strings import NOT_YET, SITE, ConnectionString
from broker_core.wire.endpoints import endpoint

AMQP_PORT, PORT = "AMQP_PORT", "SERVICE_BUS_PORT"
_EMULATOR = ";UseDevelopmentEmulator=true"  # SDKs then use no TLS, and the port that is named


def connection_strings(namespace: str, path: str | None, policy: str, key: str) -> list[ConnectionString]:
    """Those for a key of a policy. path: of the entity that the policy belongs to; None: to the namespace."""
    amqp, http = endpoint(AMQP_PORT) or "127.0.0.1:5672", endpoint(PORT) or "127.0.0.1:5300"
    site = _site()
    signed = f"SharedAccessKeyName={policy};SharedAccessKey={key}" + (f";EntityPath={path}" if path else "")
    why_not_http = "" if endpoint(PORT) else f"{PORT} is 0"
    return [
        ConnectionString("rest", "REST API", f"Endpoint=sb://{http}/;{signed}", http, why_not_http),
        ConnectionString(
            SITE, "REST API of this site", f"Endpoint=sb://{site}/servicebus/{namespace}/;{signed}", site.partition("/")[0]
        ),
        ConnectionString(
            "amqp", "Azure Service Bus SDKs (AMQP 1.0)", f"Endpoint=sb://{amqp}/;{signed}{_EMULATOR}", amqp, NOT_YET
        ),
        ConnectionString("admin", "ServiceBusAdministrationClient", f"Endpoint=sb://{http}/;{signed}{_EMULATOR}", http, NOT_YET),
    ]


def _site() -> str:
    """The site's host, port and prefix, as VITRINE_PUBLIC_URL has them; without it, those of localhost."""
    local = f"http://localhost:{getattr(settings, 'PORT', 8000)}{getattr(settings, 'PATH_PREFIX', '')}"
    parts = urlsplit(getattr(settings, "VITRINE_PUBLIC_URL", "") or local)
    return f"{parts.netloc}{parts.path.rstrip('/')}"
