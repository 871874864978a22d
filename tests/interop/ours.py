"""Our side of a comparison, in the shapes that `reference.py` gives."""

import contextlib
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafkalog
from kafkalog.storage.readonly.view import LogView
from tests.commands import ok
from tests.interop.reference import RecordTuple

DEEP = ("--deep-iteration", "--print-data-log")
LISTENERS = "listeners"
PLAIN = {LISTENERS: "PLAINTEXT://127.0.0.1:0"}
COMPARED = (".log", ".index", ".timeindex")


def command(*arguments: str, out: Path | None = None) -> bytes:
    """Standard output of a `kafkalog` command, empty if it goes to `out`; its failure fails the test."""
    if out is None:
        return ok(*arguments)
    line = [sys.executable, "-m", "kafkalog.cli.main", *arguments]
    with out.open("wb") as sink:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, f"{' '.join(line)}: {done.stderr.decode(errors='replace')}"
    return b""


def produce_demo(data: Path, topic: str, lines: int, segment_bytes: int) -> tuple[Path, str]:
    """Produces the demo's lines; the partition directory and the SHA-256 of the input."""
    data.mkdir(parents=True)
    source = data.parent / f"{topic}.txt"
    sha = hashlib.sha256()
    with source.open("wb") as file:
        for start in range(1, lines + 1, 100_000):
            chunk = b"".join(b"hello lagou %d\n" % i for i in range(start, min(lines + 1, start + 100_000)))
            sha.update(chunk)
            file.write(chunk)
    settings = ("-X", f"segment.bytes={segment_bytes}")
    command("produce", "-q", "-d", str(data), "-t", topic, *settings, "-l", str(source))
    return data / f"{topic}-0", sha.hexdigest()


def partition(parent: Path, name: str) -> Path:
    """Return the path of a new partition, in an existing data directory."""
    (parent / "data").mkdir(parents=True, exist_ok=True)
    return parent / "data" / name


def files(directory: Path) -> dict[str, str]:
    """The SHA-256 of each .log, .index and .timeindex, by name."""
    names = sorted(path.name for path in directory.iterdir() if path.suffix in COMPARED)
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}


def logs(directory: Path) -> dict[str, str]:
    """Return the content of the .log files only."""
    return {name: sha for name, sha in files(directory).items() if name.endswith(".log")}


def records(directory: Path, start: int | None = None) -> list[RecordTuple]:
    """Every record from an offset on, read in mode "r"."""
    with kafkalog.open(directory) as log:
        return [
            (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in log.records(start)
        ]


def times(directory: Path, timestamps: Iterable[int]) -> list[tuple[int, int] | None]:
    """For each timestamp (-1 latest, -2 earliest, -3 largest): (timestamp, offset) or None."""
    with kafkalog.open(directory) as log:
        found = [log.offset_for_time(timestamp) for timestamp in timestamps]
    return [None if hit is None else (hit.timestamp, hit.offset) for hit in found]


def offsets(directory: Path, wanted: Iterable[int]) -> list[Any]:
    """For each offset: [segment base, position, size of the batch] of what a read of one byte finds."""
    rows = []
    with contextlib.closing(LogView(directory)) as view:
        for offset in wanted:
            info = view.read(offset, 1, "log_end", min_one_message=True)
            at = info.fetch_offset_metadata
            rows.append([at.segment_base_offset, at.relative_position_in_segment, info.records.size])
    return rows


def spread(start: int, stop: int, count: int) -> list[int]:
    """About `count` numbers of a range, its ends among them."""
    step = max(1, (stop - start) // count)
    return sorted({*range(start, stop, step), start, stop - 1})


@contextlib.contextmanager
def served_on(work: Path, *directories: Path, settings: Mapping[str, str] = PLAIN) -> Iterator[Any]:
    """`kafkalog serve` on data directories in this order; what has its address."""
    ready = work / "ready"
    others = [word for name, value in settings.items() if name != LISTENERS for word in ("-X", f"{name}={value}")]
    given = [word for path in directories for word in ("-d", str(path))]
    where = ["--listen", settings[LISTENERS], "--ready-file", str(ready)]
    command = [sys.executable, "-m", "kafkalog.cli.main", "serve", *where, *others, *given]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        yield SimpleNamespace(bootstrap=ready.read_text().split()[1])
    finally:
        process.terminate()
        process.wait(60)
