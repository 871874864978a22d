"""`redact`: what goes and what stays, in every format, and that nothing is touched without being asked."""

import os
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.config.topic import LogConfig
from kafkalog.errors import (
    CorruptRecord,
    DirectoryLocked,
    IllegalArgument,
    InvalidRecord,
    UnknownTopicOrPartition,
)
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.redact.directories import redact
from kafkalog.redact.wanted import parse_offsets
from kafkalog.storage.log import UnifiedLog
from tests.faults import FaultFS
from tests.redact.model import Made, read_all, redacted, write

NOW = 1_700_000_000_000
LEGACY = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
KEYS = [b"a", b"b", b"", None]
HEADERS = [(), (("h", b"secret-header"),), (("h", None), ("i", b"x"))]


def tree(root: Path) -> dict[str, bytes]:
    return {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}


@st.composite
def made_batches(draw: st.DrawFn) -> Made:
    magic = draw(st.sampled_from([0, 1, 2, 2]))
    codec = draw(st.sampled_from(list(CompressionType) if magic == 2 else LEGACY))
    row = st.tuples(
        st.sampled_from(KEYS), st.sampled_from([b"one", b"value" * 30, b"", None]), st.sampled_from(HEADERS)
    )
    rows = draw(st.lists(row, min_size=1, max_size=5))
    gaps = draw(st.lists(st.sampled_from([0, 0, 0, 2]), min_size=len(rows), max_size=len(rows)))
    stamped = magic > 0 and draw(st.booleans())
    return Made(magic, codec, rows, gaps, stamped, magic == 2 and draw(st.booleans()))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.lists(st.lists(made_batches(), min_size=1, max_size=4), min_size=1, max_size=3),
    change=st.sampled_from(["tombstone", "empty"]), erase_key=st.booleans(), by_key=st.booleans(), data=st.data(),
)  # fmt: skip
def test_a_redacted_log_is_that_of_the_model(
    tmp_path: Path, segments: list[list[Made]], change: str, erase_key: bool, by_key: bool, data: st.DataObject
) -> None:
    """Every format, codec, gap, transaction: only what was wanted is emptied, every other field is as before."""
    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    partition = tmp_path / "data" / "t-0"
    write(partition, segments)
    kafkalog.open(partition, "a").close()
    before = read_all(partition)
    records = [one for batch in before for one in batch.records]
    if by_key:
        keys = data.draw(st.sets(st.sampled_from([b"a", b"b", b""]), min_size=1))
        wanted = {one.offset for one in records if one.key in keys}
        given: dict[str, Any] = {"keys": keys}
    else:
        wanted = data.draw(st.sets(st.sampled_from([one.offset for one in records]), min_size=1))
        given = {"offsets": {0: wanted}}
    with kafkalog.open(partition) as log:
        committed = [one.offset for one in log.records(isolation="read_committed")]
        times = [log.offset_for_time(one.timestamp) for one in records if one.timestamp >= 0]
    dry = redact(tmp_path / "data", "t", change=change, erase_key=erase_key, **given)
    report = redact(tmp_path / "data", "t", change=change, erase_key=erase_key, apply=True, **given)
    assert report.left == 0 and dry.records == report.records
    model = [redacted(one, wanted, tombstone=change == "tombstone", erase_key=erase_key) for one in before]
    assert read_all(partition) == model
    assert kafkalog.verify(tmp_path / "data", deep=True).ok, str(kafkalog.verify(tmp_path / "data", deep=True))
    with kafkalog.open(partition) as log:
        assert [one.offset for one in log.records(isolation="read_committed")] == committed
        assert [log.offset_for_time(one.timestamp) for one in records if one.timestamp >= 0] == times
    again = redact(tmp_path / "data", "t", change=change, erase_key=erase_key, apply=True, **given)
    assert not again.segments


def make(path: Path, count: int = 40, per_segment: int = 10, **options: Any) -> None:
    with kafkalog.open(path, "a", **options) as log:
        for n in range(count):
            log.append([kafkalog.Record(b"secret %d." % n, b"k%d" % (n % 8), NOW + n, {"h": b"head %d." % n})])
            if n % per_segment == per_segment - 1 and n < count - 1:
                log.roll()


