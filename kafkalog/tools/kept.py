"""Kept parts of logs that recovery had to cut (docs/recovery.md): list, restore, remove."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument, PartitionNotFound
from kafkalog.inspect.values import moment
from kafkalog.manager.deletion import remove_tree
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.partition import Found, open_partition
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.names import RESTORE_STAGING, index_file_name, log_file_name, time_index_file_name
from kafkalog.storage.recovery import kept
from kafkalog.storage.recovery.kept import Kept
from kafkalog.storage.recovery.sound_runs import SoundCount, SoundRun, count_batches, sound_runs
from kafkalog.tools.directories import Path, partitions_below, path_list
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem, make_directories
from kafkalog.util.os_errors import os_errors

__all__ = ["Kept", "Restored", "list_kept", "remove_kept", "restore_kept"]

_COPY_BYTES: Final = 1 << 20


class Restored(NamedTuple):
    """A partition that was restored to the directory `path`; `doubled` is the number of duplicate batches left out."""

    partition: str
    path: str
    sound: SoundCount
    doubled: int

    def __str__(self) -> str:
        duplicates = f"; {self.doubled} batches were kept twice" if self.doubled else ""
        return f"{self.partition}: {self.sound} restored to {self.path}{duplicates}"

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain values, with `type` "restored"."""
        own = {"type": "restored", "partition": self.partition, "path": self.path, "doubled": self.doubled}
        return {**own, **self.sound._asdict()}


class _Part(NamedTuple):
    """A run of sound batches in a kept file."""

    path: str
    run: SoundRun
    owner: Kept


def list_kept(
    paths: Path | Iterable[Path], *, topics: Sequence[str] = (), entries: Sequence[str] = (), fs: FileSystem = OS
) -> list[Kept]:
    """Return the kept entries of data directories or partition directories, of these topics and names (none: all).

    PartitionNotFound if a path does not exist, or no entry has such a name; UnknownTopicOrPartition, FormatError for an
    unreadable manifest, StorageError.

    >>> list_kept("data")
    []
    """
    given = path_list(paths)
    found = [one for place in partitions_below(given, topics, fs) for one in kept.list_kept(place.path, fs)]
    missing = sorted({*entries} - {one.name for one in found})
    if missing:
        known = ", ".join(one.name for one in found)
        raise PartitionNotFound(
            f"no kept entry has the name {ascii(missing[0])}", path=os.pathsep.join(given),
            hint=f"the entries are {known}" if known else "nothing is kept there",
        )  # fmt: skip
    return [one for one in found if not entries or one.name in entries]


def describe(one: Kept) -> str:
    """Return one line that describes a kept entry."""
    return (
        f"{one.partition}  {one.name}  {one.sound}, {one.size} bytes; kept {moment(one.at_ms // 1000 * 1000)}: "
        f"the log ended at offset {one.offset}, byte {one.position} of {one.segment}, since {one.reason}"
    )


