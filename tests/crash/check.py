"""Invariants of a log after a crash: it opens, and it agrees with what is expected and with itself."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from kafkalog.log.log import Log
from kafkalog.log.open_writable import open_for_append
from kafkalog.storage.names import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    log_file_name,
)
from kafkalog.storage.recovery.kept import KEPT_DIRECTORY
from kafkalog.util.fileio import OS, FileSystem
from tests.crash.disk import Image, read_image
from tests.crash.expect import Expectation
from tests.crash.model import Batch, Known, committed, on_disk, producers
from tests.crash.session import NOW
from tests.mock_time import MockClock


def open_again(path: Path, settings: dict[str, Any], fs: FileSystem = OS) -> Log:
    """The log, recovered where it needs that."""
    opened = open_for_append(path, settings, fs=fs, clock=MockClock(NOW))
    return Log(opened.log, opened)


def check_recovered(path: Path, settings: dict[str, Any], expected: Expectation) -> list[Batch]:
    """The batches found above the log start; AssertionError for whatever is not as it has to be.

    The partition directory `path` is opened, recovered, read in every way, closed, verified, opened again, and at
    last appended to.
    """
    before_opening = _whole_batches(path, "*.log", expected)
    log = open_again(path, settings)
    try:
        found = _found(path, log.start_offset, expected)
        kept = _whole_batches(path, f"{KEPT_DIRECTORY}/*/*.log*", expected)
        lost = {one for one in before_opening - kept - set(found) if one.last >= log.start_offset}
        assert not lost, f"the opening cut {lost}, and kept {kept}"
        _check_bounds(path, log, found, expected)
        check_producers(log, found, not expected.keeps_pages)
        check_reading(log, found)
        check_epochs(log, [batch for batch in found if batch.base >= expected.starts[1]])
        shown = _shown(log)
    finally:
        log.close()
    report = log.verify(deep=True)
    assert report.ok, str(report)
    before = _files(path)
    again = open_again(path, settings)
    try:
        _same_shown(again, shown)
    finally:
        again.close()
    after = _files(path)
    if not found:  # opened after a clean end, an empty log gets other empty snapshots and loses its epoch (EPOCH-6)
        before, after = (_without(image, ".snapshot", LEADER_EPOCH_CHECKPOINT) for image in (before, after))
    _same_files(before, after)
    _check_recovery_changes_nothing(path, settings, before, shown, found, not expected.keeps_pages)
    _check_append(path, settings, shown["end"])
    return found


def _whole_batches(path: Path, files: str, expected: Expectation) -> set[Batch]:
    """The batches that were appended once and lie in some files, wherever in them."""
    contents = [file.read_bytes() for file in path.glob(files)]
    return {batch for batch in expected.known if any(batch.data in content for content in contents)}


def _found(path: Path, start: int, expected: Expectation) -> list[Batch]:
    """The batches in the files, each one that was appended, in order and without a hole of its own."""
    given_up = expected.starts[1]  # below it files were being deleted, in whatever order the disk does that
    by_bytes = {batch.data: batch for batch in expected.known}
    found: list[Batch] = []
    for base, data in on_disk(path):
        batch = by_bytes.get(data)
        if batch is None:
            assert base < start, f"at offset {base} lies what was never appended there"
            continue
        if found and found[-1].last + 1 != batch.base and batch.base > given_up:
            hole = found[-1].last + 1, batch.base
            assert hole in expected.gaps or _may_be_hole(path, hole, expected), f"{found[-1]} is followed by {batch}"
        found.append(batch)
    visible = [batch for batch in found if batch.last >= start]
    there = set(visible)
    for batch in expected.least:
        assert batch.last < max(start, given_up) or batch in there, f"{batch} was acknowledged, and is lost: {visible}"
    return visible


def _may_be_hole(path: Path, hole: tuple[int, int], expected: Expectation) -> bool:
    """Return True for a hole between two segments not yet reported as on disk: the later one was written first."""
    flushed = expected.least[-1].last + 1 if expected.least else 0
    if hole[1] <= expected.starts[1]:  # it was being deleted
        return True
    bases = [int(file.stem) for file in path.glob("*.log")]
    return not expected.keeps_pages and hole[0] >= flushed and any(hole[0] <= base <= hole[1] for base in bases)


def _check_bounds(path: Path, log: Log, found: list[Batch], expected: Expectation) -> None:
    low, high = expected.starts
    start, end = log.start_offset, log.end_offset
    lost = [batch for batch in expected.least if high <= batch.last < start]
    assert low <= start and not lost, f"the log starts at {start}, not within {expected.starts}, without {lost}"
    assert start <= high or not expected.keeps_pages, f"the log starts at {start}, not within {expected.starts}"
    behind = found[-1].last + 1 if found else start
    empty = (path / log_file_name(end)).exists() and end <= max(expected.ends)  # an empty segment shows it
    known = empty or end in expected.ends or _may_be_hole(path, (behind, end), expected)
    assert end == behind or end > behind and known, f"{log!r} ends behind {found[-1:]}"


def check_reading(log: Log, found: list[Batch]) -> None:
    """Records by iteration, by offset, by time, and committed ones."""
    start = log.start_offset
    data = [batch for batch in found if batch.kind == "data"]
    rows = [(batch.base, offset) for batch in data for offset in range(max(start, batch.base), batch.last + 1)]
    assert [record.offset for record in log] == [offset for _, offset in rows]
    assert [batch.header.base_offset for batch in log.batches()] == [batch.base for batch in found]
    for batch in data[:: max(1, len(data) // 7)]:
        assert log[max(batch.base, start)].offset == max(batch.base, start)
    # the producers are now those of a replay, except for transactions that began below the log start
    opened = [max(start, state.txn_first_offset) for state in _known(log).values() if state.txn_first_offset >= 0]
    stable = min(opened, default=log.end_offset)
    # where that is the log start, it counts as the first batch that ends behind it
    first = next((batch.base for batch in found if batch.last >= stable), log.end_offset)
    assert log.last_stable_offset in (stable, first), (log.last_stable_offset, stable, log, found)
    stable = log.last_stable_offset
    bases = set(committed(tuple(found), stable))
    wanted = [offset for base, offset in rows if base in bases]
    assert [record.offset for record in log.records(isolation="read_committed")] == wanted
    times = [(_timestamp(batch), max(start, batch.base)) for batch in found]
    for time, _ in times[:: max(1, len(times) // 7)]:
        first = next((timestamp, offset) for timestamp, offset in times if timestamp >= time)
        hit = log.offset_for_time(time)
        assert hit is not None and (hit.timestamp, hit.offset) == first, (hit, time, first)


def _timestamp(batch: Batch) -> int:
    return int.from_bytes(batch.data[35:43], "big")


def _known(log: Log) -> dict[int, Known]:
    states = log.opened_for_append().log.producers
    return {
        s.producer_id: Known(s.producer_epoch, s.last_sequence, s.last_offset, s.current_txn_first_offset)
        for s in states
    }


def check_producers(log: Log, found: list[Batch], lossy: bool = False) -> None:
    """Check that the producers of the remaining records are as after a replay.

    A snapshot may know more producers, and so may the log after a hole that a power cut left (`lossy`).
    """
    known = _known(log)
    if lossy and (_holes(found) or found and found[-1].last + 1 < log.end_offset):
        assert known.keys() >= producers(found).keys()
        return
    for producer_id, state in producers(found).items():
        assert producer_id in known, f"producer {producer_id} is forgotten: {found}"
        have = known[producer_id]
        if state.last_offset < 0:  # its data lies below the log start
            have = have._replace(last_sequence=-1, last_offset=-1)
        if 0 <= have.txn_first_offset < log.start_offset and state.txn_first_offset >= 0:
            have = have._replace(txn_first_offset=state.txn_first_offset)
        assert have == state, f"producer {producer_id}: {have}, a replay says {state}"


def _holes(found: list[Batch]) -> bool:
    return any(batch.last + 1 != following.base for batch, following in zip(found, found[1:], strict=False))


def check_epochs(log: Log, found: list[Batch]) -> None:
    entries = log.opened_for_append().log.leader_epochs
    for batch in found:
        at = [epoch for epoch, first in entries if first <= max(batch.base, log.start_offset)]
        assert at and at[-1] == batch.leader_epoch, f"{batch} is of epoch {batch.leader_epoch}: {entries}"


def _shown(log: Log) -> dict[str, Any]:
    return {
        "start": log.start_offset,
        "end": log.end_offset,
        "stable": log.last_stable_offset,
        "segments": [(segment.base_offset, segment.size) for segment in log.segments],
        "producers": _known(log),
        "epochs": [entry for entry in log.opened_for_append().log.leader_epochs if entry[1] < log.end_offset],
    }


def _same_shown(log: Log, before: dict[str, Any]) -> None:
    now = _shown(log)
    different = {name: (before[name], now[name]) for name in before if before[name] != now[name]}
    assert not different, f"opened once more, the log differs: {different}"


def _files(path: Path) -> Image:
    image = read_image(path.parent)
    image.pop(LOCK_FILE, None)
    return image


def _without(image: Image, *suffixes: str) -> Image:
    return {name: data for name, data in image.items() if not name.endswith(suffixes)}


def _same_files(before: Image, after: Image) -> None:
    absent = b"absent"
    different = {name for name in {*before, *after} if before.get(name, absent) != after.get(name, absent)}
    sizes = {name: (len(before.get(name) or b""), len(after.get(name) or b"")) for name in sorted(different)}
    assert not different, f"opened and closed once more, sizes of what changed: {sizes}"


def _check_recovery_changes_nothing(
    path: Path, settings: dict[str, Any], before: Image, shown: dict[str, Any], found: list[Batch], lossy: bool
) -> None:
    """An unclean opening of what a clean close left finds the same and leaves the same.

    Exceptions: the indexes, which a recovery refills, and what it learns or forgets of producers, transactions and
    epochs that have nothing above the log start.
    """
    (path.parent / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
    log = open_again(path, settings)
    try:
        check_producers(log, found, lossy)
        check_reading(log, found)
        known = ("producers", "stable", "epochs")
        _same_shown(log, {name: value for name, value in shown.items() if name not in known})
    finally:
        log.close()
    after = _files(path)
    derived = (CLEAN_SHUTDOWN_FILE, ".index", ".timeindex", ".txnindex", ".snapshot", LEADER_EPOCH_CHECKPOINT)
    _same_files(_without(before, *derived), _without(after, *derived))


def _check_append(path: Path, settings: dict[str, Any], end: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with open_again(path, settings) as log:
            assert log.append((b"after", b"the crash", NOW)).first_offset == end
            assert log[-1].value == b"the crash"
