"""Ports for programs that have to know theirs before they listen."""

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

_FIRST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RANDOM = random.SystemRandom()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports that no program listens on, below those that the system assigns for port 0.

    One of the latter may be another socket's before the program listens on it: a proxy, say, that then connects to
    itself.
    """
    end = int(_RANGE.read_text(encoding="ascii").split()[0]) if _RANGE.exists() else 32_768
    assert end > _FIRST + 1000, f"the system gives ports from {end} on"
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            with suppress(OSError):
                server = held.enter_context(socket.create_server((host, _RANDOM.randrange(_FIRST, end))))
                ports.append(server.getsockname()[1])
    return ports


def neighbouring_ports(count: int) -> int:
    """Return the first of so many ports in a row on which nothing listens."""
    while True:
        first = free_ports(1)[0]
        try:
            for port in range(first + 1, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return first
