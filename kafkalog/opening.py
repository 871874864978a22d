"""Opening a partition for writing: names, lock, topic settings, clean-shutdown marker, and closing well."""

from __future__ import annotations

import atexit
import os
import stat
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from kafkalog.config import LogConfig, key_for
from kafkalog.durability import BackgroundFlush, Sync, check_sync
from kafkalog.errors import (
    DirectoryLocked,
    IllegalState,
    LogClosed,
    NotAPartition,
    PartitionNotFound,
    StorageError,
    UncleanShutdown,
)
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.log_start import read_log_start, record_log_start
from kafkalog.manager.topics import TopicEntry, TopicStore
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import parse_base_offset, parse_dir, partition_dir_name
from kafkalog.storage.partition_metadata import read_partition_metadata, write_partition_metadata
from kafkalog.tools.directories import partitions_of
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from kafkalog.accumulator import Accumulator

_KNOWN_FILES = frozenset({"partition.metadata", "leader-epoch-checkpoint"})


class OpenedLog:
    """A partition open for writing, with its data directory's lock.

    `append_as_leader`, `append_as_follower` and `append_batches` are the log's own methods, until `close` or
    a fork puts functions in their place that refuse: so an append pays for no check. `after_append` is None,
    or what `sync` asks for after each append.

    Threads: all attributes may be read, and `close` called, from any thread.
    """

    __slots__ = (
        "__weakref__", "_flusher", "_fs", "after_append", "append_as_follower", "append_as_leader", "append_batches",
        "clock", "closed",
        "log", "log_dir", "milliseconds", "path", "refuse", "topic_partition", "writers",
    )  # fmt: skip

    def __init__(
        self, log: UnifiedLog, log_dir: LogDir, path: str, topic_partition: TopicPartition, clock: Clock, sync: Sync
    ) -> None:
        self.log = log
        self.log_dir = log_dir
        self.path = path
        self.topic_partition = topic_partition
        self.clock = clock
        self.milliseconds: Callable[[], int] = clock.milliseconds
        self.closed = False
        self.writers: set[Accumulator] = set()
        self.append_as_leader: Callable[..., Any] = log.append_as_leader
        self.append_as_follower: Callable[..., Any] = log.append_as_follower
        self.append_batches: Callable[..., Any] = log.append_batches
        self.refuse: Callable[..., NoReturn] = _not_closed
        self.after_append: Callable[[], object] | None = None
        self._flusher: BackgroundFlush | None = None
        if sync is True:
            self.after_append = log.flush
        elif sync is not False:
            self._flusher = BackgroundFlush(log.flush, sync, str(topic_partition))
            self.after_append = self._flusher.touch
        _opened.add(self)

    def append_built(self, batches: bytearray) -> None:
        """Appends batches that this library has just built, each as an append of its own, and syncs as asked."""
        self.append_batches(batches, check_records=False)
        if self.after_append is not None:
            self.after_append()

    def record_log_start(self) -> None:
        """Puts the log start on disk, in the data directory's checkpoint of log starts."""
        state = self.log.state
        base = state.segments[0].base_offset
        record_log_start(
            os.path.dirname(self.path), self.topic_partition, state.log_start_offset, base, fs=self._fs
        )

    def close(self) -> None:
        """Writes and syncs everything, closes the files and gives the lock back; harmless the second time.

        Writers that are still open are closed first. Only a close without error lets the data directory
        have its clean-shutdown marker back. A Ctrl-C waits until the close is complete.
        """
        with deferred_interrupts():
            if self.closed:
                return
            self._close()

    def __del__(self) -> None:
        # reached unclosed only where a Ctrl-C came between opening and handing over: a Log closes its own
        if not getattr(self, "closed", True):
            self.close()

    def _close(self) -> None:
        clean = False
        try:
            for writer in tuple(self.writers):
                writer.close()
            if self._flusher is not None:
                self._flusher.close()
            self.closed = True
            self._refuse(lambda: LogClosed(f"log {self.topic_partition} is closed"))
            self.log.close()
            clean = True
        finally:
            self.closed = True
            _opened.discard(self)
            try:
                self.log_dir.partition_closed(os.path.basename(self.path), clean)
            finally:
                self.log_dir.release()

    def _refuse(self, error: Callable[[], Exception]) -> None:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise error()

        self.append_as_leader = self.append_as_follower = self.append_batches = self.refuse = refuse
        self.after_append = None

    def disown(self) -> None:
        """Makes every write fail: this is a forked child, and the log belongs to its parent."""
        for writer in tuple(self.writers):
            writer.disown()
        self.closed = True
        self._refuse(
            lambda: IllegalState(
                f"log {self.topic_partition} belongs to the process that opened it",
                hint="open the log in the child process instead of before the fork",
            )
        )


