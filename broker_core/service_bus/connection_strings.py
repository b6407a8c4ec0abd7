"""Connection strings: what a program needs to sign in with a shared access policy."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

from .entities.shared_access import AccessPolicy


def connection_string(policy: AccessPolicy, key: str) -> str:
    """For one of the policy's keys. It names the HTTP front end."""
    entity_path = f";EntityPath={policy.path}" if policy.path else ""
    return f"Endpoint={_endpoint(policy.namespace)};SharedAccessKeyName={policy.name};SharedAccessKey={key}{entity_path}"


def _endpoint(namespace: str) -> str:
    """The HTTP front end's address for a namespace, below the Django setting VITRINE_PUBLIC_URL or, without it, localhost."""
    local = f"http://localhost:{getattr(settings, 'PORT', 8000)}{getattr(settings, 'PATH_PREFIX', '')}"
    parts = urlsplit(getattr(settings, "VITRINE_PUBLIC_URL", "") or local)
    return f"sb://{parts.netloc}{parts.path.rstrip('/')}/servicebus/{namespace}/"
