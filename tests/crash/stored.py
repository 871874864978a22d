"""Stores whose cleaner works in the background, and what has to be in one whatever ended it.

Several topics, one of which loses old records to retention and to deletions, each with a random history. A
store is prepared, closed and reopened, and continues: the test is about its cleaner after that.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.errors import KafkalogError
from kafkalog.log.log import Log
from kafkalog.manager.checkpoints import CLEANER_OFFSET_FILE
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from tests.cleaner.histories import NOW, History, random_history
from tests.crash.cleaned import CLEANED_MODES, check_content, located
from tests.crash.disk import MODES, DiskFS, Mode, read_image, write_image
from tests.crash.faulty import MOST_CALLS, Fault
from tests.faults import FaultFS
from tests.held_store import Held

BEGUN_MS: Final = NOW - 10_000_000
"""The time of the first records; each offset is 100 ms later."""
AGED: Final = "aged"
PARTITIONS: Final = (
    TopicPartition(AGED, 0), TopicPartition("few", 0), TopicPartition("many", 0), TopicPartition("many", 1),
)  # fmt: skip
LOOK_MS: Final = 15_000
Acknowledged = Mapping[TopicPartition, int]
"""So many events of each partition's history were acknowledged."""


def histories_of(seed: int, events: int) -> dict[TopicPartition, History]:
    """Return the history of each partition."""
    made = {}
    for key in PARTITIONS:
        made[key] = random_history(Random(f"store {seed} {key}"), least=events, most=events)
    return made


def make_topics(dirs: LogDirs, histories: Mapping[TopicPartition, History], now_ms: int, old_offsets: int) -> None:
    """Compacted topics; in one of them the records below `old_offsets` are old, and go with their segment."""
    for name in dict.fromkeys(key.topic for key in PARTITIONS):
        keys = [key for key in PARTITIONS if key.topic == name]
        settings: dict[str, Any] = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": 0,
            "index.interval.bytes": 150,
            "internal.segment.bytes": histories[keys[0]].segment_bytes,
        }
        if name == AGED:
            settings |= {"cleanup.policy": "compact,delete", "retention.ms": now_ms - BEGUN_MS - 100 * old_offsets}
        dirs.create_topic(name, len(keys), settings)


def cleaner_offsets(root: Path) -> Mapping[TopicPartition, int]:
    """Return the offsets in the checkpoint; raise an error if it is damaged."""
    return OffsetCheckpoint(str(root / CLEANER_OFFSET_FILE)).read()


def check_store(
    root: Path,
    histories: Mapping[TopicPartition, History],
    now_ms: int,
    *,
    appended: Acknowledged | None = None,
    deleted: int = 0,
) -> None:
    """The store opens, no record that must outlive a clean is lost, and its checkpoint says what is so.

    `appended`: what was acknowledged; None: all. Records of AGED below `deleted` somebody may have deleted.
    """
    clean_to = cleaner_offsets(root)
    for number in range(2):
        with Held(root, now_ms=now_ms, log_cleaner_enable=False) as held:
            left = sorted(str(name.relative_to(root)) for name in root.rglob("*.*") if _is_left(name))
            assert not left, f"left of a clean: {left}"
            for key, history in histories.items():
                log, many = held.dirs[key], None if appended is None else appended[key]
                first = max(deleted, _old_below(held.dirs, history, now_ms)) if key.topic == AGED else 0
                with located(f"{key}, opened for the {number + 1}. time"):
                    _check(log, history, clean_to.get(key, 0), many, first)
                    if number:
                        done = held.dirs.clean(*key)
                        assert done.end_offset is not None and done.end_offset >= clean_to.get(key, 0)
                        _check(log, history, done.end_offset, many, first)
                        report = log.verify(deep=True)
                        assert report.ok, str(report)
                        end = log.end_offset
                        assert log.append([(b"after", b"the crash", NOW)]).first_offset == end


def _is_left(file: Path) -> bool:
    return file.suffix in (".cleaned", ".swap", ".deleted")


def _old_below(dirs: LogDirs, history: History, now_ms: int) -> int:
    """Retention may delete nothing from this offset of AGED on."""
    retention_ms = int(dirs.topics[AGED].settings["retention.ms"])
    return max((row.offset + 1 for row in history.rows if row.timestamp < now_ms - retention_ms), default=0)


def _check(log: Log, history: History, clean_to: int, appended: int | None, first: int) -> None:
    check_content(log, history, True, appended=appended, first=first)
    assert clean_to <= log.end_offset, f"clean up to {clean_to}, it ends at {log.end_offset}"
    below = [r.key for r in log.records(isolation="read_committed") if r.offset < clean_to]
    assert None not in below and len(below) == len(set(below)), f"not clean up to {clean_to}: {below}"


class Prepared(NamedTuple):
    """Content of a closed store, and how much of each history; it is opened with `cleaning`."""

    histories: Mapping[TopicPartition, History]
    appended: dict[TopicPartition, int]


