"""Sound batches that recovery removes from a log, kept in a directory of the partition.

    <partition>/kafkalog-kept/<base offset>-<position>/    one opening's, named by the position of its cut
        <base offset>.log.from-<position>                  the rest of the segment that was cut, a copy
        <base offset>.log, .index, ...                     segments behind it, moved here
        manifest.json                                      their contents and the reason; written last

The copy and the manifest are on disk before anything is cut or moved. A broker ignores directories inside a
partition's directory. Inside the data directory it would take one for a partition and refuse to start.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kafkalog.errors import CorruptRecord, FormatError, NotAPartition, StorageError
from kafkalog.storage.names import INDEX_SUFFIXES, LOG_SUFFIX, base_name, log_file_name, parse_topic_partition_dir
from kafkalog.storage.recovery.sound_runs import SoundCount, count_batches, sound_runs
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import File, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
KEPT_DIRECTORY: Final = "kafkalog-kept"
MANIFEST: Final = "manifest.json"
_VERSION: Final = 1
_MAX_MANIFEST_BYTES: Final = 64 << 20
_COPY_BYTES: Final = 1 << 20


class KeptFile(NamedTuple):
    """A file with sound batches: a whole segment, or `size` bytes of a cut segment from `position` on."""

    name: str
    base_offset: int
    position: int
    size: int
    sound: SoundCount

    @property
    def is_copy(self) -> bool:
        """True for the rest of a segment that was cut, which is copied; a whole segment is moved."""
        return not self.name.endswith(LOG_SUFFIX)

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain JSON values."""
        found = {"name": self.name, "base_offset": self.base_offset, "position": self.position, "bytes": self.size}
        return {**found, **self.sound._asdict()}


class Loss(NamedTuple):
    """Sound batches an opening would remove: the log in `directory` ends at `offset`, byte `position` of a segment.

    `reason` says why; `files` hold the sound batches behind it, the rest of that segment first.
    """

    directory: str
    base_offset: int
    position: int
    offset: int
    reason: str
    files: tuple[KeptFile, ...]

    @property
    def path(self) -> str:
        """Path of the segment that is cut."""
        return os.path.join(self.directory, log_file_name(self.base_offset))

    @property
    def sound(self) -> SoundCount:
        """Sum over all sound batches."""
        return sum((one.sound for one in self.files), SoundCount())

    def refusal(self) -> CorruptRecord:
        """Return the error for an opening that must not remove sound records."""
        before = f"the last sound offset before it is {self.offset - 1}" if self.offset else "nothing is before it"
        return CorruptRecord(
            f"recovery would cut the log here because {self.reason}: {before}, and {self.sound} follow",
            path=self.path,
            offset=self.offset,
            position=self.position,
            hint="nothing was changed; `kafkalog verify` shows the damage; on_damage='recover' cuts the log there "
            "and keeps the batches behind (`kafkalog kept restore` restores them)",
        )


