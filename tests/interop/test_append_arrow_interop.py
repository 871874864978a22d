"""The reference reads what was appended as Arrow data, and takes batches that were stamped for a producer."""

from pathlib import Path

import pyarrow as pa
import pytest

import kafkalog
from kafkalog._core.batch.scan import scan
from kafkalog._core.batch.stamp import stamp_producer
from kafkalog._core.log.assign import assign
from kafkalog.config.topic import LogConfig
from kafkalog.records.format import CompressionType
from kafkalog.records.packing import Compression
from kafkalog.records.placer import Placer, TopicTarget
from tests.interop.reference import RecordTuple, Reference

T0 = 1_700_000_000_000
COUNT = 4000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DUMP = ("--deep-iteration", "--print-data-log")


def rows() -> pa.Table:
    """Nulls, empty and long values, headers, times that go back."""
    numbers = range(COUNT)
    pair = [{"key": "h", "value": b"1"}, {"key": "", "value": None}]
    headers = [None if n % 3 else pair[: n % 4] for n in numbers]
    return pa.table(
        {
            "key": [None if n % 5 == 0 else b"k%d" % (n % 97) for n in numbers],
            "value": [None if n % 11 == 0 else b"v%d " % n * (n % 60) for n in numbers],
            "timestamp": pa.array([T0 + n * 3 - n % 7 * 50 for n in numbers], pa.timestamp("ms")),
            "headers": pa.array(headers, HEADERS),
        }
    )


def expected() -> list[RecordTuple]:
    return [
        (n, row["timestamp"].timestamp() * 1000 // 1, row["key"], row["value"], pairs(row["headers"]))
        for n, row in enumerate(rows().to_pylist())
    ]


def pairs(headers: list[dict[str, object]] | None) -> tuple[tuple[object, object], ...]:
    return tuple((h["key"], h["value"]) for h in headers or ())


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_the_reference_reads_what_was_appended(reference: Reference, tmp_path: Path, codec: str | None) -> None:
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    with kafkalog.open(path, "a") as log:
        assert log.append_arrow(rows(), compression=codec, batch_bytes=9000).shallow_count > 20
        mine = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in log]
    out, complaints = reference.dump(path / f"{0:020d}.log", *DUMP)
    assert complaints == b""
    assert out.count(b"isvalid: true") == out.count(b"baseOffset: ") > 20
    with reference.open(path, {}, clean=True) as theirs:
        assert theirs.read() == mine
    assert [(r[0], int(r[1]), *r[2:]) for r in expected()] == mine


def test_the_reference_takes_stamped_batches(reference: Reference, tmp_path: Path) -> None:
    """Sequences continue over batches, compressed or not, and wrap; its producer state is as for a producer's own."""
    target = TopicTarget(1, LogConfig(), Compression(CompressionType.LZ4))
    placer = Placer(lambda topic: target, topic="t", batch_bytes=20_000)
    parts = [*placer.add(rows()), *placer.finish()]
    data = bytearray().join(bytes(memoryview(part.batches)) for part in parts)
    first = 2**31 - 2000
    assert stamp_producer(data, 4711, 3, first) == COUNT - 2000
    assign(data, scan(data), 0, 0)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data)
    out, complaints = reference.dump(path)
    assert complaints == b""
    lines = [line for line in out.splitlines() if line.startswith(b"baseOffset: ")]
    assert len(lines) > 5
    assert all(b"producerId: 4711 producerEpoch: 3 " in line and b"isvalid: true" in line for line in lines)
    sequences = [tuple(int(part) for part in numbers(line)) for line in lines]
    assert sequences[0][0] == first
    for (_, last), (following, _) in zip(sequences, sequences[1:], strict=False):
        assert following == (last + 1) % 2**31
    assert any(last < base for base, last in sequences), "one batch wraps inside"


def numbers(line: bytes) -> list[bytes]:
    words = line.split()
    return [words[words.index(name) + 1] for name in (b"baseSequence:", b"lastSequence:")]
