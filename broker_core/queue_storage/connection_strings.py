"""Connection strings of storage accounts (Azure Storage documentation, "Configure Azure Storage connection strings")."""

from __future__ import annotations

from broker_core.common.connection_strings import ConnectionString
from broker_core.wire.endpoints import endpoint

from .rules.shared_key import PUBLISHED_ACCOUNT, PUBLISHED_KEY

PORT, TLS_PORT = "QUEUE_STORAGE_PORT", "QUEUE_STORAGE_TLS_PORT"
_DEVELOPMENT, _DEVELOPMENT_AT = "UseDevelopmentStorage=true", "127.0.0.1:10001"  # what it stands for in every SDK


def connection_strings(account: str, key: str) -> list[ConnectionString]:
    """Those of an account for one of its keys."""
    found, at_tls = endpoint(PORT), endpoint(TLS_PORT)
    at, why_not = found or _DEVELOPMENT_AT, "" if found else f"{PORT} is 0"
    strings = [ConnectionString("sdk", "Azure Queue Storage SDKs", _of_sdk("http", account, key, at), at, why_not)]
    if at_tls:
        of_tls = _of_sdk("https", account, key, at_tls)
        strings.append(ConnectionString("tls", "Azure Queue Storage SDKs, over TLS", of_tls, at_tls))
    if account == PUBLISHED_ACCOUNT and key == PUBLISHED_KEY:
        if found == _DEVELOPMENT_AT:
            strings.append(ConnectionString("development", "Azure Queue Storage SDKs, on this machine", _DEVELOPMENT, at))
        broker = f"azurestoragequeues://{key}@http://{at}/{account}"
        strings.append(ConnectionString("celery", "Celery and kombu", broker, at, why_not))
    return strings


def service_url(account: str, *, https_only: bool = False) -> str:
    """The address of an account's queue service; empty: no port serves it."""
    at, at_tls = "" if https_only else endpoint(PORT), endpoint(TLS_PORT)
    return f"http://{at}/{account}" if at else f"https://{at_tls}/{account}" if at_tls else ""


def _of_sdk(scheme: str, account: str, key: str, at: str) -> str:
    return f"DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key};QueueEndpoint={scheme}://{at}/{account};"
