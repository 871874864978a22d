"""Copies of data directories in use, beside the directory that is restored from them.

The copies are a directory of backups. A restore writes its request there before it publishes files, and moves its
record beside the copies before it removes them: the leftovers of a killed restore show how far it came.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kafkalog.backup.manifest import Manifest, encode_manifest, parse_manifest
from kafkalog.backup.restore_at.plan import Moment
from kafkalog.backup.store import MARKER, BackupStore, StoreLock
from kafkalog.errors import CorruptBackup, DirectoryLocked, IllegalArgument, KafkalogError, StorageError
from kafkalog.util.fileio import FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

COPIES: Final = ".kafkalog-restore"
"""Suffix of the directory beside the restored one in which data directories in use are copied first."""
_DONE: Final = ".done"
"""Suffix of the record beside that directory once all is restored, while the copies are removed."""
_REQUEST: Final = "kafkalog.restore"
"""Name of the file in that directory that says what is restored from it, and where."""
_RECORD: Final = "kafkalog.restored"
"""Name of the record before it is moved beside the directory."""
_RECORD_START: Final = b"kafkalog restored, version 1\n"
_MAX_BYTES: Final = 1 << 30


class Copies:
    """The copies for a restore of `sources` into `places` at a moment. Threads: one at a time."""

    def __init__(self, sources: Sequence[str], places: Sequence[str], moment: Moment, fs: FileSystem) -> None:
        self.path = places[0] + COPIES
        self._record = self.path + _DONE
        self._sources = sources
        self._moment = moment
        self._request = os.fsencode("\n".join([*sources, *places, f"at {moment.at_ms} by {moment.by}\n"]))
        self._fs = fs

    @property
    def exists(self) -> bool:
        """True if the directory exists and has kafkalog's marker. StorageError."""
        with os_errors("read the state of the restore", self.path):
            return self._fs.exists(os.path.join(self.path, MARKER))

    @property
    def is_begun(self) -> bool:
        """True if a run began to publish this restore: it may even have finished."""
        return self.exists and self._read(os.path.join(self.path, _REQUEST)) == self._request

    def find(self) -> str | None:
        """Return the id of the copies that a killed restore of these directories left, if they can be used.

        The oldest copies: a partly published restore can only continue from these; later ones may have been refused.
        """
        if not self.exists:
            return None
        store = BackupStore(self.path, fs=self._fs)
        for one in store.ids():
            with suppress(CorruptBackup):
                found = store.manifest(one)
                is_late = found.created_ms >= self._moment.at_ms
                if is_late and [each.source for each in found.directories] == self._sources:
                    return found.id
        return None

    def begin(self) -> None:
        """Record that this restore is to be published. StorageError."""
        self._write(_REQUEST, self._request)

    def finish(self, restored: Manifest) -> None:
        """Record that the restore is complete, then remove the copies. StorageError, IllegalArgument."""
        self._check_record()
        self._write(_RECORD, _RECORD_START, self._request, encode_manifest(restored))
        with os_errors("write the state of the restore", self._record):
            self._fs.rename(os.path.join(self.path, _RECORD), self._record)
            self._fs.fsync_dir(os.path.dirname(self._record))
        with suppress(StorageError, DirectoryLocked):  # the next run removes what is left
            self.clear()

    def finished(self) -> Manifest | None:
        """Return the record of a killed run of this restore; IllegalArgument if the record is not kafkalog's."""
        content = self._check_record()
        start = _RECORD_START + self._request
        return parse_manifest(content[len(start) :], self._record) if content.startswith(start) else None

    def clear(self) -> None:
        """Remove the copies of a complete restore, then its record, after checking that it is kafkalog's.

        StorageError, IllegalArgument, DirectoryLocked while another run makes copies there.
        """
        if not self._check_record():
            return
        with os_errors("read the state of the restore", self.path):
            is_ours = not self._fs.exists(self.path) or self.exists or not self._fs.names(self.path)
        if not is_ours:
            raise IllegalArgument(
                "the directory has no marker of kafkalog's and is not removed", path=self.path,
                hint="move it away, and run the restore again",
            )  # fmt: skip
        try:
            self._remove()
            self._fs.unlink_if_exists(self._record)
        except KafkalogError:
            raise
        except OSError as error:
            raise StorageError.from_os(error, "remove the copies of a restore", path=self.path) from error

    def discard(self) -> None:
        """Remove the copies of a failed restore, if they have kafkalog's marker."""
        if self.exists:
            with suppress(OSError, KafkalogError):  # another run makes copies there
                self._remove()

    def _remove(self) -> None:
        """Remove everything under the lock, the marker last, since it identifies leftovers. OSError, KafkalogError."""
        if not self._fs.exists(self.path):
            return
        if not self.exists:  # it is empty
            self._fs.rmdir(self.path)
            return
        with StoreLock(self.path, fs=self._fs) as store:
            store.remove_all()

    def _check_record(self) -> bytes:
        """Return the record beside the copies, empty without one; IllegalArgument if it is not kafkalog's."""
        content = b"?" if self._fs.is_directory(self._record) else self._read(self._record)
        if content is not None and not content.startswith(_RECORD_START):
            raise IllegalArgument(
                "this is no record of a restore by kafkalog and is not removed", path=self._record,
                hint="move it away, and run the restore again",
            )  # fmt: skip
        return content or b""

    def _read(self, path: str) -> bytes | None:
        with os_errors("read the state of the restore", path):
            return self._fs.read_file(path, _MAX_BYTES) if self._fs.exists(path) else None

    def _write(self, name: str, *content: bytes) -> None:
        path = os.path.join(self.path, name)
        with os_errors("write the state of the restore", path):
            atomic_write(self._fs, path, *content)
