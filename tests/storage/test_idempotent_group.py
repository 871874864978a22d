"""Batches of producers, appended as a group, come out as they do one by one; an idempotent append costs little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import KafkalogError, OutOfOrderSequence
from kafkalog.storage.log import UnifiedLog
from tests.builder import R, batch
from tests.faults import FaultFS
from tests.storage.logs import NOW, files, log

Sent = tuple[int, int, int]
"""(producer, first sequence, records); producer -1 for none."""

sent = st.tuples(st.sampled_from((-1, 7, 8)), st.integers(0, 6), st.integers(1, 3))
groups = st.lists(st.lists(sent, min_size=1, max_size=6), min_size=1, max_size=5)


def build_batch(what: Sent) -> bytearray:
    producer, sequence, count = what
    known = producer >= 0
    records = [R(b"k", b"v" * 20, timestamp=NOW)] * count
    more: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence} if known else {}
    return bytearray(batch(records, **more))


def order_by_sequence(group: list[Sent], next_sequence: dict[int, int]) -> list[Sent]:
    """The group with most batches in the order of their sequences: what producers send."""
    made = []
    for producer, slack, count in group:
        sequence = next_sequence.get(producer, 0) if slack else max(0, next_sequence.get(producer, 0) - count)
        made.append((producer, sequence, count))
        next_sequence[producer] = max(next_sequence.get(producer, 0), sequence + count)
    return made


def append_one_by_one(a_log: UnifiedLog, group: list[Sent]) -> tuple[int, int] | str:
    """(first, last offset), or the error that ended it; what was written before it stays."""
    first = last = -1
    try:
        for what in group:
            info = a_log.append_as_leader(build_batch(what))
            first = info.first_offset if first < 0 else first
            last = info.last_offset
    except KafkalogError as error:
        return type(error).__name__
    return first, last


def append_together(a_log: UnifiedLog, group: list[Sent]) -> tuple[int, int] | str:
    try:
        info = a_log.append_batches(bytearray(b"".join(build_batch(what) for what in group)))
    except KafkalogError as error:
        return type(error).__name__
    assert info.last_leader_epoch == -1, "none was given"
    return info.first_offset, info.last_offset


@settings(max_examples=120, deadline=None)
@given(given_groups=groups, orderly=st.booleans(), segment_bytes=st.sampled_from((300, 700, 1 << 20)))
def test_a_group_comes_out_as_its_batches_one_by_one(
    new_path: Callable[[str], Path], given_groups: list[list[Sent]], orderly: bool, segment_bytes: int
) -> None:
    """Offsets, errors, duplicates (LOG-60, LOG-61), producers and the bytes of every file, across rolls."""
    path = new_path("group")
    sizes = {"internal_segment_bytes": segment_bytes, "index_interval_bytes": 200}
    logs = []
    for name in ("single", "group"):
        (path / name).mkdir()
        logs.append(log(path / name, **sizes))
    next_sequence: dict[int, int] = {}
    for group in given_groups:
        asked = order_by_sequence(group, next_sequence) if orderly else group
        assert append_together(logs[1], asked) == append_one_by_one(logs[0], asked)
        assert logs[1].log_end_offset == logs[0].log_end_offset
        assert [repr(p) for p in logs[1].producers] == [repr(p) for p in logs[0].producers]
    for a_log in logs:
        a_log.close()
    assert files(path / "group" / "topic-0") == files(path / "single" / "topic-0")


def test_a_group_of_producers_is_one_write(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    fs.calls.clear()
    assert append_together(a_log, [(7, 0, 1), (8, 0, 2), (7, 1, 1), (-1, 0, 1), (8, 2, 1)]) == (0, 5)
    assert len([call for call in fs.named("pwrite") if call.path.endswith(".log")]) == 1
    assert {p.producer_id: p.last_sequence for p in a_log.producers} == {7: 1, 8: 2}
    a_log.close()


def test_the_quick_way_of_an_append_knows_its_limits(tmp_path: Path) -> None:
    """A new producer, a new epoch, a wrap, a duplicate, a gap: each as by the long way (PSM-1 to PSM-6)."""
    a_log = log(tmp_path)
    last = 2**31 - 1
    assert append_one_by_one(a_log, [(7, last - 1, 2), (7, 0, 1), (7, 1, 1)]) == (0, 3)
    assert append_one_by_one(a_log, [(7, last - 1, 2)]) == (0, 1)
    with pytest.raises(OutOfOrderSequence):
        a_log.append_as_leader(build_batch((7, 3, 1)))
    newer = batch([R(b"k", b"v", timestamp=NOW)], producer_id=7, producer_epoch=1, base_sequence=0)
    assert a_log.append_as_leader(bytearray(newer)).first_offset == 4
    assert append_one_by_one(a_log, [(7, 2, 1)]) == "InvalidProducerEpoch"
    assert a_log.producers[0].producer_epoch == 1
    a_log.close()


def test_an_append_that_could_not_be_written_leaves_no_sequence(tmp_path: Path) -> None:
    """PSM-32: sent again it is taken, single and in a group."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    for send, begin in ((append_one_by_one, 0), (append_together, 3)):
        send(a_log, [(7, begin, 1)])
        fs.fail("pwrite", path=".log", times=1)
        assert send(a_log, [(7, begin + 1, 1), (7, begin + 2, 1)]) == "StorageError"
        assert a_log.producers[0].last_sequence == begin
        assert send(a_log, [(7, begin + 1, 1), (7, begin + 2, 1)]) == (begin + 1, begin + 2)
    a_log.close()