def restore_kept(
    paths: Path | Iterable[Path],
    to: Path,
    *,
    topics: Sequence[str] = (),
    entries: Sequence[str] = (),
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> list[Restored]:
    """Write the sound batches that were kept to partition directories below `to`, a separate data directory.

    Offsets stay as they were, indexes are rebuilt from the batches, and the kept files stay in place. Arguments and
    errors as for `list_kept`; IllegalArgument if `to` has such a partition, or is in a directory that is read, or if
    offsets were kept twice with different records: then `entries` must choose one.
    """
    by_partition: dict[str, list[Kept]] = {}
    for one in list_kept(paths, topics=topics, entries=entries, fs=fs):
        by_partition.setdefault(one.partition, []).append(one)
    target = os.path.abspath(os.fspath(to))
    plans = {name: _plan(found, fs) for name, found in by_partition.items()}
    for name, found in by_partition.items():
        _check_target(target, name, found, fs)
    return [_restore_partition(target, name, *plan, fs, clock) for name, plan in plans.items()]


def remove_kept(
    paths: Path | Iterable[Path],
    *,
    apply: bool = False,
    topics: Sequence[str] = (),
    entries: Sequence[str] = (),
    fs: FileSystem = OS,
) -> list[Kept]:
    """Return the kept entries, and remove them with `apply`; arguments and errors as for `list_kept`.

    The logs are not touched.
    """
    found = list_kept(paths, topics=topics, entries=entries, fs=fs)
    for one in found if apply else ():
        with os_errors("remove the kept records", one.path):
            for name in sorted(set(fs.names(one.path)) - {kept.MANIFEST}):
                if not fs.is_directory(os.path.join(one.path, name)):
                    fs.unlink_if_exists(os.path.join(one.path, name))
            remove_tree(one.path, fs)  # the manifest last: without it the entry is not listed
            root = os.path.dirname(one.path)
            if not fs.names(root):
                fs.rmdir(root)
    return found


def _check_target(target: str, name: str, found: Sequence[Kept], fs: FileSystem) -> None:
    for one in found:
        source = os.path.realpath(os.path.join(one.path, "..", "..", ".."))
        if os.path.commonpath([source, os.path.realpath(target)]) == source:
            raise IllegalArgument(
                "the target is inside the data directory itself", path=target, hint="give another directory"
            )
    if fs.exists(os.path.join(target, name)):
        raise IllegalArgument(
            f"the directory already has {name}", path=target, hint="restore to a new directory"
        )


def _plan(found: Sequence[Kept], fs: FileSystem) -> tuple[list[_Part], int]:
    """Return the runs to write, by offset, and the number of duplicate batches left out.

    Runs that overlap are cut where the other one begins: a batch at the wrong place begins a new run.
    """
    pending = [(part.run.first_offset, number, part) for number, part in enumerate(_parts(found, fs))]
    heapify(pending)
    chosen: list[_Part] = []
    doubled, number = 0, len(pending)
    while pending:
        part = heappop(pending)[2]
        if pending and pending[0][0] <= part.run.last_offset:
            other = pending[0][2]
            if part.owner != other.owner:
                raise IllegalArgument(
                    f"offset {other.run.first_offset} was kept twice: in {part.owner.name} and {other.owner.name}",
                    path=part.owner.path, hint="restore one of them (--entry), or each to a directory of its own",
                )  # fmt: skip
            part, rest = _split(part, other.run.first_offset, fs)
            if rest is not None:
                number += 1
                heappush(pending, (rest.run.first_offset, number, rest))
        last = chosen[-1].run.last_offset if chosen else -1
        if part.run.first_offset > last:
            chosen.append(part)
            continue
        rest = _batches_after(part, last, fs)
        doubled += part.run.batches - (rest.run.batches if rest is not None else 0)
        if rest is not None:
            number += 1
            heappush(pending, (rest.run.first_offset, number, rest))
    return chosen, doubled


def _split(part: _Part, offset: int, fs: FileSystem) -> tuple[_Part, _Part | None]:
    """Return the batches of a run that end below `offset`, at least the first one, and the rest."""
    run = part.run
    with fs.open_file(part.path, "r") as file:
        batches = FileSlice(file, run.start, run.end - run.start).batches()
        next(batches)
        for batch in batches:
            if batch.last_offset >= offset:
                (head,) = sound_runs(file, run.start, batch.position, run.first_offset)
                (rest,) = sound_runs(file, batch.position, run.end, head.last_offset + 1)
                return part._replace(run=head), part._replace(run=rest)
    return part, None


def _parts(found: Sequence[Kept], fs: FileSystem) -> Iterator[_Part]:
    for one in found:
        for kept_file in one.files:
            path = os.path.join(one.path, kept_file.name)
            with os_errors("read the kept records", path), fs.open_file(path, "r") as file:
                for run in sound_runs(file, 0, file.size(), kept_file.base_offset):
                    yield _Part(path, run, one)


def _batches_after(part: _Part, last_offset: int, fs: FileSystem) -> _Part | None:
    """Return the batches of a run that begin above an offset; None if there are none."""
    run = part.run
    with fs.open_file(part.path, "r") as file:
        for batch in FileSlice(file, run.start, run.end - run.start).batches():
            if batch.base_offset > last_offset:
                (rest,) = sound_runs(file, batch.position, run.end, batch.base_offset)
                return part._replace(run=rest)
    return None


def _restore_partition(
    target: str, name: str, parts: Sequence[_Part], doubled: int, fs: FileSystem, clock: Clock
) -> Restored:
    """Write a segment for each run, then open the log once, which rebuilds indexes, epochs and producers.

    After an error nothing remains, and after a kill no partition: a part of the records would pass for all of them.
    """
    path = os.path.join(target, name)
    with os_errors("restore the kept records", path):
        make_directories(fs, target)
    with LogDir.acquire(target, fs=fs) as log_dir:
        _write_segments(target, name, parts, fs)
        try:
            log = open_partition(log_dir, path, LogConfig(), Found(False), fs=fs, clock=clock)
            log.close()
        except BaseException:
            with suppress(OSError):
                remove_tree(path, fs)
            raise
        log_dir.partition_closed(name, True)
    return Restored(name, path, count_batches(part.run for part in parts), doubled)


def _write_segments(target: str, name: str, parts: Sequence[_Part], fs: FileSystem) -> None:
    """Write the segments to a staging directory, which becomes the partition by one rename."""
    path, staging = os.path.join(target, name), os.path.join(target, RESTORE_STAGING)
    staged = os.path.join(staging, name)
    with os_errors("restore the kept records", path):
        try:
            remove_tree(staging, fs)
            make_directories(fs, staged)
            for part in parts:
                base = part.run.first_offset
                _write(part, os.path.join(staged, log_file_name(base)), fs)
                for index in (index_file_name(base), time_index_file_name(base)):  # filled as the log is opened
                    fs.open_file(os.path.join(staged, index), "create").close()
            fs.fsync_dir(staged)
            fs.rename(staged, path)
        finally:
            with suppress(OSError):
                remove_tree(staging, fs)
        fs.fsync_dir(target)


def _write(part: _Part, target: str, fs: FileSystem) -> None:
    with fs.open_file(part.path, "r") as source, fs.open_file(target, "exclusive") as copy:
        at = part.run.start
        while at < part.run.end and (data := source.pread(min(_COPY_BYTES, part.run.end - at), at)):
            copy.pwrite(data, at - part.run.start)
            at += len(data)
        copy.sync()
