"""Servers of this tree and other processes: started, waited for, and looked at from outside (Linux)."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from asv_benchmarks.measure import KAFKALOG

START_S = 60


class Running(NamedTuple):
    """A server that takes clients, and the seconds from its process's start until it did."""

    process_id: int
    bootstrap: str
    start_s: float

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, without the listener's protocol."""
        host, _, port = self.bootstrap.rpartition(":")
        return host.rpartition("/")[2], int(port)


def start(
    data: Path, listen: str, settings: Mapping[str, str], workers: int = 1
) -> tuple["subprocess.Popen[bytes]", Running]:
    """Start `kafkalog serve` on a data directory, of each worker if there are several; return when it takes clients."""
    ready = data.with_name(f"{data.name}.ready")
    ready.unlink(missing_ok=True)
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    places = [data] if workers == 1 else [data / str(number) for number in range(workers)]
    options += ["--workers", str(workers), *(part for one in places for part in ("-d", str(one)))]
    command = [*KAFKALOG, "serve", "-q", "--listen", listen, "--ready-file", str(ready), *options]
    began = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: ready.exists() and ready.stat().st_size > 0, START_S, process)
    except BaseException:
        stop(process)
        raise
    return process, Running(process.pid, ready.read_text(encoding="utf-8").split()[1], time.monotonic() - began)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a server by SIGTERM."""
    process.terminate()
    process.wait()


@contextmanager
def serving(data: Path, listen: str, settings: Mapping[str, str], workers: int = 1) -> Iterator[Running]:
    """Run a server while the block runs."""
    process, running = start(data, listen, settings, workers)
    try:
        yield running
    finally:
        stop(process)


def wait_until(is_so: Callable[[], bool], limit_s: float, process: "subprocess.Popen[bytes] | None" = None) -> None:
    """Wait for a condition; RuntimeError if it takes too long, or if the process ends."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        if (process is not None and process.poll() is not None) or time.monotonic() > deadline:
            raise RuntimeError("a server does not come up")
        time.sleep(0.005)


def cpu_s(process_id: int) -> float:
    """Return the CPU seconds that a process has taken, user and system."""
    return sum(map(int, stat(process_id)[11:13])) / os.sysconf("SC_CLK_TCK")


def threads_cpu_s(process_id: int) -> float:
    """Return the CPU seconds of a process's current threads, to the nanosecond (Linux)."""
    taken_ns = 0
    for task in Path(f"/proc/{process_id}/task").iterdir():
        with suppress(FileNotFoundError):
            taken_ns += int((task / "schedstat").read_text(encoding="utf-8").split()[0])
    return taken_ns / 1e9


def stat(process_id: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; zeros if the process is gone."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def memory_mb(process_id: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def processes_of(process_id: int) -> list[int]:
    """Return a server's processes: the main one, then its workers."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text(encoding="utf-8")
    return [process_id, *map(int, children.split())]


def shared_memory_mb(process_ids: Iterable[int]) -> float:
    """Return the memory of processes together: pages that several share are counted once (PSS)."""
    found = 0
    for one in process_ids:
        text = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="utf-8")
        found += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return found * 1024 / 1e6