class Kept(NamedTuple):
    """Files kept by one opening: those present in the directory `path`, of the named partition."""

    path: str
    partition: str
    at_ms: int
    reason: str
    segment: str
    position: int
    offset: int
    files: tuple[KeptFile, ...]

    @property
    def name(self) -> str:
        """Name of the directory, by which it is selected."""
        return os.path.basename(self.path)

    @property
    def sound(self) -> SoundCount:
        """Sum over all sound batches."""
        return sum((one.sound for one in self.files), SoundCount())

    @property
    def size(self) -> int:
        """Bytes of all files with batches."""
        return sum(one.size for one in self.files)

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain JSON values, with `type` "kept"."""
        own = self._asdict() | {"name": self.name, "bytes": self.size, **self.sound._asdict()}
        return {"type": "kept", **own, "files": [one.as_json() for one in self.files]}


def find_loss(
    directory: str, base_offset: int, position: int, offset: int, reason: str, following: Iterable[int], fs: FileSystem
) -> Loss | None:
    """Return the sound batches lost if the log ends at `offset`, byte `position` of a segment; None if none.

    `following` are the base offsets of the later segments, which are removed too. StorageError.
    """
    tail = _sound_file(directory, base_offset, position, fs)
    parts = () if tail is None else (tail._replace(name=f"{tail.name}.from-{position}"),)
    files = (*parts, *whole_segments(directory, following, fs))
    return Loss(directory, base_offset, position, offset, reason, files) if files else None


def whole_segments(directory: str, base_offsets: Iterable[int], fs: FileSystem) -> tuple[KeptFile, ...]:
    """Return the segments that hold sound batches."""
    found = (_sound_file(directory, base, 0, fs) for base in base_offsets)
    return tuple(one for one in found if one is not None)


def _sound_file(directory: str, base_offset: int, position: int, fs: FileSystem) -> KeptFile | None:
    """Return the part of a segment from `position` to its last sound batch; None if no batch is sound."""
    name = log_file_name(base_offset)
    path = os.path.join(directory, name)
    with os_errors("search for sound batches", path):
        with fs.open_file(path, "r") as file:
            runs = list(sound_runs(file, position, file.size(), base_offset))
            if not runs:
                return None
            size = runs[-1].end - position
    return KeptFile(name, base_offset, position, size, count_batches(runs))


def keep(loss: Loss, fs: FileSystem, clock: Clock) -> str:
    """Copy and move the files of `loss` into a directory, and return its path. Whole segments are moved.

    StorageError: they could not be kept, and nothing was cut.
    """
    try:
        entry = _entry_for(loss, fs)
        try:
            for one in loss.files:
                if one.is_copy:
                    _copy(loss, one, os.path.join(entry, one.name), fs)
            _write_manifest(entry, loss, fs, clock)
        except BaseException:
            _discard(entry, loss, fs)
            raise
        for one in reversed(loss.files):
            if not one.is_copy:
                _move(loss.directory, entry, one, fs)
        fs.fsync_dir(entry)
        fs.fsync_dir(loss.directory)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"cannot keep {loss.sound} behind damage: {error.strerror or error}; nothing was cut",
            errno=error.errno,
            path=loss.path,
            position=loss.position,
            hint="free space on the disk, or give this user write permission there, then open the log again",
        ) from error
    _LOG.warning(
        "%s ends at offset %d, byte %d of %s: %s; %s behind it are kept in %s; `kafkalog kept restore` restores them",
        loss.directory, loss.offset, loss.position, os.path.basename(loss.path), loss.reason, loss.sound, entry,
    )  # fmt: skip
    return entry


def _entry_for(loss: Loss, fs: FileSystem) -> str:
    """Return the directory for the kept files; create it if missing.

    A directory left by an opening that crashed is reused: that opening cut nothing, so the same files are kept
    again.
    """
    root = os.path.join(loss.directory, KEPT_DIRECTORY)
    _make_directory(root, fs)
    first = entry = os.path.join(root, f"{base_name(loss.base_offset)}-{loss.position}")
    number = 1
    while not _may_take(entry, loss, fs):
        entry, number = f"{first}-{number}", number + 1
    _make_directory(entry, fs)
    return entry


def _make_directory(path: str, fs: FileSystem) -> None:
    with suppress(FileExistsError):
        fs.mkdir(path)
    fs.fsync_dir(os.path.dirname(path))


def _may_take(entry: str, loss: Loss, fs: FileSystem) -> bool:
    """Return True if the directory is free: it has no manifest, or it holds the same tail."""
    if not fs.exists(os.path.join(entry, MANIFEST)):
        return True
    present = set(fs.names(entry))
    for one in loss.files:
        if not one.is_copy and one.name in present:
            return False
        if one.is_copy and (one.name not in present or not _same_bytes(loss, one, os.path.join(entry, one.name), fs)):
            return False
    return any(one.is_copy for one in loss.files)


def _same_bytes(loss: Loss, one: KeptFile, kept: str, fs: FileSystem) -> bool:
    with fs.open_file(loss.path, "r") as source, fs.open_file(kept, "r") as copy:
        if copy.size() != one.size:
            return False
        return all(data == copy.pread(len(data), at) for at, data in _pieces(source, one))


def _pieces(source: File, one: KeptFile) -> Iterator[tuple[int, bytes]]:
    """Yield (position in the copy, bytes) for a part of a segment."""
    at = 0
    while at < one.size and (data := source.pread(min(_COPY_BYTES, one.size - at), one.position + at)):
        yield at, data
        at += len(data)


def _copy(loss: Loss, one: KeptFile, target: str, fs: FileSystem) -> None:
    """Copy the rest of the segment to `target` and sync it."""
    with fs.open_file(loss.path, "r") as source, fs.open_file(target, "create") as copy:
        copy.truncate(0)
        for at, data in _pieces(source, one):
            copy.pwrite(data, at)
        copy.sync()


def _write_manifest(entry: str, loss: Loss, fs: FileSystem, clock: Clock) -> None:
    """Write the manifest and sync it; include files that an opening before a crash has already moved."""
    names = {one.name for one in loss.files}
    before = read_kept(entry, fs)
    files = [*(one for one in (before.files if before else ()) if one.name not in names), *loss.files]
    manifest = {
        "version": _VERSION, "partition": os.path.basename(loss.directory), "at_ms": clock.milliseconds(),
        "reason": loss.reason, "segment": os.path.basename(loss.path), "position": loss.position,
        "offset": loss.offset, **sum((one.sound for one in files), SoundCount())._asdict(),
        "files": [one.as_json() for one in files],
    }  # fmt: skip
    atomic_write(fs, os.path.join(entry, MANIFEST), json.dumps(manifest, indent=1).encode())


def _discard(entry: str, loss: Loss, fs: FileSystem) -> None:
    """Delete the files of a failed attempt; the next attempt overwrites those that remain."""
    with suppress(OSError):
        if fs.exists(os.path.join(entry, MANIFEST)):
            return
        for one in loss.files:
            if one.is_copy:
                fs.unlink_if_exists(os.path.join(entry, one.name))
        fs.rmdir(entry)
        fs.rmdir(os.path.dirname(entry))


def _move(directory: str, entry: str, one: KeptFile, fs: FileSystem) -> None:
    """Sync a segment, then move it with its indexes; once it has left the log, no flush reaches it."""
    source = os.path.join(directory, one.name)
    with fs.open_file(source, "rw") as file:
        file.sync()
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        name = one.name.removesuffix(LOG_SUFFIX) + suffix
        try:
            fs.rename(os.path.join(directory, name), os.path.join(entry, name))
        except FileNotFoundError:
            if suffix == LOG_SUFFIX:
                raise


def list_kept(directory: str, fs: FileSystem) -> list[Kept]:
    """Return the kept entries of the partition in `directory`, oldest first.

    FormatError for a damaged manifest, StorageError.
    """
    root = os.path.join(directory, KEPT_DIRECTORY)
    try:
        names = sorted(fs.names(root))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError.from_os(error, "list the kept batches", path=root) from error
    found = [one for one in (read_kept(os.path.join(root, name), fs) for name in names) if one is not None]
    return sorted(found, key=lambda one: (one.at_ms, one.name))


def unlisted_kept(directory: str, listed: Iterable[Kept], fs: FileSystem) -> list[str]:
    """Return the paths of what lies beside the entries `listed`, without a manifest. StorageError."""
    root = os.path.join(directory, KEPT_DIRECTORY)
    with os_errors("list the kept batches", root):
        names = fs.names(root) if fs.is_directory(root) else []
    paths = {os.path.join(root, name) for name in names}
    return sorted(path for path in paths - {one.path for one in listed} if not fs.is_directory(path) or fs.names(path))


def read_kept(path: str, fs: FileSystem) -> Kept | None:
    """Return the manifest's entries for the files present; None without a manifest. Raises as `list_kept` does."""
    manifest = os.path.join(path, MANIFEST)
    try:
        content = fs.read_file(manifest, _MAX_MANIFEST_BYTES)
        present = set(fs.names(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError.from_os(error, "read the manifest", path=manifest) from error
    try:
        fields = json.loads(content)
        files = tuple(_file_of(one) for one in fields["files"])
        partition = str(fields["partition"])
        parse_topic_partition_dir(partition)  # it becomes the name of a directory
        return Kept(
            path, partition, int(fields["at_ms"]), str(fields["reason"]), str(fields["segment"]),
            int(fields["position"]), int(fields["offset"]), tuple(one for one in files if one.name in present),
        )  # fmt: skip
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, NotAPartition) as error:
        raise FormatError(
            f"cannot read the manifest of kept batches: {error}", path=manifest,
            hint="copy the files beside it to a partition directory, under names that end in .log: "
            "`kafkalog consume --on-damage skip` reads the records",
        ) from error  # fmt: skip


def _file_of(fields: dict[str, Any]) -> KeptFile:
    name = str(fields["name"])
    if os.path.basename(name) != name or not name:
        raise ValueError(f"{name!r} is not a file name")
    sound = SoundCount(*(int(fields[field]) for field in SoundCount._fields))
    return KeptFile(name, int(fields["base_offset"]), int(fields["position"]), int(fields["bytes"]), sound)