def test_a_dry_run_changes_nothing_and_only_segments_with_a_match_are_rewritten(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.build_key_index()
    before = tree(tmp_path)
    dry = redact(tmp_path, "t", offsets={0: [13, 17]})
    assert tree(tmp_path) == before and dry.records == 2 and dry.left is None
    fs = FaultFS()
    report = redact(tmp_path, "t", offsets={0: [13, 17]}, apply=True, fs=fs)
    assert [one.base_offset for one in report.segments] == [10] and report.ok
    written = {os.path.basename(one.path) for one in fs.calls if one.op in ("pwrite", "pwritev") and ".log" in one.path}
    assert written == {f"{10:020d}.log.cleaned"}
    after = tree(tmp_path)
    assert b"secret 13." not in b"".join(after.values()) and b"head 17." not in b"".join(after.values())
    assert {name for name in before if before[name] != after.get(name)} >= {f"t-0/{10:020d}.log"}
    assert all(after[f"t-0/{base:020d}.log"] == before[f"t-0/{base:020d}.log"] for base in (0, 20, 30))


def reads_of(fs: FaultFS) -> dict[str, int]:
    """The number of reads of each segment file."""
    found: dict[str, int] = {}
    for call in fs.calls:
        if call.op in ("pread", "preadv") and call.path.endswith(".log"):
            found[os.path.basename(call.path)] = found.get(os.path.basename(call.path), 0) + 1
    return found


def test_a_segment_with_a_key_index_is_read_only_where_the_index_names_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for base in range(0, 4000, 20):
            log.append([kafkalog.Record(b"v" * 3000, b"k%d" % n, NOW + n) for n in range(base, base + 20)])
            if base % 1000 == 980:
                log.roll()
        monkeypatch.setattr("kafkalog.sidecars.identity.SETTLED_NS", -1)  # the files are not changed again
        log.build_key_index()
    indexed = FaultFS()
    assert redact(tmp_path, "t", keys=[b"k2500"], fs=indexed).records == 1
    (name,) = set(reads_of(indexed)) - {f"{4000:020d}.log"}
    assert name == f"{2000:020d}.log"
    for path in (tmp_path / "t-0").glob("*.keyindex"):
        path.unlink()
    searched = FaultFS()
    assert redact(tmp_path, "t", keys=[b"k2500"], fs=searched).records == 1
    assert set(reads_of(searched)) >= {f"{base:020d}.log" for base in (0, 1000, 2000, 3000)}
    assert reads_of(indexed)[name] < reads_of(searched)[name]


def test_key_indexes_and_indexes_fit_the_rewritten_segment(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.build_key_index()
    assert redact(tmp_path, "t", keys=[b"k3"], erase_key=True, apply=True).ok
    with kafkalog.open(tmp_path / "t-0") as log:
        assert [info.state for info in log.key_index()] == ["ok", "ok", "ok", "missing"]  # the last one was active
        assert log.get(b"k3") is None and log.get(b"k4").offset == 36
        assert [one.offset for one in log] == list(range(40))
    assert kafkalog.verify(tmp_path, deep=True).ok
    assert redact(tmp_path, "t", keys=[b"k3"]).missing == ("key 'k3'",)


def test_a_compacted_topic_gets_tombstones_and_keeps_its_keys(tmp_path: Path) -> None:
    make(tmp_path / "t-0", cleanup_policy="compact")
    report = redact(tmp_path, "t", keys=[b"k3"], apply=True)
    assert report.change == "tombstone" and report.records == 5
    with kafkalog.open(tmp_path / "t-0") as log:
        assert [one.value for one in log if one.key == b"k3"] == [None] * 5
    with pytest.raises(IllegalArgument, match="compacted"):
        redact(tmp_path, "t", keys=[b"k3"], erase_key=True)


def test_a_clean_removes_the_key_after_its_redaction(tmp_path: Path) -> None:
    make(tmp_path / "t-0", cleanup_policy="compact", delete_retention_ms=0)
    assert redact(tmp_path, "t", keys=[b"k3"], apply=True).records == 5
    with kafkalog.open(tmp_path / "t-0", "a", cleanup_policy="compact", delete_retention_ms=0) as log:
        log.compact(roll=True)
        log.compact(from_start=True)
        assert {one.key for one in log} == {b"k%d" % n for n in range(8) if n != 3}
        assert log.append([(b"k3", b"after")]).first_offset == 40
    assert kafkalog.verify(tmp_path, deep=True).ok


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_producer_goes_on_after_its_batches_were_emptied(tmp_path: Path, has_snapshot: bool) -> None:
    """All records of its compressed batches are redacted; after a restart a repeated batch is still recognised."""
    partition = tmp_path / "data" / "t-0"
    partition.mkdir(parents=True)

    def batch_at(sequence: int) -> bytearray:
        builder = RecordsBuilder(
            0, compression=CompressionType.ZSTD, producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        for _ in range(3):
            builder.append(int(time.time() * 1000), b"a", b"secret")
        return builder.build()

    with closing(UnifiedLog.open(str(partition), LogConfig.from_stored({}))) as log:
        for sequence in (0, 3):
            log.append_as_leader(batch_at(sequence))
    report = redact(tmp_path / "data", "t", keys=[b"a"], change="empty", erase_key=True, apply=True)
    assert report.records == 6 and b"secret" not in b"".join(tree(partition).values())
    for snapshot in partition.glob("*.snapshot") if not has_snapshot else ():
        snapshot.unlink()
    with closing(UnifiedLog.open(str(partition), LogConfig.from_stored({}), had_clean_shutdown=has_snapshot)) as log:
        assert log.append_as_leader(batch_at(3)).first_offset == 3 and log.log_end_offset == 6
        assert log.append_as_leader(batch_at(6)).first_offset == 6


def test_by_condition(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b'{"user": "u%d", "n": %d}' % (n % 3, n) for n in range(12)])
        log.roll()
        log.append([b'{"user": "u1", "n": 99}', b'{"user": "u2"}'])
    given: dict[str, Any] = {"where": "value.user == 'u1'", "typed": {"value": "json"}}
    dry = redact(tmp_path, "t", **given)
    assert dry.records == 5 and dry.change == "empty"
    report = redact(tmp_path, "t", apply=True, **given)
    assert report.records == 5 and report.ok
    with kafkalog.open(tmp_path / "t-0") as log:
        assert [one.offset for one in log if one.value == b""] == [1, 4, 7, 10, 12]
    assert not redact(tmp_path, "t", apply=True, **given).segments
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"no json"])
    with pytest.raises(InvalidRecord):
        redact(tmp_path, "t", **given)


