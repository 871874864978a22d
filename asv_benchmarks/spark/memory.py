"""Executor memory: the peak of any Python worker while a small and a large topic are read."""

from pathlib import Path

from asv_benchmarks.measure import Row
from asv_benchmarks.spark import queries
from asv_benchmarks.spark.contest import descendants
from asv_benchmarks.spark.queries import Sources
from asv_benchmarks.spark.topics import Topic

FLAT = 1.2


def memory_bars(sources: Sources, small: Topic, large: Topic) -> list[Row]:
    """Return how much more memory a worker needs for the large topic; workers are reused, so the small one is first.

    A fresh worker for each would say the same: a peak never falls.
    """
    peaks = []
    for topic in (small, large):
        _forget_peaks()
        for _ in range(2):
            queries.lengths(sources.ours(topic.name))
        peaks.append(_peak_mb())
    remark = f"{peaks[0]:.0f} MB for {small.rows:,} rows, {peaks[1]:.0f} MB for {large.rows:,}"
    what = "peak memory of a Python worker, large by small topic"
    return [Row(what, peaks[1] / peaks[0], FLAT, "x", True, remark=remark)]


def _workers() -> list[Path]:
    """Return the Python workers of this session, each with its directory in /proc."""
    found = []
    for pid in descendants():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pyspark.daemon" in command:
            found.append(Path(f"/proc/{pid}"))
    return found


def _forget_peaks() -> None:
    for process in _workers():
        try:
            (process / "clear_refs").write_text("5")  # the peak becomes what is held now
        except OSError:
            continue


def _peak_mb() -> float:
    peaks = []
    for process in _workers():
        try:
            lines = (process / "status").read_text().splitlines()
        except OSError:
            continue
        peaks += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
    return max(peaks)


def topics(rows: int) -> tuple[Topic, Topic]:
    """Return two topics, the second ten times as large."""
    return Topic("small", 1, rows // 5), Topic("large", 1, rows * 2)