def prepared(root: Path, seed: int) -> Prepared:
    """A store in `root`, a part of it cleaned in the background."""
    rng = Random(f"prepared {seed}")
    histories = histories_of(seed, 30)
    appended = {}
    with Held(root, now_ms=NOW) as held:
        make_topics(held.dirs, histories, NOW, 15)
        for key, history in histories.items():
            appended[key] = rng.randint(0, 20)
            history.append(held.dirs[key], 0, appended[key])
        if rng.random() < 0.7:
            held.pass_time(LOOK_MS, LOOK_MS)
    return Prepared(histories, appended)


def cleaning(root: Path, ready: Prepared, fs: FaultFS) -> tuple[Held, Acknowledged]:
    """The store open, about to be cleaned, and what of it was flushed: half of the rest, all of which is appended."""
    held = Held(root, now_ms=NOW, fs=fs)
    flushed = {}
    for key, history in ready.histories.items():
        log, before = held.dirs[key], ready.appended[key]
        flushed[key] = (before + len(history.events)) // 2
        history.append(log, before, flushed[key])
        log.roll()
        log.flush()
        history.append(log, flushed[key])
        log.roll()
    return held, flushed


def cut_store(directory: Path, seed: int, modes: Sequence[Mode] = CLEANED_MODES, share: float = 1.0) -> tuple[int, int]:
    """(changes of the disk, states checked): the power cut at a share of the changes by the cleaner, and at the end."""
    root = directory / "data"
    root.mkdir()
    ready = prepared(root, seed)
    fs = DiskFS(root)
    held, flushed = cleaning(root, ready, fs)
    rng, seen, changes = Random(f"cut {seed}"), set[bytes](), 0
    images = directory / "images"

    def on_change() -> None:
        nonlocal changes
        changes += 1
        for mode in modes if rng.random() < share else ():
            image = fs.disk.image(mode, rng)
            digest = hashlib.sha1(repr(sorted(image.items())).encode()).digest()
            if digest not in seen:
                seen.add(digest)
                write_image(image, images / f"change {changes}, {mode.name}")

    fs.on_change = on_change
    held.pass_time(LOOK_MS, LOOK_MS)
    fs.on_change = lambda: None
    assert held.dirs.cleaner.totals.cleans, "nothing was cleaned"
    held.dirs.close()
    check_store(root, ready.histories, NOW + LOOK_MS)
    for image in sorted(images.iterdir()):
        with located(f"seed {seed}, {image.name}"):
            check_store(image, ready.histories, NOW + LOOK_MS, appended=flushed)
        shutil.rmtree(image)
    return changes, len(seen)


def fail_store(directory: Path, seed: int, fault: Fault, step: int = 1) -> int:
    """The number of calls of the cleaner that were failed in turn: all, or each `step`-th."""
    root = directory / "data"
    root.mkdir()
    ready = prepared(root, seed)
    before = read_image(root)
    for nth in range(1 + seed % step, MOST_CALLS, step):
        place = directory / f"{nth}"
        with located(f"seed {seed}, call {nth}: {fault.name}"):
            fired = _one_failure(place, write_image(before, place / "data"), ready, fault, nth)
        if not fired:
            return (nth - 1) // step
        shutil.rmtree(place)
    raise AssertionError(f"a cleaner still fails at call {MOST_CALLS}")


def _one_failure(place: Path, root: Path, ready: Prepared, fault: Fault, nth: int) -> bool:
    """True where there was an `nth` call to fail: what is still open goes on, and nothing is lost."""
    fs = DiskFS(root)
    held, flushed = cleaning(root, ready, fs)
    rule = fault.at(fs, nth)
    try:
        held.pass_time(LOOK_MS, LOOK_MS)
        fs.heal()
        write_image(fs.disk.image(MODES[0], Random(nth)), place / "cut")
        write_image(read_image(root), place / "killed")
        held.pass_time(2 * LOOK_MS, LOOK_MS)
        assert rule.fired or held.dirs.cleaner.totals.cleans, "nothing was cleaned"
        _check_open(held, ready.histories, bool(rule.fired))
    finally:
        try:
            held.dirs.close()
        except KafkalogError as error:
            assert rule.fired, f"it does not close: {error!r}"
    for name, appended in (("cut", flushed), ("killed", None), ("data", None)):
        with located(name):
            check_store(place / name, ready.histories, NOW + 3 * LOOK_MS, appended=appended)
    return bool(rule.fired)


def _check_open(held: Held, histories: Mapping[TopicPartition, History], may_refuse: bool) -> None:
    for key, history in histories.items():
        try:
            log = held.dirs[key]
            _check(log, history, 0, None, log.end_offset)
        except KafkalogError as error:
            assert may_refuse, f"{key} fails without a fault: {error!r}"


def acknowledged(lines: Iterable[bytes]) -> dict[TopicPartition, int]:
    """Return the events that a writer reported as appended: `appended topic partition events`."""
    found = dict.fromkeys(PARTITIONS, 0)
    for line in lines:
        what, *given = line.decode().split()
        if what == "appended":
            topic, partition, events = given
            found[TopicPartition(topic, int(partition))] = int(events)
    return found