def test_a_log_that_is_open_is_searched_but_not_changed(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    with kafkalog.open(tmp_path / "t-0", "a"):
        assert redact(tmp_path, "t", keys=[b"k1"]).records == 5
        with pytest.raises(DirectoryLocked):
            redact(tmp_path, "t", keys=[b"k1"], apply=True)
    with kafkalog.open(tmp_path / "t-0") as log:
        assert log[1].value == b"secret 1."


def test_damage_raises_before_a_segment_changes(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{10:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    logs = {name: one for name, one in tree(tmp_path).items() if name.endswith(".log")}
    for apply in (False, True):
        with pytest.raises(CorruptRecord, match=f"{10:020d}.log"):
            redact(tmp_path, "t", keys=[b"k3"], apply=apply)
        assert {name: one for name, one in tree(tmp_path).items() if name.endswith(".log")} == logs
    with pytest.raises(CorruptRecord, match=f"{10:020d}.log"):  # found in a sound batch, the segment is not
        redact(tmp_path, "t", offsets={0: [10]}, apply=True)
    assert path.read_bytes() == bytes(data) and not list((tmp_path / "t-0").glob("*.cleaned"))


def test_records_below_the_log_start_are_redacted_too(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.delete_before(5)
    assert redact(tmp_path, "t", keys=[b"k1"], apply=True).records == 5
    assert b"secret 1." not in b"".join(tree(tmp_path).values())
    report = redact(tmp_path, "t", where="key == 'k2'")
    assert "below the log start" in str(report)


def test_bad_calls(tmp_path: Path) -> None:
    make(tmp_path / "t-0")
    with pytest.raises(IllegalArgument, match="no records are named"):
        redact(tmp_path, "t")
    with pytest.raises(UnknownTopicOrPartition):
        redact(tmp_path, "other", keys=[b"a"])
    with pytest.raises(IllegalArgument, match="state of groups or transactions"):
        redact(tmp_path, "__transaction_state", keys=[b"a"])
    with pytest.raises(UnknownTopicOrPartition, match="no partition 3"):
        redact(tmp_path, "t", offsets={3: [1]})
    make(tmp_path / "t-1")
    with pytest.raises(IllegalArgument, match="partition 0 is not searched") as caught:
        redact(tmp_path, "t", offsets={0: [1]}, partitions=[1])
    assert caught.value.hint == "omit the partitions, or include it"
    wrong: dict[str, Any]
    for wrong in (
        {"keys": b"k1"}, {"keys": ["k1"]}, {"keys": [5]}, {"offsets": {0: [1 << 63]}}, {"offsets": {0: [-1]}},
        {"offsets": {0: ["1"]}},
    ):  # fmt: skip
        with pytest.raises(IllegalArgument, match="is no (key|offset)"):
            redact(tmp_path, "t", **wrong)
    with pytest.raises(IllegalArgument, match="'nulls'"):
        redact(tmp_path, "t", keys=[b"a"], change="nulls")
    with pytest.raises(IllegalArgument):
        redact(tmp_path, "t", where="key ==")
    with pytest.raises(IllegalArgument, match="value is text and 5 is a whole number, at character 13"):
        redact(tmp_path, "t", where="size > 0 or value == 5", typed={"value": "string"})
    assert redact(tmp_path, "t", offsets={0: [3, 400]}).missing == ("offset 400 of partition 0",)
    for text in ("", "0", "0:x", "a:1", "0:99999999999999999999", "0:1;0:2"):
        with pytest.raises(IllegalArgument, match="PARTITION:OFFSET"):
            parse_offsets(text)
