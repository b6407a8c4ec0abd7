"""The addresses of peers as the servers report them. Pure functions."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network


def address_of(client: str) -> IPv4Address | IPv6Address | None:
    """Of "127.0.0.1", "fe80::1%eth0"; an IPv4 address that is written as IPv6 ("::ffff:127.0.0.1") is one of IPv4. None: the text
    is no address."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(1000)
def is_loopback(client: str) -> bool:
    """Whether a peer is on this machine."""
    address = address_of(client)
    return address is not None and address.is_loopback


@lru_cache(1000)
def network_of(client: str) -> str:
    """What is limited of a peer: its address; for IPv6 its /64 network, since one client has many addresses."""
    address = address_of(client)
    if address is None:
        return client[:100]
    return str(ip_network((address, 64), strict=False) if address.version == 6 else address)
