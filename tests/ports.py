"""Ports for programs that have to know theirs before they listen."""

import os
import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

_FIRST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RANDOM = random.SystemRandom()
_GIVEN: set[int] = set()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports that no program listens on, below those that the system assigns for port 0.

    One of the latter may be another socket's before the program listens on it: a proxy, say, that then connects to
    itself. No port is given twice, nor by two of pytest-xdist's processes: who got it may not listen yet, or again.
    """
    own = own_ports()
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = _RANDOM.choice(own)
            with suppress(OSError):
                if port not in _GIVEN:
                    held.enter_context(socket.create_server((host, port)))
                    ports.append(port)
                    _GIVEN.add(port)
    return ports


def neighbouring_ports(count: int) -> int:
    """Return the first of so many ports in a row on which nothing listens."""
    while True:
        first = free_ports(1)[0]
        others = range(first + 1, first + count)
        try:
            for port in others:
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        if set(others) <= set(own_ports()) - _GIVEN:
            _GIVEN.update(others)
            return first


def own_ports() -> range:
    """Return the ports of this process, which are different ones in each of pytest-xdist's."""
    end = int(_RANGE.read_text(encoding="ascii").split()[0]) if _RANGE.exists() else 32_768
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (end - _FIRST) // workers
    assert size > 1000, f"the system gives ports from {end} on"
    first = _FIRST + number % workers * size  # who takes the place of one that crashed has a higher number
    return range(first, first + size)
