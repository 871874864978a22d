"""Every error kafkalog raises, with its Kafka wire code.

All derive from `KafkalogError` and have `path`, `offset`, `position`, `hint`, `code` and `retriable`. Each also derives
from a matching builtin (`LookupError`, `ValueError`, `OSError` ...), so that code without a reference to kafkalog can
catch it by kind.
"""

from __future__ import annotations

import errno as _errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

UNKNOWN_SERVER_ERROR = -1
NOT_REGULAR = "not a regular file"  # the reason of our own EINVAL
_OS_HINTS: dict[int | str | None, str] = {
    _errno.ENOSPC: "free space on this disk and try again; existing data is unchanged",
    _errno.EDQUOT: "the user's disk quota is used up: free space or raise it, then try again",
    _errno.EACCES: "run as the owner of the path, or give this user permission to read it, and for changes to write it",
    _errno.EROFS: "the file system is mounted read-only: remount it, or open with mode 'r'",
    _errno.EIO: "the disk reported an error: check it before writing again",
    _errno.EMFILE: "too many open files in this process: close some, or raise the limit (ulimit -n)",
    _errno.ENFILE: "too many open files on this machine: close some, or raise the system's limit",
    _errno.ENOTDIR: "part of the path is a file, not a directory: check the path",
    _errno.EISDIR: "the path is a directory, not a file: check the path",
    _errno.ENOENT: "check the path, also that of a symbolic link's target; the file may have been deleted by its owner",
    NOT_REGULAR: "a directory, pipe or device has the name of the file: move it away, and restore the file",
    _errno.ELOOP: "a symbolic link leads to itself: replace it with the file, or remove it",
    _errno.EFBIG: "it is too long for a file of its kind, the file system, or the process (ulimit -f)",
}
_OS_HINTS[_errno.EPERM] = _OS_HINTS[_errno.EACCES]


class KafkalogError(Exception):
    """Base class of all errors: a message, the place of the error, and a hint.

    `path`, `offset` (log offset) and `position` (byte in the file) are None if they do not apply. `str()` is the
    message, then file, offset and position, then the hint.
    """

    code: int = UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False
    default_hint: ClassVar[str | None] = None

    def __init__(
        self,
        message: str = "",
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        position: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else os.fspath(path)
        self.offset = offset
        self.position = position
        self.hint = self.default_hint if hint is None else hint

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in self._place() if value is not None)
        text = self.message or type(self).__name__
        if where:
            text = f"{text.rstrip('.')} ({where})"
        return f"{text.rstrip('.')}. Hint: {self.hint}" if self.hint else text

    def _place(self) -> tuple[tuple[str, object], ...]:
        return ("file", self.path), ("offset", self.offset), ("position", self.position)

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state |= {"errno": self.errno, "strerror": self.strerror, "filename": self.filename}
        if isinstance(self, ImportError):  # which stores its path outside of __dict__
            state |= {"path": self.path}
        return _rebuild, (type(self), self.message, state)


def _rebuild(kind: type[KafkalogError], message: str, state: dict[str, Any]) -> KafkalogError:
    """Return an error of `kind` with the attributes `state`; used by pickle and copy."""
    error = kind(message)
    for name, value in state.items():
        setattr(error, name, value)
    return error


class ApiError(KafkalogError):
    """An error with a code in Kafka's protocol."""


class UnknownServerError(ApiError):
    """Wire code -1, and any code without a class here (its number is in `code`)."""


# Reading and writing records
class OffsetOutOfRange(ApiError, LookupError):
    """The offset lies before the log start or after the log end."""

    code = 1


class CorruptRecord(ApiError, ValueError):
    """Bytes that are not a complete batch, or batches that contradict each other; with the nearest intact offsets."""

    code, retriable = 2, True
    last_sound_offset: int | None = None
    next_sound_offset: int | None = None

    def _place(self) -> tuple[tuple[str, object], ...]:
        offsets = self.last_sound_offset, self.next_sound_offset
        return *super()._place(), *zip(("last sound offset", "next sound offset"), offsets, strict=True)


class UnknownTopicOrPartition(ApiError, LookupError):
    """There is no such topic or partition."""

    code, retriable = 3, True


class PartitionNotFound(UnknownTopicOrPartition, FileNotFoundError):
    """The partition directory does not exist."""


class NotLeaderOrFollower(ApiError):
    """This node does not serve the partition."""

    code, retriable = 6, True


class RecordTooLarge(ApiError, ValueError):
    """One batch is larger than max.message.bytes."""

    code = 10


