"""Group commit: threads share a sync, no early acknowledgement, a failed sync fails all. Syncs are counted."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import kafkalog
from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog.errors import KafkalogError, LogClosed, StorageError
from kafkalog.log.open_writable import open_for_append
from kafkalog.storage.group_commit import Gathering, GroupSync
from kafkalog.types import LogAppendInfo
from tests.gates import SyncGate, Threads, wait_until
from tests.raw_batches import batches

THREADS = 8


@pytest.fixture
def fs() -> Iterator[SyncGate]:
    created = SyncGate()
    yield created
    created.open_gate()


def open_gated(path: Path, fs: SyncGate, *, sync: bool = True) -> kafkalog.Log:
    created = open_for_append(path / "t-0", sync=sync, fs=fs)
    fs.look = lambda: created.log.log_end_offset
    return kafkalog.Log(created.log, created)


def group_of(log: kafkalog.Log) -> GroupSync:
    assert log._opened is not None
    return log._opened.group


def test_those_who_append_during_a_sync_share_the_next(tmp_path: Path, fs: SyncGate) -> None:
    with open_gated(tmp_path, fs) as log:
        fs.shut()
        threads = Threads()
        threads.start(partial(log.append, b"first"))
        fs.wait_inside()
        for number in range(THREADS - 1):
            threads.start(partial(log.append, b"%d" % number))
        wait_until(lambda: group_of(log).waiting == THREADS - 1)
        assert (fs.syncs, log.end_offset) == (1, THREADS)
        fs.open_gate()
        offsets = [info.first_offset for info in threads.join() if isinstance(info, LogAppendInfo)]
        assert sorted(offsets) == list(range(THREADS))
        assert fs.syncs == 2


def test_handles_of_a_writer_share_the_next_sync(tmp_path: Path, fs: SyncGate) -> None:
    with open_gated(tmp_path, fs, sync=False) as log, log.writer(sync=True) as writer:
        fs.shut()
        threads = Threads()
        threads.start(lambda: writer.append(b"first").result())
        fs.wait_inside()
        for _ in range(THREADS - 1):
            threads.start(lambda: writer.append(b"v").result())
        wait_until(lambda: writer._core.gates.waiting == THREADS)
        fs.open_gate()
        assert sorted(map(str, threads.join())) == [str(n) for n in range(THREADS)]
        assert fs.syncs == 2
        assert [batch.header.count for batch in log.batches()] == [1, THREADS - 1]


@pytest.mark.parametrize("how", ["append", "writer", "two writers"])
def test_nobody_is_told_before_a_sync_that_began_after_the_append(tmp_path: Path, fs: SyncGate, how: str) -> None:
    """And fewer syncs than commits are made, while every thread has only one record on its way."""
    commits = 40
    with open_gated(tmp_path, fs, sync=how == "append") as log:
        writers = [log.writer(sync=True) for _ in range({"append": 0, "writer": 1, "two writers": 2}[how])]
        early = []

        def run(number: int) -> None:
            for turn in range(commits):
                if writers:
                    offset = writers[number % len(writers)].append(b"%d %d" % (number, turn)).result()
                else:
                    offset = log.append(b"%d %d" % (number, turn)).first_offset
                if fs.covered <= offset:
                    early.append(offset)

        threads = Threads()
        for number in range(THREADS):
            threads.start(partial(run, number))
        assert threads.join() == [None] * THREADS
        assert early == []
        assert fs.syncs < THREADS * commits
        for writer in writers:
            writer.close()
        values = [record.value for record in log]
        assert sorted(values) == sorted(b"%d %d" % (n, t) for n in range(THREADS) for t in range(commits))


def test_a_thread_alone_makes_one_sync_a_commit_and_no_other(tmp_path: Path, fs: SyncGate) -> None:
    """Indexes and the directory wait for a flush: what they say can be found out from the records."""
    calls = []
    with open_gated(tmp_path, fs) as log:
        log.append(b"the directory is synced once for a new segment")
        real = fs.fsync
        fs.fsync = lambda fd: calls.append(fd) or real(fd)  # type: ignore[method-assign, assignment]
        before = fs.syncs
        for _ in range(100):
            log.append(b"x" * 1000)
        assert (fs.syncs - before, calls) == (100, [])
        assert log._opened is not None and log._opened.log.active_segment.offset_index.entries > 10
        assert log._opened.log.recovery_point == 0
        log.flush()
        assert log._opened.log.recovery_point == 101


@pytest.mark.parametrize("how", ["append", "writer"])
def test_a_failed_sync_fails_all_who_waited_and_the_log(tmp_path: Path, fs: SyncGate, how: str) -> None:
    """The kernel may have dropped the pages: the next sync would succeed and mean nothing, so there is none."""
    log = open_gated(tmp_path, fs, sync=how == "append")
    writer = log.writer(sync=True) if how == "writer" else None
    commit = log.append if writer is None else lambda value: writer.append(value).result()
    commit(b"good")
    fs.shut()
    fs.inside = threading.Semaphore(0)
    threads = Threads()
    threads.start(partial(commit, b"first"))
    fs.wait_inside()
    for _ in range(THREADS - 1):
        threads.start(partial(commit, b"v"))
    wait_until(lambda: (group_of(log).waiting if writer is None else writer._core.gates.waiting - 1) == THREADS - 1)
    fs.error = OSError(errno.EIO, os.strerror(errno.EIO))
    syncs = fs.syncs
    fs.open_gate()
    for error in threads.join():
        assert isinstance(error, StorageError) and error.errno == errno.EIO
    assert fs.syncs == syncs, "a failed sync was tried again"
    fs.error = None
    with pytest.raises(StorageError):
        commit(b"later")
    for end in (*([] if writer is None else [writer.close]), log.close):
        with pytest.raises(KafkalogError):
            end()
    assert fs.syncs == syncs
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with kafkalog.open(tmp_path / "t-0", "a") as again:
        assert next(iter(again)).value == b"good"


def test_records_before_one_that_cannot_be_written_are_synced_before_they_are_told(
    tmp_path: Path, fs: SyncGate
) -> None:
    """Two batches go to the log at once, the second is refused: the first must not be acknowledged early."""
    log = open_gated(tmp_path, fs, sync=False)
    writer = log.writer(sync=True, batch_bytes=200)
    fs.shut()
    handles = [writer.append(b"x" * 100)]
    fs.wait_inside()
    handles += [writer.append(b"y" * 100), writer.append(b"z" * 100)]
    assert log._opened is not None
    real = log._opened.append_ready

    def refuse(batch: ReadyBatch) -> LogAppendInfo | None:
        if b"z" * 100 in batch.data:  # one letter may stand in a checksum as well
            raise StorageError("no space", errno=errno.ENOSPC, path="x")
        return real(batch)

    log._opened.append_ready = refuse
    fs.open_gate()
    with pytest.raises(StorageError):
        handles[2].result()
    assert (handles[0].result(), handles[1].result(), fs.covered) == (0, 1, 2)
    with pytest.raises(StorageError):
        writer.close()
    log.close()


def test_an_append_goes_on_while_a_sync_hangs(tmp_path: Path, fs: SyncGate) -> None:
    """No sync runs under the log's lock (KAFKA-15046)."""
    with open_gated(tmp_path, fs, sync=False) as log:
        log.append(b"0")
        fs.shut()
        threads = Threads()
        threads.start(log.flush)
        fs.wait_inside()
        for number in range(1, 20):
            log.append(b"%d" % number)
        assert log.roll() == 20
        assert log.delete_before(5) == 5
        log.append(b"20")
        assert [record.value for record in log.records(5)] == [b"%d" % number for number in range(5, 21)]
        assert threads.outcomes == [None] and log._opened is not None and log._opened.log.recovery_point <= 5
        fs.open_gate()
        assert threads.join() == [None]


