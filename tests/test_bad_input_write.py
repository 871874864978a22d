"""Bad input and bad surroundings for writers: each gets a typed error that names the place, and nothing is lost.

Names, paths, locks and markers are in test_open.py, records in test_append.py.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import DirectoryLocked, InvalidTopic, KafkalogError, StorageError
from kafkalog.tools.directories import find
from tests.commands import kafkalog as command
from tests.faults import FaultFS, each_failure
from tests.open_logs import open_log, read_values
from tests.tiny_disk import run_on_tiny_disk
from tests.unprivileged import plain_directory, unprivileged

pytestmark = pytest.mark.in_memory

SETTINGS = {"internal_segment_bytes": 3000, "index_interval_bytes": 200}


# permissions


def test_a_directory_that_may_not_be_written_to(tmp_path: Path) -> None:
    with plain_directory() as data, unprivileged():
        kafkalog.open(data / "t-0", "a").close()
        (data / ".lock").unlink()
        data.chmod(0o555)
        try:
            with pytest.raises(StorageError) as refused:
                kafkalog.open(data / "t-0", "a")
            assert refused.value.errno == errno.EACCES and refused.value.path == str(data / ".lock")
            assert refused.value.hint
            assert read_values(data / "t-0") == []
        finally:
            data.chmod(0o755)


def test_a_partition_that_may_not_be_written_to() -> None:
    with plain_directory() as data, unprivileged():
        with kafkalog.open(data / "t-0", "a") as log:
            log.append(b"v")
        segment = data / "t-0" / "00000000000000000000.log"
        segment.chmod(0o444)
        with pytest.raises(StorageError) as refused:
            kafkalog.open(data / "t-0", "a")
        assert (refused.value.errno, refused.value.path) == (errno.EACCES, str(segment))
        assert read_values(data / "t-0") == [b"v"]
        segment.chmod(0o644)
        with kafkalog.open(data / "t-0", "a") as log:
            assert log.append(b"w").first_offset == 1


def test_a_data_directory_that_may_not_be_entered() -> None:
    with plain_directory() as data, unprivileged():
        kafkalog.open(data / "t-0", "a").close()
        data.chmod(0o000)
        try:
            for mode in ("a", "r"):
                with pytest.raises(StorageError) as refused:
                    kafkalog.open(data / "t-0", mode)  # type: ignore[arg-type]
                assert refused.value.errno == errno.EACCES
        finally:
            data.chmod(0o755)


def test_a_new_partition_where_no_directory_may_be_made() -> None:
    with plain_directory() as data, unprivileged():
        kafkalog.open(data / "t-0", "a").close()
        data.chmod(0o555)
        try:
            with pytest.raises(StorageError) as refused:
                kafkalog.open(data / "t-1", "a")
            assert refused.value.errno == errno.EACCES and refused.value.path.startswith(str(data))
        finally:
            data.chmod(0o755)
        kafkalog.open(data / "t-0", "a").close()


# a directory that another process holds


def test_a_directory_that_another_process_holds(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    code = f"import kafkalog; log = kafkalog.open({str(path)!r}, 'a'); print('open', flush=True); input(); log.close()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        with pytest.raises(DirectoryLocked, match=str(holder.pid)) as locked:
            kafkalog.open(path, "a")
        assert locked.value.path == str(tmp_path / ".lock") and "mode 'r'" in str(locked.value)
        with pytest.raises(DirectoryLocked):
            kafkalog.open(tmp_path / "u-0", "a")
        holder.communicate("\n", timeout=60)
    kafkalog.open(path, "a").close()


@pytest.mark.parametrize("topic", ["", ".", "..", "../t", "t/../../x", "a b", "t\0", "t\n", "é", "a" * 250])
def test_no_topic_name_leaves_the_directory(tmp_path: Path, topic: str) -> None:
    with pytest.raises(InvalidTopic):
        find([str(tmp_path)], topic)


# a disk that fills up, at every single call


def run_session(path: Path, fs: FaultFS, arm: Callable[[], Any]) -> tuple[list[bytes], int, BaseException | None]:
    """Appends, rolls, flushes and closes on `fs`: what was acknowledged, how much was tried, what stopped it."""
    acknowledged: list[bytes] = []
    tried = 0
    log = None
    try:
        log = open_log(path, SETTINGS, fs=fs)
        arm()
        for number in range(30):
            values = [b"%d-%d " % (number, n) + b"x" * 60 for n in range(3)]
            tried += 3
            log.append(values)
            acknowledged += values
            if number == 10:
                log.roll()
            if number == 20:
                log.flush()
        log.close()
    except KafkalogError as error:
        return acknowledged, tried, error
    finally:
        fs.heal()
        if log is not None and not log.closed:
            try:
                log.close()
            except KafkalogError:
                pass
    return acknowledged, tried, None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
def test_every_call_that_fails_leaves_what_was_acknowledged(tmp_path: Path, code: int, once: bool) -> None:
    """The n-th call that changes anything fails: all that was answered is read back, then maybe a whole batch."""
    for nth in each_failure(2000):
        path = tmp_path / f"{nth}" / "t-0"
        path.parent.mkdir()
        fs = FaultFS()
        rule = None

        def arm(fs: FaultFS = fs, nth: int = nth) -> None:
            nonlocal rule
            rule = fs.fail(nth=nth, times=1 if once else 1 << 30, code=code, partial=7)

        acknowledged, tried, error = run_session(path, fs, arm)
        assert rule is not None
        stored = read_values(path)
        assert stored[: len(acknowledged)] == acknowledged and len(stored) <= tried
        if rule.fired == 0:
            assert error is None
            break
        if error is not None:
            assert isinstance(error, OSError) and error.errno == code and str(tmp_path) in str(error.path)


def test_every_call_that_fails_while_opening_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a", **SETTINGS) as log:
        for number in range(40):
            log.append(b"%d " % number + b"x" * 100)
        before = [record.value for record in log]
    for _ in each_failure():
        fs = FaultFS()
        rule = fs.fail(nth=_, times=1, code=errno.ENOSPC)
        try:
            open_log(path, fs=fs).close()
        except StorageError as error:
            assert error.errno == errno.ENOSPC and str(tmp_path) in str(error.path)
        assert read_values(path) == before
        if not (tmp_path / ".kafka_cleanshutdown").exists():
            (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")  # the marker itself could not be written
        if rule.fired == 0:
            break


def test_a_partition_that_cannot_be_made_spoils_nothing(tmp_path: Path) -> None:
    """Neither the partitions beside it, which keep their marker, nor the next try."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
    for nth in each_failure():
        fs = FaultFS()
        rule = fs.fail("open", "mkdir", "pwrite", "posix_fallocate", "ftruncate", path=f"u-{nth}", times=1, nth=nth)
        try:
            log = open_log(tmp_path / f"u-{nth}", fs=fs)
            fs.heal()
            log.close()
        except StorageError as error:
            assert f"u-{nth}" in str(error.path)
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        with kafkalog.open(tmp_path / f"u-{nth}", "a") as log:
            assert log.append(b"w").first_offset == 0
        if rule.fired == 0:
            break
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert log.append(b"v").first_offset == 1


