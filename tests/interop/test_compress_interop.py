"""The reference reads what kafkalog compresses, and both dump tools agree on it: levels and topic settings."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from tests.interop import ours
from tests.interop.reference import Reference

T0 = 1_700_000_000_000
CODECS = ["gzip", "gzip:1", "gzip:9", "snappy", "lz4", "lz4:1", "lz4:17", "zstd", "zstd:-5", "zstd:22"]
RECORDS = [
    *((b"%d" % at, b"hello lagou %d" % at, T0 + at % 90, [("h", b"%d" % at)]) for at in range(700)),
    (None, None, T0, []), (b"", b"", T0, []), (b"k", bytes(200_000), T0, []),
    (b"noise", bytes(at * at * 31 >> 4 & 255 for at in range(150_000)), T0, []),
]  # fmt: skip


def assert_reads_alike(reference: Reference, directory: Path) -> None:
    """The reference's log and its dump tool give what ours give."""
    with reference.open(directory, clean=True) as log:
        assert log.read() == ours.records(directory)
    for file in sorted(directory.glob("*.log")):
        printed, complaints = reference.dump(file, *ours.DEEP)
        assert ours.command("dump", *ours.DEEP, "--files", str(file)) == printed and not complaints


@pytest.mark.parametrize("codec", CODECS)
def test_append_and_writer(reference: Reference, tmp_path: Path, codec: str) -> None:
    """REC-44: lowest, default and highest level."""
    directory = ours.partition(tmp_path, "packed-0")
    with kafkalog.open(directory, "a") as log:
        log.append(RECORDS, compression=codec)
        log.append([RECORDS[0]], compression=codec)
        with log.writer(compression=codec) as writer:
            for key, value, timestamp, headers in RECORDS:
                writer.append(value, key, timestamp, headers)
    assert len(ours.records(directory)) == 2 * len(RECORDS) + 1
    assert_reads_alike(reference, directory)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "lz4:12", "zstd"])
def test_produce(reference: Reference, tmp_path: Path, codec: str) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"".join(b"hello lagou %d\n" % at for at in range(1, 50_001)))
    data = tmp_path / "data"
    ours.command("produce", "-q", "-d", str(data), "-t", "t", "-z", codec, "-l", str(source))
    assert [value for _, _, _, value, _ in ours.records(data / "t-0")] == source.read_bytes().splitlines()
    assert_reads_alike(reference, data / "t-0")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec(reference: Reference, tmp_path: Path, codec: str) -> None:
    data = tmp_path / "data"
    config = ("-c", f"compression.type={codec}", "-c", "message.timestamp.type=LogAppendTime")
    ours.command("topics", "create", "-q", "-d", str(data), "-t", "t", *config)
    with kafkalog.open(data / "t-0", "a") as log:
        log.append(RECORDS)
        log.append([b"v"], compression="gzip")
    with kafkalog.open(data / "t-0") as log:
        assert [named(batch.header.compression) for batch in log.batches()] == [codec, codec]
    assert_reads_alike(reference, data / "t-0")


def named(number: int) -> str:
    return ("none", "gzip", "snappy", "lz4", "zstd")[number]
