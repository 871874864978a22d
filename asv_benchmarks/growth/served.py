"""Produce and fetch at servers of one and two processes: microseconds of CPU that a request takes in each process.

The bytes of requests are made beforehand. The CPU is what the kernel counts for each process, so that the client adds
nothing to it.
"""

import itertools
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import kafkalog
from asv_benchmarks.benchmarks.common import batch
from asv_benchmarks.servers import processes_of, serving
from asv_benchmarks.several import listening_ports
from tests.server.nodes import request_bytes

MB = 1_000_000
RECORDS = 100
TOPIC = "t"
SETTINGS = {
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "log.retention.ms": "-1",
}  # fmt: skip
LARGE_FETCH = 1 << 20
IDLE_S = 0.2
ABREAST = 20


class Place(NamedTuple):
    """A partition, the connection to the process that has it, and that process's id."""

    index: int
    sock: socket.socket
    process_id: int


def run_s(process_id: int) -> float:
    """Return the seconds that a process has run on processors, all threads."""
    tasks = Path(f"/proc/{process_id}/task").iterdir()
    return sum(int((one / "schedstat").read_text(encoding="ascii").split()[0]) for one in tasks) / 1e9


def wait_until_idle(process_ids: Sequence[int]) -> None:
    """Wait until nothing runs in the processes, which check in the background what was written before they started."""
    before, after = -1.0, 0.0
    while after > before + IDLE_S / 10:
        before = after
        time.sleep(IDLE_S)
        after = sum(map(run_s, process_ids))


def by_workers(directory: Path, requests: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return us of CPU for a request by operation, of one process and of the busier of two: the least of rounds."""
    found: dict[str, dict[str, float]] = {"produce": {}, "fetch": {}}
    for turn in range(rounds):
        for workers in (1, 2):
            taken = measured(directory / f"w{turn}x{workers}", workers, 2, requests)
            for name, one in taken.items():
                found[name][str(workers)] = min(one, found[name].get(str(workers), one))
    return found


def by_partitions(directory: Path, counts: Sequence[int], requests: int) -> dict[str, dict[str, float]]:
    """Return us of CPU for a request to one of more and more partitions in turn."""
    found: dict[str, dict[str, float]] = {"produce": {}, "fetch": {}}
    for count in counts:
        for name, one in measured(directory / f"p{count}", 1, count, max(requests, 2 * count)).items():
            found[name][str(count)] = one
    return found


def by_size(directory: Path, sizes: Sequence[int], requests: int) -> dict[str, dict[str, float]]:
    """Return us of CPU for a request to a partition that is larger and larger, written by the library before."""
    found: dict[str, dict[str, float]] = {"produce": {}, "fetch": {}}
    for size in sizes:
        for name, one in measured(directory / f"s{size}", 1, 1, requests, size).items():
            found[name][str(size)] = one
    return found


def measured(data: Path, workers: int, partitions: int, requests: int, megabytes: int = 0) -> dict[str, float]:
    """Return us of CPU for a produce and a fetch of 100 records, in the busiest process."""
    places = [data] if workers == 1 else [data / str(number) for number in range(workers)]
    fill(places, partitions, megabytes)
    with serving(data, "127.0.0.1:0", SETTINGS, workers) as running, ExitStack() as stack:
        found: list[Place] = []
        for process_id, where in zip(processes_of(running.process_id), places, strict=True):
            (port,) = listening_ports(process_id)
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            sock.settimeout(None)  # or MSG_WAITALL would not wait
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found += [Place(int(one.name.rpartition("-")[2]), sock, process_id) for one in where.glob(f"{TOPIC}-*")]
        found.sort()
        produce = {one.index: framed("produce", 8, produce_tree(one.index)) for one in found}
        fetch = {one.index: framed("fetch", 4, fetch_tree(one.index)) for one in found}
        taken = {}
        for name, frames, least in (("produce", produce, 1), ("fetch", fetch, len(batch(RECORDS)))):
            ask(found, frames, max(200, len(found)), least)
            wait_until_idle([one.process_id for one in found])
            before = {one.process_id: run_s(one.process_id) for one in found}
            ask(found, frames, requests, least)
            busiest = max(run_s(process_id) - began for process_id, began in before.items())
            taken[name] = busiest / requests * 1e6
        return taken


def fill(places: Sequence[Path], partitions: int, megabytes: int) -> None:
    """Create the topic's partitions in turn in the directories, with as many bytes in each."""
    ready = batch(RECORDS)
    settings = {"log_retention_ms": -1}
    for place in places:
        place.mkdir(parents=True)
    with kafkalog.open_dirs([str(one) for one in places], "a", **settings) as dirs:
        dirs.create_topic(TOPIC, partitions)
        for index in range(partitions):
            for _ in range(megabytes * MB // len(ready)):
                dirs[TOPIC, index].append_bytes(bytearray(ready))


def ask(places: Sequence[Place], frames: dict[int, bytes], requests: int, least: int) -> None:
    """Send requests to the partitions in turn and read the answers, each of at least that many bytes.

    A process gets ABREAST of them at once, as from a busy client, so that it does not sleep after each.
    """
    by_process: dict[int, list[Place]] = {}
    for one in places:
        by_process.setdefault(one.process_id, []).append(one)
    turns = [itertools.cycle(own) for own in by_process.values()]
    for turn in range(0, requests, ABREAST):
        own = turns[turn // ABREAST % len(turns)]
        asked = [next(own) for _ in range(ABREAST)]
        sock = asked[0].sock
        sock.sendall(b"".join(frames[one.index] for one in asked))
        for _ in asked:
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            if len(sock.recv(size, socket.MSG_WAITALL)) != size or size < least:
                raise RuntimeError("the server closed the connection, or answered with an error")


def framed(name: str, version: int, tree: dict[str, object]) -> bytes:
    """Return a request with its length."""
    body = bytes(request_bytes(name, version, tree))
    return len(body).to_bytes(4, "big") + body


def produce_tree(index: int) -> dict[str, object]:
    """Return a produce request of a batch of 100 records."""
    part = {"index": index, "records": batch(RECORDS)}
    return {"transactional_id": None, "acks": 1, "timeout": 1000,
            "topic_data": [{"name": TOPIC, "partition_data": [part]}]}  # fmt: skip


def fetch_tree(index: int) -> dict[str, object]:
    """Return a fetch of the first batch of a partition."""
    part = {"partition": index, "fetch_offset": 0, "partition_max_bytes": len(batch(RECORDS))}
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": LARGE_FETCH, "isolation_level": 0,
            "topics": [{"topic": TOPIC, "partitions": [part]}]}  # fmt: skip
