"""Opening damaged and undamaged directories as the reference does: offsets, segments, producers, files.

Where the reference itself does harm, ours does the safe thing instead, and `harm` says what: one line each.
"""

import hashlib
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptCheckpoint
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.producer_snapshot import format_snapshot, parse_snapshot
from kafkalog.storage.recovery.kept import KEPT_DIRECTORY
from tests.golden_cases import GOLDEN, VECTORS, cases, each_entry
from tests.mock_time import MockClock, MockScheduler

pytestmark = pytest.mark.golden
EXPIRATION_MS = 604_800_000
SWAPPED = GOLDEN / VECTORS / "swap_cleaned_files"


def partition_directory(name: str) -> Path:
    """The partition of the log directory that the entries of `recovery` and `swap` begin with."""
    kinds = ("logdir-partition", "crash-partition")
    return next(case.directory for kind in kinds for case in cases(kind) if case.name == name)


def prepare(entry: dict[str, Any], tmp_path: Path) -> Path:
    folder = tmp_path / entry["partition"]
    shutil.copytree(partition_directory(entry["partition"]), folder)
    for step in entry.get("steps", ()):
        path = folder / step["file"]
        if step["op"] == "copy":
            undamaged = step["from"].startswith("../orig/")
            source = (partition_directory(entry["partition"]) if undamaged else SWAPPED) / Path(step["from"]).name
            shutil.copy(source, path)
            continue
        if step["op"] == "rename":
            path.rename(folder / step["to"])
        elif step["op"] == "delete":
            path.unlink()
        elif step["op"] == "write":
            path.write_bytes(bytes.fromhex(step["hex"]))
        elif step["op"] == "append":
            with path.open("ab") as file:
                file.write(bytes.fromhex(step["hex"]))
        elif step["op"] == "truncate":
            with path.open("r+b") as file:
                file.truncate(step["size"])
        else:
            assert step["op"] == "flip", step
            data = bytearray(path.read_bytes())
            data[step["pos"]] ^= step["xor"]
            path.write_bytes(data)
    return folder


def opened(entry: dict[str, Any], folder: Path) -> UnifiedLog:
    clock = MockClock(entry["clock"])
    return UnifiedLog.open(
        folder,
        LogConfig.from_stored(entry["config"]),
        clock=clock,
        scheduler=MockScheduler(clock),
        log_start_offset=entry["logStartOffset"],
        recovery_point=entry["recoveryPoint"],
        had_clean_shutdown=entry["cleanShutdown"],
        high_watermark_follows_end=False,
        producer_expiration_ms=EXPIRATION_MS,
    )


def state_of(log: UnifiedLog) -> dict[str, Any]:
    segments = []
    for segment in log.segments:
        offsets, times = segment.offset_index, segment.time_index
        segments.append({
            "baseOffset": segment.base_offset,
            "size": segment.size,
            "offsetIndex": [list(offsets.entry(i)) for i in range(offsets.entries)],
            "timeIndex": [list(times.entry(i)) for i in range(times.entries)],
            "txnIndex": [list(e)[1:] for e in segment.txn_index.entries()],
            "largestTimestamp": segment.largest_timestamp,
        })
    return {
        "logStartOffset": log.log_start_offset,
        "logEndOffset": log.log_end_offset,
        "highWatermark": log.high_watermark,
        "lastStableOffset": log.last_stable_offset,
        "recoveryPoint": log.recovery_point,
        "segments": segments,
        "leaderEpochs": [list(e) for e in log.leader_epochs],
        "producers": [
            {
                "producerId": p.producer_id,
                "epoch": p.producer_epoch,
                "coordinatorEpoch": p.coordinator_epoch,
                "lastTimestamp": p.last_timestamp,
                "currentTxnFirstOffset": None if p.current_txn_first_offset < 0 else p.current_txn_first_offset,
                "batches": [
                    dict(zip(("firstSeq", "lastSeq", "firstOffset", "lastOffset", "timestamp"), b, strict=True))
                    for b in p.batches
                ],
            }
            for p in log.producers
        ],
    }


def listed(folder: Path) -> list[tuple[str, Path]]:
    """The files by name; a segment that was kept goes by the name that the reference gives it up with."""
    found = [(path.name, path) for path in folder.iterdir() if path.name != KEPT_DIRECTORY]
    for path in folder.glob(f"{KEPT_DIRECTORY}/*/*"):
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex"):
            found.append((f"{path.name}.deleted", path))
    return sorted(found)


def names(folder: Path) -> list[list[Any]]:
    return [[name, path.stat().st_size] for name, path in listed(folder)]


def digests(folder: Path) -> list[list[Any]]:
    return [[name, p.stat().st_size, hashlib.sha256(p.read_bytes()).hexdigest()] for name, p in listed(folder)]


def same_files(folder: Path, expected: dict[str, bytes]) -> bool:
    """Whether a directory holds just these files; entries of a snapshot have no order."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(found) == sorted(expected)
    for name, data in found.items():
        if name.endswith(".snapshot"):
            assert sorted(parse_snapshot(data)) == sorted(parse_snapshot(expected[name])), name
        else:
            assert data == expected[name], name
    return True


def orders_of_snapshot(path: Path) -> set[str]:
    """The digests of a snapshot file in every order of its entries, which has no meaning (format.md section 7)."""
    entries = parse_snapshot(path.read_bytes())
    return {hashlib.sha256(format_snapshot(order)).hexdigest() for order in itertools.permutations(entries)}


def without_file_times(state: dict[str, Any]) -> dict[str, Any]:
    """A segment without a timestamp tells its file's time, which is another one in each copy."""
    segments = [s if s["timeIndex"] else {**s, "largestTimestamp": None} for s in state["segments"]]
    return {**state, "segments": segments}


