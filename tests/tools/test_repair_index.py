"""Indexes that `repair` rebuilds: those that the log wrote itself, in any segment, up to the limits of an entry."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import StorageError
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.repair.index import IndexRules, rebuilt_indexes
from kafkalog.tools.repair.txn import TxnReplay
from kafkalog.tools.verify.segment import SegmentFacts
from tests import raw_batches
from tests.faults import FaultFS
from tests.tools.test_verify_damage import LOG, write_log

TIMES = (5, 9, 7, 30, 2, 31, 31, 8)


def test_indexes_of_each_segment_are_those_that_its_log_wrote(tmp_path: Path) -> None:
    settings = {"internal_segment_bytes": 5000, "index_interval_bytes": 300}
    with kafkalog.open(tmp_path / "data" / "t-0", "a", **settings) as log:
        for number in range(120):
            log.append((None, b"%d" % number * 30, 1000 + TIMES[number % len(TIMES)] * number))
    indexes = [path for path in (tmp_path / "data" / "t-0").iterdir() if path.suffix in (".index", ".timeindex")]
    before = {path.name: path.read_bytes() for path in indexes}
    assert len(before) > 4 and all(before.values())
    for path in indexes:
        path.unlink()
    assert repair(tmp_path / "data", apply=True, index_interval_bytes=300, backup_dir=tmp_path / "backup").ok
    assert {path.name: path.read_bytes() for path in indexes} == before


def test_an_entry_goes_up_to_the_largest_offset_of_a_segment(tmp_path: Path) -> None:
    base = 7
    far = base + 2**31 - 1
    parts = [raw_batches.batch(one, [b"x" * 5000], timestamp=one) for one in (base, far - 1, far)]
    path = write_log(tmp_path / "data" / "t-0", parts, f"{base:020d}.log")
    path.with_suffix(".index").unlink()
    repair(tmp_path / "data", apply=True, all_indexes=True, backup_dir=tmp_path / "backup")
    wanted = [(far - 1 - base, len(parts[0])), (far - base, len(parts[0]) + len(parts[1]))]
    assert list(struct.iter_unpack(">ii", path.with_suffix(".index").read_bytes())) == wanted
    times = list(struct.iter_unpack(">qi", path.with_suffix(".timeindex").read_bytes()))
    assert times == [(far - 1, far - 1 - base), (far, far - base)]


def test_times_from_0_on_are_in_the_index(tmp_path: Path) -> None:
    """A record without a time, which is -1, has no entry."""
    for time, wanted in ((-1, b""), (0, struct.pack(">qi", 0, 0))):
        path = write_log(tmp_path / f"t{time}-0", [raw_batches.batch(0, [b"x"], timestamp=time)])
        facts = SegmentFacts(str(path), 0)
        facts.good.append((0, path.stat().st_size))
        assert rebuilt_indexes(facts, IndexRules(), FaultFS()) == (b"", wanted)


@pytest.mark.parametrize("room", [80, 1440])
def test_full_indexes_keep_their_entries_and_the_last_time(tmp_path: Path, room: int) -> None:
    """The segment goes on behind a damaged batch, whether its indexes are full before it or behind it."""
    parts = raw_batches.batches(0, 400, 5)
    path = write_log(tmp_path / "t-0", parts)
    facts = SegmentFacts(str(path), 0)
    half = sum(map(len, parts[:200]))
    facts.good += [(0, half), (half + len(parts[200]), path.stat().st_size)]
    offsets, times = rebuilt_indexes(facts, IndexRules(256, room), FaultFS())
    before = raw_batches.index_entries(0, parts[:200], 256)[0]
    assert len(offsets) == room and offsets[: len(before)] == before[:room]
    assert len(times) == room // 12 * 12 and struct.unpack(">qi", times[-12:]) == (1000 + 1999, 1999)


def test_indexes_go_on_behind_damage_where_they_were_before_it(tmp_path: Path) -> None:
    """The largest time so far and the bytes since the last entry count on; positions are those in the file."""
    times = (5, 9000, 7, 30, 31, 9001, 20, 20)
    parts = [raw_batches.batch(number, [b"x" * 100], timestamp=time) for number, time in enumerate(times)]
    path = write_log(tmp_path / "data" / "t-0", parts)
    data, bad = bytearray(path.read_bytes()), sum(map(len, parts[:3]))
    data[bad + 70] ^= 1
    path.write_bytes(data)
    report = repair(tmp_path / "data", apply=True, all_indexes=True, index_interval_bytes=500)
    assert [one.kind for one in report.left] == ["crc"]
    entries, time_entries = raw_batches.index_entries(0, [*parts[:3], *parts[4:]], 500)
    moved = [(offset, at + len(parts[3]) if at >= bad else at) for offset, at in struct.iter_unpack(">ii", entries)]
    assert moved == [(4, 4 * len(parts[0])), (7, 7 * len(parts[0]))]
    assert list(struct.iter_unpack(">ii", path.with_suffix(".index").read_bytes())) == moved
    assert path.with_suffix(".timeindex").read_bytes() == time_entries == struct.pack(">qiqi", 9000, 1, 9001, 5)


def test_the_last_time_entry_may_be_of_a_batch_before_damage(tmp_path: Path) -> None:
    parts = [raw_batches.batch(n, [b"x"] * 3, timestamp=time) for n, time in ((0, 5), (3, 9000), (6, 7), (9, 8))]
    path = write_log(tmp_path / "data" / "t-0", parts)
    data = bytearray(path.read_bytes())
    data[len(parts[0]) + len(parts[1]) + 70] ^= 1
    path.write_bytes(data)
    repair(tmp_path / "data", apply=True, all_indexes=True)
    assert path.with_suffix(".timeindex").read_bytes() == struct.pack(">qi", 9000, 5)


@pytest.mark.parametrize("op", ["open_read", "pread"])
@pytest.mark.parametrize("again", [
    lambda facts, fs: rebuilt_indexes(facts, IndexRules(), fs), lambda facts, fs: TxnReplay(fs).add(facts),
], ids=["indexes", "transactions"])  # fmt: skip
def test_a_segment_that_cannot_be_read_is_named(tmp_path: Path, op: str, again: Callable[..., object]) -> None:
    path = write_log(tmp_path / "t-0", raw_batches.batches(0, 40, 5))
    facts = SegmentFacts(str(path), 0)
    facts.good.append((0, path.stat().st_size))
    fs = FaultFS()
    fs.fail(op, path=LOG, code=errno.EIO)
    with pytest.raises(StorageError) as caught:
        again(facts, fs)
    assert (caught.value.path, caught.value.message) == (str(path), "cannot read: Input/output error")
