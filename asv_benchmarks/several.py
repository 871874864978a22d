"""A server of two processes beside one of one: the time until it takes clients, and memory with many connections.

The two take turns. Times are the least of ROUNDS, and move with what else runs here; the ratio moves less. Memory is
that of all processes, what they share counted once. Half of the connections go to each process; each has asked for the
server's versions and for the metadata, as a client does first.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from asv_benchmarks.measure import Row
from asv_benchmarks.servers import processes_of, serving, shared_memory_mb, start, stop
from kafkalog.server.running import raise_descriptor_limit

ROUNDS = 9
SETTINGS = {"offsets.topic.num.partitions": "2", "num.partitions": "1"}
_VERSIONS = bytes.fromhex("0012 0000 00000001 ffff")
_METADATA = bytes.fromhex("0003 0001 00000002 ffff 00000000")
_ADDRESSES, _PORTS_EACH = 200, 20_000


def rows(directory: Path, connections: int) -> list[Row]:
    """Return the start and the memory of a server of two processes, each beside one of one process."""
    return [*start_rows(directory), *memory_rows(directory, connections)]


def start_rows(directory: Path) -> list[Row]:
    """Return the time from the start of the command until clients are answered, in seconds."""
    times: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(ROUNDS):
        for workers, taken in times.items():
            process, running = start(directory / f"start{turn}x{workers}", "127.0.0.1:0", SETTINGS, workers)
            stop(process)
            taken.append(running.start_s)
    one, two = (min(times[workers]) for workers in (1, 2))
    median = {workers: sorted(taken)[ROUNDS // 2] for workers, taken in times.items()}
    peers = {"one process": one, "medians": f"{median[1]:.3f} -> {median[2]:.3f}"}
    return [Row("start of two processes", two, 0.5, "s", True, peers)]


def memory_rows(directory: Path, connections: int) -> list[Row]:
    """Return the memory of both servers, with that many connections and without."""
    raise_descriptor_limit()
    found: dict[int, tuple[float, float]] = {}
    for workers in (1, 2):
        with serving(directory / f"memory{workers}", "127.0.0.1:0", SETTINGS, workers) as running:
            processes = processes_of(running.process_id)
            ports = [port for one in processes for port in listening_ports(one)]
            idle = shared_memory_mb(processes)
            with connected(ports, connections):
                found[workers] = idle, shared_memory_mb(processes)
    peers = {"one process": found[1][1], "without connections": f"{found[1][0]:.1f} -> {found[2][0]:.1f}"}
    return [Row(f"memory of two processes with {connections:,} connections", found[2][1], 120, "MB", True, peers)]


def listening_ports(process_id: int) -> list[int]:
    """Return the TCP ports at which a process listens."""
    inodes = set()
    for one in Path(f"/proc/{process_id}/fd").iterdir():
        target = str(one.readlink())
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    lines = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    fields = [line.split() for line in lines]
    return [int(one[1].partition(":")[2], 16) for one in fields if one[3] == "0A" and one[9] in inodes]


@contextmanager
def connected(ports: Sequence[int], count: int) -> Iterator[list[socket.socket]]:
    """Hold that many connections, the same number to each port, from as many addresses as they need."""
    found: list[socket.socket] = []
    try:
        for number in range(count):
            source = f"127.0.1.{1 + number // _PORTS_EACH % _ADDRESSES}"
            sock = socket.create_connection(("127.0.0.1", ports[number % len(ports)]), 60, (source, 0))
            sock.settimeout(None)  # or MSG_WAITALL would not wait
            found.append(sock)
            for request in (_VERSIONS, _METADATA):
                sock.sendall(len(request).to_bytes(4, "big") + request)
                sock.recv(int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big"), socket.MSG_WAITALL)
        yield found
    finally:
        for one in found:
            one.close()