# a disk of 1 MiB


@pytest.mark.crash
def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room() -> None:
    done = run_on_tiny_disk("""
import kafkalog, os
from kafkalog.errors import StorageError
log = kafkalog.open("t-0", "a", index_interval_bytes=200, internal_segment_bytes=100_000)
acknowledged, failures = [], 0
while failures < 3:
    values = [b"%d " % (len(acknowledged) + n) + b"x" * 400 for n in range(10)]
    try:
        log.append(values)
        acknowledged += values
    except StorageError as error:
        assert error.errno == 28 and "t-0" in error.path and error.hint, error
        failures += 1
assert len(acknowledged) > 1000, len(acknowledged)
assert [record.value for record in log] == acknowledged
with kafkalog.open("t-0") as view:
    assert [record.value for record in view] == acknowledged
log.delete_before(500)
log.append(b"room again")
assert log[-1].value == b"room again"
log.close()
with kafkalog.open("t-0", "a") as log:
    assert [record.value for record in log] == acknowledged[500:] + [b"room again"]
print("fine")
""")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.crash
def test_a_full_disk_fails_a_writer_and_loses_nothing() -> None:
    done = run_on_tiny_disk("""
import kafkalog
from kafkalog.errors import StorageError
log = kafkalog.open("t-0", "a")
writer = log.writer()
handles = []
try:
    for number in range(100_000):
        handles.append(writer.append(b"%d " % number + b"x" * 1000))
    writer.flush()
except StorageError as error:
    assert error.errno == 28, error
else:
    raise AssertionError("the disk was never full")
good = []
for number, handle in enumerate(handles):
    try:
        assert handle.result(60) == number
        good.append(number)
    except StorageError:
        pass
assert good == list(range(len(good))) and len(good) > 500
try:
    writer.close()
except StorageError:
    pass
try:
    log.close()
except StorageError:
    pass
with kafkalog.open("t-0") as view:
    assert [int(record.value.split()[0]) for record in view] == good
print("fine")
""")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.crash
def test_produce_on_a_full_disk_says_so_and_keeps_what_it_wrote() -> None:
    done = run_on_tiny_disk("""
import subprocess, sys, kafkalog
line = [sys.executable, "-m", "kafkalog.cli.main", "produce", "-d", "data", "-t", "t"]
text = b"".join(b"%d %s\\n" % (n, b"x" * 500) for n in range(10_000))
done = subprocess.run(line, input=text, capture_output=True)
assert done.returncode == 1, done
assert b"No space left" in done.stderr and b"data/t-0" in done.stderr and b"Traceback" not in done.stderr, done.stderr
with kafkalog.open("data/t-0") as view:
    numbers = [int(record.value.split()[0]) for record in view]
assert numbers == list(range(len(numbers))) and len(numbers) > 500, len(numbers)
print("fine")
""")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.crash
def test_a_disk_too_small_for_a_log_is_said() -> None:
    done = run_on_tiny_disk(
        """
import kafkalog, os
from kafkalog.errors import StorageError
open("filler", "wb").write(b"x" * (os.statvfs(".").f_bavail * os.statvfs(".").f_frsize))
try:
    kafkalog.open("t-0", "a")
except StorageError as error:
    assert error.errno == 28, error
    print("said")
os.unlink("filler")
with kafkalog.open("t-0", "a") as log:
    log.append(b"v")
print("fine")
""",
        size="256k",
    )
    assert (done.returncode, done.stdout) == (0, "said\nfine\n"), done.stderr


def test_the_command_tells_each_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for arguments in (
        ["-d", tmp_path / "no" / "deeper", "-t", "t"],
        ["-d", tmp_path / "file", "-t", "t"],
        ["-d", tmp_path / "file" / "x", "-t", "t"],
    ):
        done = command("produce", *arguments, stdin=b"x\n")
        assert done.returncode == 1 and done.stderr.count(b"\n") == 1, done.stderr
        assert os.fspath(tmp_path).encode() in done.stderr