def test_no_file_is_synced_under_the_lock(tmp_path: Path) -> None:
    """Whatever is done to a log: its lock is free whenever a file or a directory is synced."""
    held: list[str] = []
    synced = 0

    class Watch(SyncGate):
        log = None

        def _look(self, fd: int) -> None:
            nonlocal synced
            synced += 1
            if self.log is not None and self.log._core.lock.locked():
                held.append(os.readlink(f"/proc/self/fd/{fd}"))

        def fdatasync(self, fd: int) -> None:  # type: ignore[override]
            self._look(fd)
            os.fdatasync(fd)

        def fsync(self, fd: int) -> None:  # type: ignore[override]
            self._look(fd)
            os.fsync(fd)

    fs = Watch()
    created = open_for_append(
        tmp_path / "t-0",
        {"internal_segment_bytes": 500, "retention_bytes": 2000, "flush_messages": 7},
        sync=True,
        fs=fs,
    )
    fs.log = created.log  # type: ignore[assignment]
    log = kafkalog.Log(created.log, created)
    for number in range(60):
        created.log.leader_epoch = number // 20
        log.append(b"%d" % number * 10)
    with log.writer(sync=True) as writer:
        writer.append(b"v").result()
    log.flush()
    log.delete_before(10)
    created.log.delete_old_segments()
    log.truncate_to(log.end_offset - 20)
    log.append(b"again")
    created.log.truncate_fully_and_start_at(500)
    log.append(b"again")
    log.roll()
    log.close()
    assert held == [] and synced > 60


