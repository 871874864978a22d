"""Changes of a handover, kept beside the metadata so that it can be undone: `kafkalog.handover.json`.

A broker ignores plain files there. The journal is written before the first change and describes the newest handover.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kafkalog.errors import CorruptCheckpoint
from kafkalog.manager.cluster_metadata import ClusterMetadata
from kafkalog.storage.log_walk import log_chunks
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

JOURNAL_FILE: Final = "kafkalog.handover.json"
SAVED_BOOTSTRAP: Final = "kafkalog.bootstrap.checkpoint"
"""Copy of the file that a controller begins with, as it was before."""
VERSION: Final = 1
MAX_FILE_BYTES: Final = 64 << 20
_HINT: Final = "it is only needed to undo a handover: move it away"


class Journal(NamedTuple):
    """The newest handover.

    end_before, end_after: ends of the metadata log, both 0 if no controller had written to it; bootstrap_sha256:
    checksum of the bootstrap file as written, "" if it was not; topics: names that were added; carried: the previous
    topic id of each partition directory, None for none; is_done: all of it was written. A handover that continues an
    interrupted one is recorded as one with it: bootstrap_sha256 then has several checksums, separated by commas.
    """

    end_before: int
    end_after: int
    bootstrap_sha256: str
    topics: tuple[str, ...]
    carried: dict[str, str | None]
    is_done: bool = False

    def wrote(self, bootstrap: bytes) -> bool:
        """Return True if this is a bootstrap file that the handover wrote."""
        return digest(bootstrap) in self.bootstrap_sha256.split(",")

    def after(self, before: Journal) -> Journal:
        """Return the journal of this handover and the interrupted one `before`, which it continues."""
        sums = ",".join(filter(None, (before.bootstrap_sha256, self.bootstrap_sha256)))
        topics = tuple(dict.fromkeys((*before.topics, *self.topics)))
        carried = {**self.carried, **before.carried}
        return self._replace(end_before=before.end_before, bootstrap_sha256=sums, topics=topics, carried=carried)


def digest(content: bytes) -> str:
    """Return the SHA-256 sum in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def path_of(metadata: ClusterMetadata) -> str:
    """Return the path of the journal's file."""
    return os.path.join(metadata.path, JOURNAL_FILE)


def saved_path(metadata: ClusterMetadata) -> str:
    """Return the path of the copy of the file that a controller begins with."""
    return os.path.join(metadata.path, SAVED_BOOTSTRAP)


def write(metadata: ClusterMetadata, journal: Journal, fs: FileSystem) -> None:
    """Write the journal to disk. StorageError."""
    path = path_of(metadata)
    text = json.dumps({"version": VERSION, **journal._asdict()}, indent=1) + "\n"
    with os_errors("write the handover's journal", path):
        atomic_write(fs, path, text.encode())


def read_interrupted(metadata: ClusterMetadata, fs: FileSystem) -> Journal | None:
    """Return the newest handover if it was interrupted, and nothing else has changed the metadata since; else None."""
    try:
        found = read(metadata, fs)
    except CorruptCheckpoint:  # it cannot be undone, but handing over needs no journal
        return None
    if found is None or found.is_done:
        return None
    if metadata.is_fresh or metadata.end_offset == found.end_before:
        is_ours = found.end_before == (0 if metadata.is_fresh else metadata.end_offset)
    else:
        is_ours = metadata.end_offset <= found.end_after and wrote_all(found, metadata, fs)
    return found if is_ours else None


def wrote_all(journal: Journal, metadata: ClusterMetadata, fs: FileSystem) -> bool:
    """Return True if all later batches are of this handover; a controller begins with a control batch."""
    is_longer = metadata.end_offset > journal.end_before
    return is_longer and not any(kinds_between(metadata, journal.end_before, metadata.end_offset, fs))


def kinds_between(metadata: ClusterMetadata, start: int, end: int, fs: FileSystem) -> Iterator[bool]:
    """Yield for each batch of the metadata log between two offsets True if it is a control batch, as of an election."""
    with LogView(metadata.log_path, fs=fs) as view:
        for chunk in log_chunks(view, start, end):
            yield from (chunk.batches[row].is_control for row in range(chunk.first, chunk.last))


def mark_done(metadata: ClusterMetadata, fs: FileSystem) -> None:
    """Record that all of the newest handover was written, if there is one. StorageError."""
    try:
        found = read(metadata, fs)
    except CorruptCheckpoint:
        return
    if found is not None and not found.is_done:
        write(metadata, found._replace(is_done=True), fs)


def read(metadata: ClusterMetadata, fs: FileSystem) -> Journal | None:
    """Read the newest handover; None if there is none. CorruptCheckpoint, StorageError."""
    path = path_of(metadata)
    content = read_if_present(path, MAX_FILE_BYTES, "read the handover's journal", fs)
    if content is None:
        return None
    try:
        return _parse(json.loads(content.decode()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpoint(f"the handover's journal is damaged: {error!r}", path=path, hint=_HINT) from None


def _parse(data: Any) -> Journal:
    if data["version"] != VERSION:
        raise ValueError(f"unknown version {data['version']!r}, expected {VERSION}")
    before, after, sha = data["end_before"], data["end_after"], data["bootstrap_sha256"]
    topics, carried = data["topics"], data["carried"]
    if not (isinstance(before, int) and isinstance(after, int) and isinstance(sha, str) and 0 <= before <= after):
        raise ValueError("its offsets are invalid")
    if not all(isinstance(name, str) for name in topics):
        raise ValueError("its topics are not names")
    if not all(isinstance(one, str) and isinstance(id_, str | None) for one, id_ in carried.items()):
        raise ValueError("its directories are invalid")
    return Journal(before, after, sha, tuple(topics), dict(carried), bool(data.get("is_done", True)))


def remove(metadata: ClusterMetadata, bootstrap_files: Iterable[ClusterMetadata], fs: FileSystem) -> None:
    """Remove the journal and the saved copies of the files in `bootstrap_files`. StorageError."""
    for path in (path_of(metadata), *(saved_path(one) for one in bootstrap_files)):
        with os_errors("remove the handover's journal", path):
            fs.unlink_if_exists(path)
