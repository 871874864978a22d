"""Names and addresses of machines."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

_CIDR: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f:]{2,39})/([0-9]{1,3})")


def is_loopback(host: str) -> bool:
    """Return True if an address, or the name `localhost`, is of this machine's loopback interface."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def network_of(text: str) -> IPv4Network | IPv6Network | None:
    """Return the network of an address and the length of its prefix (`10.0.0.0/8`, `fe80::/10`), else None."""
    found = _CIDR.fullmatch(text)
    if found is None:
        return None
    numbers = [part.lstrip("0") or "0" for part in found[1].split(".")]  # a leading zero is decimal in Java
    address = found[1] if len(numbers) == 1 else ".".join(numbers)
    try:
        return ip_network(f"{address}/{found[2]}", strict=False)
    except ValueError:
        return None


def is_in_network(host: str, text: str) -> bool:
    """Return True if the address is in the network that `network_of` finds in the text."""
    network = network_of(text)
    try:
        return network is not None and ip_address(host.partition("%")[0]) in network
    except ValueError:
        return False