def test_a_ctrl_c_waits_until_the_commit_is_decided(tmp_path: Path, fs: SyncGate) -> None:
    with open_gated(tmp_path, fs) as log:
        threads = Threads()
        fs.shut()

        def interrupt() -> None:
            fs.wait_inside()
            signal.raise_signal(signal.SIGINT)
            fs.open_gate()

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            threads.start(interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.append(b"v")
                signal.raise_signal(0)  # never reached without a pending interrupt
        finally:
            signal.signal(signal.SIGINT, before)
        threads.join()
        assert fs.covered == 1
        log.append(b"w")
        assert (fs.covered, group_of(log).waiting) == (2, 0)


class Waits(Gathering):
    """A sync waits so many seconds for others, whatever the last one took."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.expected = 99
        self.waited_s = seconds

    def synced(self, began: float, ended: float, threads: int) -> None:
        pass

    def seconds(self, present: int) -> float:
        return self.waited_s


class Appends:
    """Appends of a name each, which note what thread made them, and a group that waits until four threads are there."""

    def __init__(self) -> None:
        self.created: dict[str, int] = {}
        self.syncs: list[int] = []
        self.threads = Threads()
        self.group = GroupSync(lambda: self.syncs.append(threading.get_ident()))
        self.group._gathering = Waits(30.0)
        self.group._gathering.expected = 4

    def commit(self, name: str) -> str | None:
        return self.group.commit(partial(self._append, name))

    def _append(self, name: str) -> str | None:
        self.created[name] = threading.get_ident()
        if name == "refused":
            raise ValueError(name)
        return None if name == "nothing" else name

    def start_others(self) -> None:
        """One after another, once the leader waits for them."""
        wait_until(lambda: self.group._complete is not None)
        for count, name in enumerate(("second", "refused", "nothing"), start=1):
            self.threads.start(partial(self.commit, name))
            wait_until(lambda wanted=count: self.group._complete is None or self._known() == wanted)  # type: ignore[misc]

    def _known(self) -> int:
        return len(self.created.keys() - {"first"}) + len(self.group._works or ())


def test_appends_are_left_to_a_leader_that_waits_for_others() -> None:
    """One sync for all of them; each thread gets the result or the error of its own append."""
    appends = Appends()
    appends.threads.start(partial(appends.commit, "first"))
    appends.start_others()
    assert [str(outcome) for outcome in appends.threads.join()] == ["first", "second", "refused", "None"]
    assert appends.syncs == [appends.created["first"]] and set(appends.created.values()) == set(appends.syncs)


def test_no_append_is_left_to_the_main_thread() -> None:
    """The handler of a signal may raise there, in the middle of an append of another thread."""
    appends = Appends()
    appends.group._gathering.expected = 2  # what is refused and what writes nothing waits for no sync
    starter = threading.Thread(target=appends.start_others)
    starter.start()
    assert appends.commit("first") == "first"
    starter.join(30)
    assert [str(outcome) for outcome in appends.threads.join()] == ["second", "refused", "None"]
    assert list(appends.created.values()).count(threading.get_ident()) == 1


@pytest.mark.parametrize("leads", [False, True])
def test_a_thread_that_a_signal_takes_away_leaves_the_others_a_leader(leads: bool) -> None:
    """An alarm's handler may raise while a thread waits: to be let go, or (the leader) for others to join."""

    class Gone(Exception):
        pass

    def leave(signum: int, frame: object) -> None:
        raise Gone

    hold, started = threading.Event(), threading.Event()

    def flush() -> None:
        started.set()
        hold.wait(30)

    group, main = GroupSync(flush), threading.get_ident()
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        others = [threading.Thread(target=group.sync, daemon=True)]
        others[0].start()
        assert started.wait(30)

        def interrupt() -> None:
            wait_until(lambda: group.waiting == 1)
            if leads:  # it is let go as the next leader, which then waits for a second thread
                group._gathering = Waits(30.0)
                hold.set()
                wait_until(lambda: group._complete is not None)
            signal.pthread_kill(main, signal.SIGUSR1)

        interrupter = threading.Thread(target=interrupt, daemon=True)
        interrupter.start()
        with pytest.raises(Gone):
            group.sync()
        interrupter.join(30)
        group._gathering = Waits(0.0)
        hold.set()
        others += [threading.Thread(target=group.sync, daemon=True) for _ in range(3)]
        for thread in others[1:]:
            thread.start()
        for thread in others:
            thread.join(30)
        assert not any(thread.is_alive() for thread in others)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_error_in_a_group_does_not_stick_to_the_next(tmp_path: Path) -> None:
    """The log decides whether it accepts more writes."""
    calls: list[int] = []

    def flush() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise StorageError("no", errno=5, path="x")

    group = GroupSync(flush)
    with pytest.raises(StorageError):
        group.sync()
    group.sync()
    assert len(calls) == 2


def test_a_log_closed_meanwhile_refuses_the_commit(tmp_path: Path, fs: SyncGate) -> None:
    log = open_gated(tmp_path, fs)
    group = group_of(log)
    log.append(b"v")
    log.close()
    with pytest.raises(LogClosed):
        group.sync()


APPENDS: dict[str, Callable[[kafkalog.Log], object]] = {
    "append": lambda log: log.append([b"v", b"w"], compression="gzip"),
    "append_bytes": lambda log: log.append_bytes(b"".join(batches(0, 2, 1))),
    "append_arrow": lambda log: log.append_arrow(pa.table({"value": ["v", "w"]})),
    "replicate": lambda log: log.replicate(b"".join(batches(0, 2, 1))),
    "append_packed": lambda log: log.opened_for_append().append_packed(bytearray().join(batches(0, 2, 1))),
}


@pytest.mark.parametrize("how", APPENDS)
def test_an_append_is_synced_if_a_close_begins_after_its_write(tmp_path: Path, fs: SyncGate, how: str) -> None:
    with open_gated(tmp_path, fs) as log:
        opened = log.opened_for_append()

        def close_begins_after(append: Callable[..., LogAppendInfo]) -> Callable[..., LogAppendInfo]:
            def call(*args: object, **more: object) -> LogAppendInfo:
                info = append(*args, **more)
                opened._refuse(lambda: LogClosed("the log is closed"))
                return info

            return call

        opened.append_batches = close_begins_after(opened.append_batches)
        opened.append_as_follower = close_begins_after(opened.append_as_follower)
        APPENDS[how](log)
        assert opened.after_append is None
        assert fs.covered == log.end_offset == 2


def test_a_writer_syncs_as_its_log_does_unless_told_otherwise(tmp_path: Path, fs: SyncGate) -> None:
    with open_gated(tmp_path, fs) as log:
        with log.writer() as writer:
            assert writer.append(b"v").result() == 0 and fs.covered == 1
        with log.writer(sync=False) as writer:
            assert writer.append(b"v").result() == 1 and fs.covered == 1
