"""Cleans that end badly: a power cut at each change of the disk, a failing call at each call, and what is found then.

A random history is written and flushed, the log is cleaned, and more is written: what is tried is the clean after that.
Images go to files at once; of many only their places are kept.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from kafkalog.errors import KafkalogError
from kafkalog.log.log import Log
from kafkalog.util.fileio import OS, FileSystem
from tests.cleaner.histories import NOW, RETENTION_MS, History, folded, opened, random_history
from tests.crash.disk import MODES, DiskFS, Mode, read_image, write_image
from tests.crash.faulty import MOST_CALLS, Fault
from tests.crash.power import TOPIC
from tests.mock_time import MockClock

CLEANED_MODES = (MODES[0], MODES[1], MODES[3], MODES[4], MODES[6])


class Prepared(NamedTuple):
    """A log that is about to be cleaned, its history, and when it is."""

    log: Log
    history: History
    clock: MockClock
    held: bool
    """Whether its tombstones must stay."""


def prepared(root: Path, seed: int, fs: FileSystem = OS) -> Prepared:
    """The log of a random history in the data directory `root`, flushed; a part of it was cleaned before."""
    rng = Random(f"clean {seed}")
    history = random_history(rng, most=30, close_all=rng.random() < 0.5)
    clock = MockClock(NOW)
    log = opened(root / TOPIC, clock, fs, internal_segment_bytes=history.segment_bytes)
    first = rng.randint(0, len(history.events))
    history.append(log, 0, first)
    held = True
    if first and rng.random() < 0.7:
        log.roll()
        log.compact()
        held = rng.random() < 0.5
        clock.sleep(0 if held else RETENTION_MS)
    history.append(log, first)
    log.roll()
    log.flush()
    return Prepared(log, history, clock, held)


def check_cleaned(path: Path, history: History, held: bool, *, appended: int | None = None) -> None:
    """The log in `path` opens, and no record that must outlive a clean is lost; AssertionError, KafkalogError.

    `appended`: so many events of the history were acknowledged; None: all.
    """
    for number in range(2):
        with opened(path, MockClock(NOW), internal_segment_bytes=history.segment_bytes) as log:
            left = sorted(name.name for name in path.iterdir() if name.suffix in (".cleaned", ".swap"))
            assert not left, f"left of a clean: {left}"
            check_content(log, history, held, appended=appended)
            if number:
                log.roll()
                log.compact()
                check_content(log, history, held, appended=appended)
        report = log.verify(deep=True)
        assert report.ok, str(report)
    with opened(path, MockClock(NOW)) as log:
        end = log.end_offset
        assert log.append([(b"after", b"the crash", NOW)]).first_offset == end


def check_content(log: Log, history: History, held: bool, *, appended: int | None = None, first: int = 0) -> None:
    """Check that a log's records are from its history and complete; it may begin at `first`, or before."""
    start = log.start_offset
    assert start <= first, f"it begins at {start}, {first} would be right"
    known = history if appended is None else history.first(appended)
    rows = {row.offset: row for row in history.rows}
    found = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in log]
    assert all(one[0] in rows and one == rows[one[0]].shown for one in found), "a record that was never appended"
    offsets = [one[0] for one in found]
    assert offsets == sorted(set(offsets)), f"offsets do not rise: {offsets}"
    there = set(offsets)
    committed = [rows[r.offset] for r in log.records(isolation="read_committed")]
    assert not [row for row in committed if history.aborted(row)], "a record of an aborted transaction came back"
    newest = {row.key: row for row in committed}
    for key, row in known.latest(known.stable).items():
        if row.offset >= start and (row.value is not None or held):
            lost = f"{row} is lost: there are {sorted(there)}"
            assert row.offset in there or newest.get(key, row).offset > row.offset, lost
    stable = history.below(log.end_offset).stable  # what was not acknowledged may be there as well
    open_rows = [row.offset for row in known.rows if row.offset >= max(known.stable, stable, start)]
    assert there.issuperset(open_rows), "records above the last stable offset are lost"
    if appended is None and not start:
        assert folded((row.key, row.value) for row in committed) == history.folded()
        assert log.end_offset == history.end
        last = {state.producer_id: state.last_sequence for state in log.opened_for_append().log.producers}
        assert {producer: last.get(producer) for producer in history.last_sequences} == history.last_sequences


def cut_clean(directory: Path, seed: int, modes: Sequence[Mode] = CLEANED_MODES) -> tuple[int, int]:
    """(changes of the disk, states checked): a clean, the power cut at each of its changes, and at its end."""
    root = directory / "data"
    root.mkdir()
    fs = DiskFS(root)
    ready = prepared(root, seed, fs)
    rng, seen, changes = Random(f"cut {seed}"), set[bytes](), 0
    images = directory / "images"

    def on_change() -> None:
        nonlocal changes
        changes += 1
        for mode in modes:
            image = fs.disk.image(mode, rng)
            digest = hashlib.sha1(repr(sorted(image.items())).encode()).digest()
            if digest not in seen:
                seen.add(digest)
                write_image(image, images / f"change {changes}, {mode.name}")

    fs.on_change = on_change
    ready.log.compact()
    on_change()
    fs.on_change = lambda: None
    ready.log.close()
    for image in sorted(images.iterdir()):
        with located(f"seed {seed}, {image.name}"):
            check_cleaned(image / TOPIC, ready.history, ready.held)
        shutil.rmtree(image)
    return changes, len(seen)


def fail_clean(directory: Path, seed: int, fault: Fault, step: int = 1) -> int:
    """The number of calls of a clean that were failed in turn: all, or each `step`-th."""
    for nth in range(1, MOST_CALLS, step):
        place = directory / f"{nth}"
        if not _one_failure(place, seed, fault, nth):
            return (nth - 1) // step
        shutil.rmtree(place)
    raise AssertionError(f"a clean still fails at call {MOST_CALLS}")


def _one_failure(place: Path, seed: int, fault: Fault, nth: int) -> bool:
    """True where there was an `nth` call to fail: the log says so or is cleaned, and goes on or refuses."""
    root = place / "data"
    root.mkdir(parents=True)
    fs = DiskFS(root)
    ready = prepared(root, seed, fs)
    log, history = ready.log, ready.history
    rule = fault.at(fs, nth)
    with located(f"seed {seed}, call {nth}: {fault.name}"), ExitStack() as stack:
        stack.callback(_give_up, log)
        try:
            log.compact()
        except KafkalogError as error:
            assert rule.fired, f"it failed without a fault: {error!r}"
        fs.heal()
        write_image(fs.disk.image(MODES[0], Random(nth)), place / "cut")
        write_image(read_image(root), place / "killed")
        try:
            check_content(log, history, ready.held)
            log.compact()
            check_content(log, history, ready.held)
        except KafkalogError as error:
            assert rule.fired, f"it fails without a fault: {error!r}"
        try:
            log.close()
        except KafkalogError as error:
            assert rule.fired, f"it does not close: {error!r}"
        for name in ("cut", "killed", "data"):
            check_cleaned(place / name / TOPIC, history, ready.held)
    return bool(rule.fired)


def _give_up(log: Log) -> None:
    with suppress(KafkalogError):
        log.close()


class located:
    """Says where a finding was."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AssertionError | KafkalogError | OSError):
            raise AssertionError(f"{self._where}: {type(error).__name__}: {error}") from error