def _not_closed() -> NoReturn:
    raise IllegalState("the log is open")


_opened: weakref.WeakSet[OpenedLog] = weakref.WeakSet()


def _close_at_exit() -> None:
    for opened in tuple(_opened):
        warnings.warn(
            f"log {opened.topic_partition} was still open when the interpreter ended", ResourceWarning, stacklevel=2
        )
        opened.close()


def _disown_in_child() -> None:
    for opened in tuple(_opened):
        opened.disown()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_in_child)


def open_for_append(
    path: str | os.PathLike[str],
    settings: Mapping[str, Any] | None = None,
    *,
    sync: Sync = False,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> OpenedLog:
    """The partition directory `path`, created where it is missing, open for writing.

    `settings` are topic settings by dotted or attribute name; they are kept for a partition that this
    call creates the topic of, and otherwise lie over the topic's own for this open only.

    Raises NotAPartition (a name that is none, a file, a directory with other content), PartitionNotFound
    (the data directory does not exist), DirectoryLocked, UncleanShutdown (it was not closed well; mode
    "r" reads it), UnknownConfig, ConfigError, StorageError.
    """
    check_sync(sync)
    given = {key_for(name).name: value for name, value in (settings or {}).items()}
    real = os.path.realpath(os.fspath(path))
    topic_partition = partition_of(real)
    with deferred_interrupts():
        log_dir = _lock_parent(real, fs)
        try:
            return _open_locked_dir(real, topic_partition, given, log_dir, sync, fs, clock)
        except BaseException:
            log_dir.release()
            raise


def partition_of(path: str) -> TopicPartition:
    """The partition that a path's last part names; NotAPartition unless it is its one right name."""
    name = os.path.basename(path)
    topic_partition, kind = parse_dir(name)
    if kind or partition_dir_name(topic_partition) != name:
        raise NotAPartition(
            f"{ascii(name)} is not the name of a live partition directory",
            path=path,
            hint=f"its name would be {partition_dir_name(topic_partition)}",
        )
    return topic_partition


def _lock_parent(path: str, fs: FileSystem) -> LogDir:
    parent = os.path.dirname(path)
    try:
        is_directory = stat.S_ISDIR(fs.stat(parent).st_mode)
    except FileNotFoundError as error:
        raise PartitionNotFound(
            "the data directory does not exist", path=parent, hint="create it first, or check the path"
        ) from error
    except NotADirectoryError:
        is_directory = False
    except OSError as error:
        raise StorageError.from_os(error, "open the data directory", path=parent) from error
    if not is_directory:
        raise NotAPartition(
            "a file where a data directory is meant", path=parent, hint="give DIR/<topic>-<number>, DIR a directory"
        )
    return LogDir.acquire(parent, fs=fs)


def _open_locked_dir(
    path: str,
    topic_partition: TopicPartition,
    given: Mapping[str, Any],
    log_dir: LogDir,
    sync: Sync,
    fs: FileSystem,
    clock: Clock,
) -> OpenedLog:
    name = os.path.basename(path)
    if any(opened.path == path and not opened.closed for opened in tuple(_opened)):
        raise DirectoryLocked(
            f"{name} is open for writing in this process already",
            path=path,
            hint="use the log that is open (it is thread-safe), or close it first",
        )
    create = not holds_segments(path, fs)
    if not create and not log_dir.vouches_for(name):
        raise UncleanShutdown(
            f"log {topic_partition} was not closed well and has to be recovered before it is written to",
            path=path,
            hint='mode "r" reads it; recovery comes with a later version, a broker does it at its next start',
        )
    store = TopicStore(os.path.dirname(path), fs=fs)
    topic = store.get(topic_partition.topic)
    config = LogConfig.from_mapping({**({} if topic is None else topic.settings), **given})
    log_dir.partition_opened(name, create)
    try:
        if create:
            topic = _recorded(store, topic, topic_partition, given, fs)
            _make_directory(path, topic.topic_id, fs)
        start = read_log_start(os.path.dirname(path), topic_partition, fs=fs)
        log = UnifiedLog.open(path, config, fs=fs, clock=clock, log_start_offset=0 if create else start)
    except BaseException:
        # no record was written: what there was is as whole as before, and what was to be made is taken away
        log_dir.partition_closed(name, not create or _removed(path, fs))
        raise
    return OpenedLog(log, log_dir, path, topic_partition, clock, sync)


def _recorded(
    store: TopicStore, topic: TopicEntry | None, topic_partition: TopicPartition, given: Mapping[str, Any], fs: FileSystem
) -> TopicEntry:
    """The topic's entry in the topics file, made or grown so that it has the partition."""
    name, count = topic_partition.topic, topic_partition.partition + 1
    if topic is not None:
        return store.ensure(name, partitions=count)
    # a topic that a broker made here has partitions but no entry: theirs is its id
    siblings = partitions_of(os.path.dirname(store.path), name, fs)
    ids = (read_partition_metadata(fs, path) for _, path in siblings)
    topic_id = next((one for one in ids if one is not None), None)
    count = max([count, *(other.partition + 1 for other, _ in siblings)])
    return store.ensure(name, partitions=count, settings=given, topic_id=topic_id)


def _removed(path: str, fs: FileSystem) -> bool:
    """Whether the files of a partition that could not be created are gone again."""
    try:
        if fs.exists(path):
            for name in fs.listdir(path):
                fs.unlink(os.path.join(path, name))
            fs.rmdir(path)
        return True
    except OSError:
        return False


def holds_segments(path: str, fs: FileSystem) -> bool:
    """Whether `path` is a directory with segment files; False where it is missing or as good as empty.

    NotAPartition for a file, and for a directory that holds other things but no segment.
    """
    try:
        names = fs.listdir(path)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise NotAPartition(
            "a file where a partition directory is meant", path=path, hint="move it away, or take another name"
        ) from None
    except OSError as error:
        raise StorageError.from_os(error, "read the partition directory", path=path) from error
    if any(parse_base_offset(name) is not None for name in names):
        return True
    strange = sorted(name for name in names if name.removesuffix(".tmp") not in _KNOWN_FILES)
    if strange:
        raise NotAPartition(
            f"the directory has no segment files but holds {ascii(strange[0])}"
            + (f" and {len(strange) - 1} more" if len(strange) > 1 else ""),
            path=path,
            hint="kafkalog writes only into partition directories and empty ones",
        )
    return False


def _make_directory(path: str, topic_id: str, fs: FileSystem) -> None:
    """The partition directory with its partition.metadata, on disk in the parent's entries as well."""
    try:
        try:
            fs.mkdir(path)
        except FileExistsError:
            pass
        fs.fsync_dir(os.path.dirname(path))
    except OSError as error:
        raise StorageError.from_os(error, "create the partition directory", path=path) from error
    write_partition_metadata(fs, path, topic_id)
