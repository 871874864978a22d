"""`log.writer(compression=...)`: what lands on disk, how large its batches get, and what it refuses."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, InvalidRecord, RecordTooLarge, UnsupportedCompression
from kafkalog.records.batch import RecordBatch
from kafkalog.records.format import CompressionType
from tests.open_logs import read_values

CODECS = ["gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def read_batches(path: Path) -> list[RecordBatch]:
    with kafkalog.open(path) as log:
        return list(log.batches())


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_compressed_and_offsets_told(path: Path, codec: str) -> None:
    lines = [b"hello lagou %d" % number for number in range(20_000)]
    with kafkalog.open(path, "a") as log, log.writer(compression=codec, linger_ms=5000) as writer:
        handles = [writer.append(line) for line in lines]
    assert [handle.result() for handle in handles] == list(range(20_000))
    made = read_batches(path)
    assert {batch.header.compression for batch in made} == {CompressionType[codec.upper()]}
    assert read_values(path) == lines


def test_batches_reach_the_size_asked_for_as_the_ratio_is_learned(path: Path) -> None:
    """REC-47: the estimate decides, so that batches hold more records the better they compress."""
    with kafkalog.open(path, "a") as log, log.writer(compression="zstd", linger_ms=60_000) as writer:
        for at in range(60):
            for number in range(2000):
                writer.append(b"hello lagou %d" % (at * 2000 + number))
            writer.flush()
    made = read_batches(path)
    assert made[0].header.count < 800 and made[0].size < 8000
    full = [batch for batch in made[-30:] if batch.header.count > 1500]
    assert full and max(batch.size for batch in made) < 2 * 16_384


def test_what_cannot_be_compressed_keeps_to_the_size(path: Path) -> None:
    with kafkalog.open(path, "a") as log, log.writer(compression="lz4", linger_ms=60_000) as writer:
        for _ in range(200):
            writer.append(os.urandom(1000))
    assert all(15_000 < batch.size <= 16_384 for batch in read_batches(path)[:-1])


def test_a_topics_codec_counts_and_can_change(path: Path) -> None:
    with kafkalog.open(path, "a", compression_type="gzip", compression_gzip_level=9) as log:
        with log.writer(compression="zstd") as writer:
            writer.append(b"1")
            writer.flush()
            unified = log.opened_for_append().log
            unified.config = unified.config.replace(compression_type="producer")
            writer.append(b"2")
        with log.writer() as writer:
            writer.append(b"3")
    assert [batch.header.compression for batch in read_batches(path)] == [1, 4, 0]


@pytest.mark.parametrize(
    ("named", "error"), [("zst", UnsupportedCompression), ("gzip:11", IllegalArgument), (3, TypeError)]
)
def test_a_wrong_codec_is_refused_at_once(path: Path, named: str, error: type[Exception]) -> None:
    with kafkalog.open(path, "a") as log:
        with pytest.raises(error):
            log.writer(compression=named)
        assert not log.opened_for_append().writers


@pytest.mark.parametrize("codec", CODECS)
def test_the_size_that_counts_is_the_compressed_one(path: Path, codec: str) -> None:
    """A record that the topic would refuse is refused by `append` and spoils nothing; one that it takes is taken."""
    with kafkalog.open(path, "a", max_message_bytes=10_000) as log, log.writer(compression=codec) as writer:
        first = writer.append(b"first")
        large = writer.append(b"x" * 60_000)
        with pytest.raises(RecordTooLarge, match="max.message.bytes is 10000"):
            writer.append(os.urandom(12_000))
        noise = writer.append(os.urandom(9_900))
        last = writer.append(b"last")
        assert [handle.result() for handle in (first, large, noise, last)] == [0, 1, 2, 3]
    assert [len(value or b"") for value in read_values(path)] == [5, 60_000, 9_900, 4]
    assert all(batch.size <= 10_000 for batch in read_batches(path))


def test_noise_that_only_the_topics_codec_makes_too_large(path: Path) -> None:
    with (
        kafkalog.open(path, "a", max_message_bytes=10_000, compression_type="snappy") as log,
        log.writer() as writer,
    ):
        with pytest.raises(RecordTooLarge, match="compressed"):
            writer.append(os.urandom(9_926))
        for _ in range(50):
            writer.append(os.urandom(700))
    assert len(read_values(path)) == 50


@pytest.mark.parametrize("codec", CODECS)
def test_noise_after_what_compresses_well(path: Path, codec: str) -> None:
    """However small the batches before came out, one that does not compress still fits."""
    settings = {"max_message_bytes": 10_000, "compression_type": codec}
    with kafkalog.open(path, "a", **settings) as log, log.writer(linger_ms=60_000) as writer:  # type: ignore[arg-type]
        for _ in range(30):
            for _ in range(200):
                writer.append(bytes(100))
            writer.flush()
        for _ in range(200):
            writer.append(os.urandom(400))
    assert len(read_values(path)) == 6200 and max(batch.size for batch in read_batches(path)) <= 10_000


def test_keys_on_a_compacted_topic(path: Path) -> None:
    with kafkalog.open(path, "a", cleanup_policy="compact") as log, log.writer(compression="zstd") as writer:
        with pytest.raises(InvalidRecord):
            writer.append(b"v")
        writer.append(b"v", key=b"k")
    assert read_values(path) == [b"v"]


def test_many_threads(path: Path) -> None:
    """Records of one thread keep their order."""

    def write(name: int) -> None:
        for number in range(3000):
            writer.append(b"%d:%d %s" % (name, number, b"padding " * 5))

    with kafkalog.open(path, "a") as log, log.writer(compression="lz4", buffer_memory=200_000) as writer:
        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = [(int(name), int(rest.split()[0])) for name, rest in ((v or b"").split(b":") for v in read_values(path))]
    assert len(seen) == 12_000
    for name in range(4):
        assert [number for one, number in seen if one == name] == list(range(3000))


def test_little_memory_is_enough(path: Path) -> None:
    with kafkalog.open(path, "a") as log, log.writer(compression="zstd", buffer_memory=1000) as writer:
        for number in range(5000):
            writer.append(b"hello lagou %d" % number)
    assert len(read_values(path)) == 5000
