"""Segments cut to a part of their offsets: where the data is cut, and what of the indexes stays."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.tiered.description import Description
from kafkalog.tiered.plan import Span
from kafkalog.tiered.segment_bytes import ObjectStore, SegmentContent
from kafkalog.tiered.segment_metadata import RemoteSegment
from kafkalog.tiered.span_files import SpanFiles, end_of
from tests.raw_batches import index_entries
from tests.tiered_store import Batch, make_batch

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
FIRST = 100


def stored(root: Path, data: bytes, indexes: Mapping[str, bytes]) -> SegmentContent:
    """The content of a segment in Kafka's own file store."""
    for suffix, content in {".log": data, **indexes}.items():
        (root / f"s{suffix}").write_bytes(content)
    return ObjectStore(Description(f"file://{root}")).plain_segment(f"/file:{root}/s", FIRST, len(data))


def cut(content: SegmentContent, batches: list[Batch], start: int, stop: int) -> SpanFiles:
    segment = RemoteSegment("A" * 22, FIRST, batches[-1].stop - 1, content.log_bytes, 0, (EpochEntry(0, FIRST),))
    return SpanFiles(Span(start, stop, segment), segment, content)


def read(files: SpanFiles) -> bytes:
    size = files.size(".log")
    assert files.read(".log", 0, size + 100) == files.read(".log", 0, size), "nothing behind the end is read"
    return files.read(".log", 0, size)


def make_log(rng: random.Random) -> list[Batch]:
    """Batches of some hundred bytes and of more than is read at once, with gaps between some."""
    log: list[Batch] = []
    for _ in range(40):
        first = log[-1].stop + rng.choice([0, 0, 0, 2]) if log else FIRST
        log.append(make_batch(first, rng.randint(1, 5), 0, pad=rng.choice([20, 300, 3_000, 15_000, 50_000])))
    return log


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_data_is_cut_at_batches(tmp_path: Path, seed: int, indexed: bool) -> None:
    rng = random.Random(seed)
    log = make_log(rng)
    data = b"".join(one.data for one in log)
    offsets, _ = index_entries(FIRST, [one.data for one in log], 20_000)
    content = stored(tmp_path, data, {".index": offsets} if indexed else {})
    assert len(data) > 500_000 and max(len(one.data) for one in log) > 200_000
    assert end_of(content, FIRST) == log[-1].stop
    for _ in range(20):
        low, high = sorted(rng.sample(range(len(log)), 2))
        start = rng.choice([log[low].first, log[low - 1].stop if low else FIRST])  # in a gap before the batch
        expected = b"".join(one.data for one in log[low:high])
        assert read(cut(content, log, start, log[high].first)) == expected
    last = log[-1]
    assert read(cut(content, log, last.first, last.stop)) == last.data


@pytest.mark.parametrize(("how", "words"), [("inside", "on both sides of 108"), ("damaged", "no batch before offset")])
@pytest.mark.parametrize("pad", [20, 20_000])
def test_a_segment_that_cannot_be_cut_is_named(tmp_path: Path, how: str, words: str, pad: int) -> None:
    log = [make_batch(FIRST + n * 6, 6, 0, pad=pad) for n in range(4)]
    data, size = b"".join(one.data for one in log), len(log[0].data)
    start = 108 if how == "inside" else log[2].first
    if how == "damaged":
        data = data[: size + 8] + b"\x7f" + data[size + 9 :]  # a size beyond the end
    files = cut(stored(tmp_path, data, {}), log, start, log[3].stop)
    with pytest.raises(StorageError, match=words) as caught:
        files.size(".log")
    error = caught.value
    assert (error.path, error.offset, error.position) == (f"file://{tmp_path}/s.log", FIRST, size) and error.hint


def test_offsets_behind_the_last_batch_are_cut_at_the_end(tmp_path: Path) -> None:
    log = [make_batch(FIRST + n * 6, 6, 0) for n in range(4)]
    content = stored(tmp_path, b"".join(one.data for one in log[:3]), {})
    assert read(cut(content, log, log[1].first, log[3].first + 2)) == log[1].data + log[2].data
    assert read(cut(content, log, log[3].first + 2, log[3].first + 4)) == b""


@pytest.mark.parametrize("pad", [20, 50_000])
def test_the_end_of_data_that_ends_in_a_batch_is_not_known(tmp_path: Path, pad: int) -> None:
    log = [make_batch(FIRST + n * 6, 6, 0, pad=pad) for n in range(3)]
    data = b"".join(one.data for one in log)
    assert end_of(stored(tmp_path, data[:-1], {}), FIRST) is None
    assert end_of(stored(tmp_path, data[: -len(log[2].data)], {}), FIRST) == log[2].first
    assert end_of(stored(tmp_path, b"", {}), FIRST) is None