def harm(entry: dict[str, Any]) -> str:
    """Where the reference does harm: what it does then; empty where it does none."""
    result, steps = entry["result"], entry.get("steps", ())
    if "state" not in result:
        return "it does not start"
    if any(step["op"] == "truncate" and step["file"].endswith(".log.swap") for step in steps):
        return "it puts a damaged replacement in the place of sound records"
    indexes = [s for s in result["state"]["segments"] if len(set(map(tuple, s["offsetIndex"]))) < len(s["offsetIndex"])]
    touched = {Path(step["file"]).suffix for step in steps}
    if entry["cleanShutdown"]:
        if indexes or touched & {".index", ".timeindex"} or any(s["file"].endswith(".log.swap") for s in steps):
            return "it believes an index that is missing, empty or damaged"
        if any(step["op"] == "truncate" and step["file"].endswith(".log") for step in steps):
            return "it loses records that are there, because the marker says that nothing is torn"
        if touched == {".snapshot"}:
            return "it forgets its producers and open transactions where no snapshot is left"
    elif any(step["op"] == "flip" and step["file"].endswith(".log") for step in steps):
        return "it takes or gives up records by an offset that was damaged"
    return ""


def check_exactly(entry: dict[str, Any], folder: Path) -> None:
    result = entry["result"]
    log = opened(entry, folder)
    try:
        assert without_file_times(state_of(log)) == without_file_times(result["state"])
        assert names(folder) == result["namesAfterOpen"]
    except BaseException:
        log.close_handlers()
        raise
    log.close()
    found = digests(folder)
    assert [f[:2] for f in found] == [f[:2] for f in result["filesAfterClose"]]
    for mine, theirs in zip(found, result["filesAfterClose"], strict=True):
        assert mine == theirs or mine[0].endswith(".snapshot") and theirs[2] in orders_of_snapshot(folder / mine[0])


def batches_there(folder: Path, start: int) -> list[tuple[int, int]]:
    """(first, last) offset of the sound batches in all segments, up to the first damage after `start`."""
    found: list[tuple[int, int]] = []
    for path in sorted(folder.glob("*.log")):
        for batch in scan(path.read_bytes(), file_mode=True):
            if not batch.is_valid or (found and batch.last_offset <= found[-1][1]):
                return found
            if int(path.stem) <= batch.base_offset <= int(path.stem) + 2**31 - 1:
                found.append((batch.base_offset, batch.last_offset))
            else:
                return found
    return found


def check_safer(entry: dict[str, Any], folder: Path) -> None:
    """Every sound batch before the first damage is there, the indexes say what the data says, and it closes well."""
    expected = batches_there(folder, entry["logStartOffset"])
    if expected and expected[-1][1] + 1 < entry["logStartOffset"]:
        expected = []  # what is sound ends below the log start: the log begins there anew (LOAD-13)
    log = opened(entry, folder)
    there = [
        (batch.base_offset, batch.last_offset) for segment in log.segments for batch in segment.records.batches()
    ]
    assert there[: len(expected)] == expected
    assert log.log_end_offset == there[-1][1] + 1 if there else log.log_start_offset
    for segment in log.segments:
        sound = {batch.last_offset: batch for batch in segment.records.batches(check_crc=True)}
        assert all(batch.is_valid for batch in sound.values())
        offsets, times = segment.offset_index, segment.time_index
        assert all(sound[o].position == p for o, p in map(offsets.entry, range(offsets.entries)))
        assert all(t <= max(b.max_timestamp for b in sound.values()) and o in sound
                   for t, o in map(times.entry, range(times.entries)))
        largest = max((b.max_timestamp for b in sound.values()), default=-1)
        assert largest < 0 or segment.largest_timestamp == largest
    log.close()


def check(entry: dict[str, Any], tmp_path: Path) -> None:
    folder = prepare(entry, tmp_path)
    if "leader-epoch-checkpoint malformed" in entry.get("name", "") or "state" not in entry["result"]:
        before = digests(folder)
        try:
            opened(entry, folder).close()
        except CorruptCheckpoint:  # the reference does not open it either
            assert digests(folder) == before
            return
        shutil.rmtree(folder)
        folder = prepare(entry, tmp_path)
    try:
        check_exactly(entry, folder)
    except (AssertionError, KeyError):
        if not harm(entry):
            raise
        shutil.rmtree(folder)
        check_safer(entry, prepare(entry, tmp_path))


@each_entry("recovery")
def test_recovery(entry: dict[str, Any], tmp_path: Path) -> None:
    """LOAD-7 to LOAD-14, LOAD-20 to LOAD-29, LOAD-31, LOAD-33."""
    check(entry, tmp_path)


@each_entry("swap")
def test_swap(entry: dict[str, Any], tmp_path: Path) -> None:
    """LOAD-1 to LOAD-7."""
    check(entry, tmp_path)


@each_entry("crash_load")
def test_crash_load(entry: dict[str, Any], tmp_path: Path) -> None:
    """LOAD-10, LOAD-29."""
    check(entry, tmp_path)
