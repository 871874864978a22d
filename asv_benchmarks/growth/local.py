"""Append, scan, typed scan, verify and clean of logs in this process: with threads, over partitions, over sizes."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import kafkalog
from asv_benchmarks.benchmarks.common import batch, batches
from asv_benchmarks.cleaning import SETTINGS, make_log
from asv_benchmarks.typed import ORDER, avro_values
from kafkalog.tools.verify.directories import verify

MB = 1_000_000
RECORDS = 100
ROUNDS, MANY = 4, 100
SHARES = 4
"""Logs that threads divide among them."""
OPERATIONS = {"append": 2.0, "scan": 10.0, "decode": 1.0, "verify": 10.0, "clean": 1.0}
"""Operations, and how large their logs are beside those of others, so that each takes as long as others."""


class Taken(NamedTuple):
    """Seconds of some threads: elapsed, elapsed without the time that they waited for a processor, and CPU."""

    elapsed: float
    unqueued: float
    cpu: float


def queued_s() -> float:
    """Return the seconds that the calling thread has waited for a processor so far."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def in_threads(work: Callable[[Any], object], items: Sequence[Any], threads: int) -> Taken:
    """Do the work for each item, in that many threads with as many items each."""
    unqueued, cpu, failed = [0.0] * threads, [0.0] * threads, list[BaseException]()

    def run(number: int) -> None:
        began, waited, clock = time.perf_counter(), queued_s(), time.thread_time()
        try:
            for one in items[number::threads]:
                work(one)
        except BaseException as error:
            failed.append(error)
        unqueued[number] = time.perf_counter() - began - (queued_s() - waited)
        cpu[number] = time.thread_time() - clock

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failed:
        raise failed[0]
    return Taken(time.perf_counter() - began, max(unqueued), sum(cpu))


def scan(path: Path) -> None:
    """Read two columns of a log."""
    with kafkalog.open(path) as log:
        for _ in log.scan(["offset", "value"]):
            pass


def decode(path: Path) -> None:
    """Read the typed values of a log."""
    from kafkalog import values

    with kafkalog.open(path) as log:
        for _ in log.scan(["value"], value=values.decoder("avro", schema=ORDER)):
            pass


def check(path: Path) -> None:
    """Verify a log."""
    if not verify([path], threads=1).ok:
        raise RuntimeError(f"{path} is damaged")


def clean(path: Path) -> None:
    """Compact a log."""
    with kafkalog.open(path, "a", **SETTINGS) as log:
        log.compact()


READS = {"scan": scan, "decode": decode, "verify": check}


def fill(path: Path, megabytes: float) -> Path:
    """Create a log of batches of 100 records of 100 bytes."""
    ready = batches(RECORDS, min(MB, int(megabytes * MB)))
    with kafkalog.open(path, "a") as log:
        for _ in range(max(1, round(megabytes * MB / len(ready)))):
            log.append_bytes(bytearray(ready))
    return path


def fill_typed(path: Path, megabytes: float) -> Path:
    """Create a log of Avro values of 100 bytes."""
    values = avro_values(10_000)
    with kafkalog.open(path, "a") as log:
        while log.size < megabytes * MB:
            for first in range(0, len(values), RECORDS):
                log.append(values[first : first + RECORDS])
    return path


@contextmanager
def appending(directory: Path, count: int, megabytes: float) -> Iterator[tuple[Callable[[Any], object], Sequence[Any]]]:
    """Open new logs; the work appends batches of 100 records to one of them."""
    ready = batch(RECORDS)
    times = max(1, round(megabytes * MB / len(ready)))

    def append(log: Any) -> None:
        for _ in range(times):
            log.append_bytes(bytearray(ready))

    with ExitStack() as stack:
        yield append, [stack.enter_context(kafkalog.open(directory / f"a{at}-0", "a")) for at in range(count)]


@contextmanager
def prepared(
    name: str, directory: Path, count: int, megabytes: float
) -> Iterator[tuple[Callable[[Any], object], Sequence[Any]]]:
    """Create logs for one round of an operation, and remove them at the end; return its work and its items."""
    directory.mkdir()
    try:
        if name == "append":
            with appending(directory, count, megabytes) as found:
                yield found
            return
        paths = [directory / f"{name}{at}-0" for at in range(count)]
        if name == "clean":
            make_log(paths[0], 100, int(megabytes * MB))
        else:
            (fill_typed if name == "decode" else fill)(paths[0], megabytes)
        for other in paths[1:]:
            shutil.copytree(paths[0], other)
        yield READS.get(name, clean), paths
    finally:
        shutil.rmtree(directory)


def by_threads(directory: Path, megabytes: float, rounds: int) -> dict[str, dict[str, list[Taken]]]:
    """Return for each operation what one and two threads took for the same logs, in turns; the first round warms up."""
    found: dict[str, dict[str, list[Taken]]] = {}
    for name in OPERATIONS:
        taken: dict[str, list[Taken]] = {"1": [], "2": []}
        for turn in range(rounds + 1):
            for threads in (1, 2) if turn % 2 else (2, 1):
                size = megabytes * OPERATIONS[name]
                with prepared(name, directory / f"{name}{turn}x{threads}", SHARES, size) as (work, items):
                    one = in_threads(work, items, threads)
                if turn:
                    taken[str(threads)].append(one)
        found[name] = taken
    return found


def by_partitions(directory: Path, counts: Sequence[int], megabytes: float) -> dict[str, dict[str, float]]:
    """Return the CPU seconds a megabyte of each operation for the same bytes in more and more partitions."""
    return {
        name: {str(count): _cpu_of(name, directory, count, megabytes / count) / megabytes for count in counts}
        for name in OPERATIONS if name != "decode"
    }  # fmt: skip


def by_size(directory: Path, sizes: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return the CPU seconds a megabyte of each operation for one partition that is larger and larger."""
    return {
        name: {str(size): _cpu_of(name, directory, 1, size) / size for size in sizes}
        for name in OPERATIONS if name != "decode"
    }  # fmt: skip


def _cpu_of(name: str, directory: Path, count: int, megabytes: float) -> float:
    """Return the least CPU of some rounds, the first of which may import modules; one round if it takes long."""
    taken = []
    for _ in range(1 if count >= MANY or megabytes >= MANY else ROUNDS):
        with prepared(name, directory / f"{name}x{count}", count, megabytes) as (work, items):
            taken.append(in_threads(work, items, 1).cpu)
    return min(taken)