class InvalidTopic(ApiError, ValueError):
    """The topic name is invalid (valid: 1 to 249 of a-z A-Z 0-9 . _ - except . and ..)."""

    code = 17


class RecordBatchTooLarge(ApiError, ValueError):
    """The batches of one append together are larger than a segment."""

    code = 18


class NotEnoughReplicas(ApiError):
    """Fewer in-sync replicas than min.insync.replicas; nothing was written."""

    code, retriable = 19, True


class NotEnoughReplicasAfterAppend(ApiError):
    """Written, but to fewer in-sync replicas than min.insync.replicas."""

    code, retriable = 20, True


class Unauthorized(ApiError, PermissionError):
    """The principal may not do this to the topic."""

    code = 29


class GroupUnauthorized(Unauthorized):
    """The principal may not do this to the group."""

    code = 30


class ClusterUnauthorized(Unauthorized):
    """The principal may not do this to the cluster."""

    code = 31


class RecordRefused(ApiError, ValueError):
    """Records of a batch break a rule of the log; `record_errors` lists (index in the batch, reason)."""

    def __init__(self, message: str = "", *, record_errors: Sequence[tuple[int, str]] = (), **where: Any) -> None:
        super().__init__(message, **where)
        self.record_errors = tuple(record_errors)


class InvalidTimestamp(RecordRefused):
    """A record's time is outside what the topic accepts."""

    code = 32


class TopicExists(ApiError, FileExistsError):
    """A topic of that name (or one that collides with it in metric names) exists."""

    code = 36


class InvalidPartitions(ApiError, ValueError):
    """The partition count is invalid."""

    code = 37


class InvalidReplicationFactor(ApiError, ValueError):
    """The replication factor is not possible here."""

    code = 38


class InvalidReplicaAssignment(ApiError, ValueError):
    """The replicas of a partition cannot be assigned to the given nodes."""

    code = 39


class InvalidRequest(ApiError, ValueError):
    """The request is inconsistent."""

    code = 42


class InvalidRecordState(ApiError):
    """A record of a queue is no longer the caller's: its lock has expired, its session ended, or it is finished."""

    code = 121


class UnsupportedForFormat(ApiError, ValueError):
    """The message format (magic) does not support the request."""

    code = 43


UnsupportedForMessageFormat = UnsupportedForFormat


class PolicyViolation(ApiError):
    """A configured policy forbids it."""

    code = 44


# Producers, transactions, epochs
class OutOfOrderSequence(ApiError):
    """The batch's sequence number does not follow the producer's last one."""

    code = 45


class DuplicateSequence(ApiError):
    """The batch was written before, too long ago to return its offsets."""

    code = 46


class InvalidProducerEpoch(ApiError):
    """The producer's epoch is older than the last one seen."""

    code = 47


class InvalidTxnState(ApiError):
    """The transaction is not in a state that allows this."""

    code = 48


class CoordinatorFenced(ApiError):
    """The marker comes from a transaction coordinator that was replaced."""

    code = 52


