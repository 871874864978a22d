"""`kafkalog produce -z` on the demo's lines, whole processes, beside the codec alone on the same batches."""

import shutil
from collections import deque
from functools import partial
from pathlib import Path

from asv_benchmarks.benchmarks.common import codecs
from asv_benchmarks.commands import make_lines
from asv_benchmarks.measure import KAFKALOG, Peers, Row, cpu_seconds, median_run
from kafkalog._core.batch.scan import scan
from kafkalog._core.text.ingest import LineEncoder

LINES = 2_000_000
SHARE = 0.8
HEADER_BYTES = 61


def rows(directory: Path, count: int) -> list[Row]:
    """Return the CPU of the process for each codec; the codec and a plain produce need at least 80 % of it."""
    count = min(count, LINES)
    lines, data = directory / "lines.txt", directory / "data"
    make_lines(lines, count)

    def fresh() -> None:
        shutil.rmtree(data, ignore_errors=True)

    produce = [*KAFKALOG, "produce", "-q", "-d", str(data), "-t", "t", "-l", str(lines)]
    plain = median_run(produce, before=fresh)
    blocks = payloads(lines)
    found = [Row(f"produce, {count} lines, plain", plain.cpu, plain.cpu, "s CPU", True)]
    for name, squeeze in codecs().items():
        used = median_run([*produce, "-z", name], before=fresh)
        alone = min(cpu_seconds(partial(deque, map(squeeze, blocks), 0)) for _ in range(3))
        bar = (alone + plain.cpu) / SHARE
        peers: Peers = {"codec + plain produce": alone + plain.cpu, "codec": alone}
        found.append(Row(f"produce -z {name}, {count} lines", used.cpu, bar, "s CPU", True, peers))
        found.append(Row(f"produce -z {name}, peak memory", used.peak_mb, 120, "MB", True))
    return found


def payloads(lines: Path) -> list[memoryview]:
    """Return the uncompressed records of each batch that produce makes of a file."""
    encoder = LineEncoder()
    text = lines.read_bytes()
    encoder.feed(text, len(text), 1_700_000_000_000)
    encoder.seal()
    made = bytes(encoder.take())
    return [memoryview(made)[one.position + HEADER_BYTES : one.position + one.size] for one in scan(made)]