class StorageError(ApiError, OSError):
    """The file system failed; `errno` is its code and `path` the file."""

    code, retriable = 56, True

    def __init__(self, message: str = "", *, errno: int | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.errno = errno
        self.strerror = os.strerror(errno) if errno is not None else None
        self.filename = self.path

    @classmethod
    def from_os(
        cls, error: OSError, doing: str, *, path: str | os.PathLike[str] | None = None, **where: Any
    ) -> StorageError:
        """Return the StorageError for `error` while `doing` something, with a hint; raise a KafkalogError as it is."""
        if isinstance(error, KafkalogError):
            raise error
        reason = error.strerror or str(error)
        if path is None and isinstance(error.filename, str):
            path = error.filename
        if where.get("hint") is None:
            where["hint"] = _OS_HINTS.get(reason, _OS_HINTS.get(error.errno))
        return cls(f"cannot {doing}: {reason}", errno=error.errno, path=path, **where)


class FencedLeaderEpoch(ApiError):
    """The leader epoch given is older than the partition's."""

    code, retriable = 74, True


class UnknownLeaderEpoch(ApiError):
    """The leader epoch given is newer than the partition's."""

    code, retriable = 75, True


class UnsupportedCompression(ApiError, ValueError):
    """The codec is unknown, or not allowed here."""

    code = 76


class OffsetNotAvailable(ApiError):
    """A new leader does not yet know its high watermark."""

    code, retriable = 78, True


class InvalidRecord(RecordRefused):
    """A record that breaks the format or a rule of the topic."""

    code = 87


class ThrottlingQuotaExceeded(ApiError):
    """A client creates or deletes partitions faster than its quota allows."""

    code, retriable = 89, True


class InconsistentTopicId(ApiError):
    """The directory belongs to a topic of the same name with another id."""

    code, retriable = 103, True


class MalformedRequest(KafkalogError, ValueError):
    """An invalid message of Kafka's protocol: its connection is closed, as by a broker."""


# Misuse, and states of the log layer
class IllegalArgument(KafkalogError, ValueError):
    """An argument that is never valid."""


class IllegalState(KafkalogError, RuntimeError):
    """A call that the object's current state does not allow."""


class InvalidOffset(IllegalArgument):
    """An offset that is not greater than the last one of an index, or negative."""


class IndexOffsetOverflow(IllegalState):
    """An offset more than 2^31 - 1 above the index's base offset."""


class SegmentOffsetOverflow(IllegalState):
    """An offset more than 2^31 - 1 above the segment's base offset."""


class UnexpectedAppendOffset(IllegalState):
    """A follower's batches start below the log end or use up all offsets; with their `first_offset`, `last_offset`."""

    def __init__(
        self, message: str = "", *, first_offset: int | None = None, last_offset: int | None = None, **where: Any
    ) -> None:
        super().__init__(message, **where)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetsOutOfOrder(IllegalArgument):
    """The offsets of a follower's batches do not increase."""


class CleaningAborted(IllegalState):
    """Cleaning of this partition was aborted or paused."""


class LogClosed(KafkalogError, ValueError):
    """The log (or writer, or view) is closed. On the wire it is KAFKA_STORAGE_ERROR."""

    code, retriable = 56, True


class NotAPartition(KafkalogError, ValueError):
    """The path is not a partition directory."""


class ReadOnlyLog(KafkalogError, io.UnsupportedOperation):
    """The log was opened for reading."""

    default_hint = "open it with mode 'a' to write"


class DirectoryLocked(KafkalogError, OSError):
    """Another process holds the data directory's lock."""

    default_hint = "stop the process that holds it (a broker, another writer), or open with mode 'r'"


class CursorInUse(KafkalogError, OSError):
    """Another reader, in this process or another, has the named cursor open."""

    default_hint = "close the other cursor first, or use another name: each name is the position of one reader"


class MissingRequirement(KafkalogError, RuntimeError):
    """A requirement of the call is not installed, here or on another node: a package, or Java."""

    default_hint = "install what is missing"


class MissingPackage(MissingRequirement, ImportError):
    """An optional Python package is not installed; the hint is the command that installs it."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} (it may have no wheel for a Python without the GIL)" if "t" in sys.abiflags else text


class JobFailed(KafkalogError, RuntimeError):
    """An external engine could not start or failed; the message quotes it."""


class ConfigError(KafkalogError, ValueError):
    """A configuration name or value that is not accepted (wire: INVALID_CONFIG)."""

    code = 40


class UnknownConfig(ConfigError, TypeError):
    """There is no configuration of that name."""


# Local files
class FormatError(KafkalogError, ValueError):
    """A file of the data directory does not have its format."""


class CorruptIndex(FormatError):
    """An index file that contradicts itself; it is rebuilt from the .log file."""


class CorruptSnapshot(FormatError):
    """A producer snapshot that cannot be read; an older one is used."""


class CorruptCheckpoint(FormatError):
    """A checkpoint, metadata or topics file that cannot be read."""


class CorruptBackup(FormatError):
    """A backup whose manifest cannot be read, or whose files changed since they were stored."""


class CorruptStagedFile(FormatError):
    """A file staged by a Spark task is missing or was changed: nothing of it was appended."""

    default_hint = "restore the original file, or run the write again to stage its records again"


class UnsafeFileSystem(UserWarning):
    """A data directory is on a file system whose locks or syncs may be unreliable; only a warning."""


def _coded(kind: type[ApiError]) -> Iterator[tuple[int, type[ApiError]]]:
    for child in kind.__subclasses__():
        if "code" in vars(child) and child.code > 0:
            yield child.code, child
        yield from _coded(child)


_BY_CODE = dict(_coded(ApiError))


def from_code(code: int, message: str = "", **where: Any) -> ApiError:
    """Return the error of wire code `code`; for a code without a class, UnknownServerError with that `code`.

    Raises ValueError for 0, which means success on the wire.
    """
    if code == 0:
        raise ValueError("wire code 0 is success, not an error")
    kind = _BY_CODE.get(code, UnknownServerError)
    error = kind(message or f"server error {code}", **where)
    if kind is UnknownServerError:
        error.code = code
    return error
