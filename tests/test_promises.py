"""The promises of docs/durability.md: after a power cut all records that a mode reported as on disk are there.

The disk of tests/crash/disk.py forgets what was not synced, in every way it knows. `test_each_promise_names_its_tests`
keeps the document honest: a test that it names exists.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import KafkalogError, StorageError
from tests.crash.disk import MODES, DiskFS, write_image
from tests.faults import FaultFS, each_failure
from tests.open_logs import open_log

pytestmark = pytest.mark.in_memory

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "durability.md"
SMALL = {"internal_segment_bytes": 400, "index_interval_bytes": 100, "segment_index_bytes": 1024}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def open_small(directory: Path, fs: Any, sync: Any = False, **settings: Any) -> kafkalog.Log:
    return open_log(directory / "t-0", {**SMALL, **settings}, sync=sync, fs=fs)


def value_of(number: int) -> bytes:
    return b"%d " % number * 20


def after_power_cuts(fs: DiskFS, work: Path, seed: int) -> Iterator[list[bytes]]:
    """The values of the log that each way of losing power leaves."""
    for number, mode in enumerate(MODES):
        place = work / f"{seed}-{number}"
        write_image(fs.disk.image(mode, Random(f"{seed} {number}")), place)
        with kafkalog.open(place / "t-0", "a", **SMALL) as log:
            values = [record.value or b"" for record in log]
        yield values


def by_append(log: kafkalog.Log, number: int) -> None:
    log.append(value_of(number))


def by_bytes(log: kafkalog.Log, number: int) -> None:
    log.append_bytes(encode_batch([value_of(number)], timestamp=1))


def by_replicating(log: kafkalog.Log, number: int) -> None:
    log.replicate(bytes(encode_batch([value_of(number)], timestamp=1, base_offset=number, leader_epoch=0)))


def by_flush(log: kafkalog.Log, number: int) -> None:
    log.append(value_of(number))
    log.flush()


def by_writer(log: kafkalog.Log, number: int) -> None:
    with log.writer(sync=True) as writer:
        writer.append(value_of(number)).result()


MODES_OF_WRITING: dict[str, tuple[Callable[[kafkalog.Log, int], None], dict[str, Any]]] = {
    "sync=True append": (by_append, {"sync": True}),
    "sync=True append_bytes": (by_bytes, {"sync": True}),
    "sync=True replicate": (by_replicating, {"sync": True}),
    "flush.messages=1": (by_append, {"flush_messages": 1}),
    "flush()": (by_flush, {}),
    "writer(sync=True)": (by_writer, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODES_OF_WRITING)
def test_what_was_told_outlives_a_power_cut(tmp_path: Path, name: str) -> None:
    """Over rolls, in every way that the power may take what was not synced."""
    write, how = MODES_OF_WRITING[name]
    home = tmp_path / "d"
    home.mkdir()
    fs = DiskFS(home)
    log = open_small(home, fs, **how)
    acknowledged: list[bytes] = []
    for number in range(14):
        write(log, number)
        acknowledged.append(value_of(number))
        if number % 3 == 1:
            for values in after_power_cuts(fs, tmp_path, number):
                assert values == acknowledged
    log.close()
    for values in after_power_cuts(fs, tmp_path, 99):
        assert values == acknowledged


def test_without_syncs_a_power_cut_takes_ends_of_segments(tmp_path: Path) -> None:
    """The remaining records are whole and in order, none up to the flush is missing; a close covers all of them."""
    home = tmp_path / "d"
    home.mkdir()
    fs = DiskFS(home)
    log = open_small(home, fs)
    written = []
    for number in range(12):
        by_append(log, number)
        written.append(value_of(number))
        if number == 5:
            log.flush()
        if number % 4 == 3:
            for values in after_power_cuts(fs, tmp_path, number):
                assert values == [value for value in written if value in values]
                assert number < 5 or values[:6] == written[:6]
    log.close()
    for values in after_power_cuts(fs, tmp_path, 99):
        assert values == written


@pytest.mark.slow
def test_a_cut_and_what_comes_after_it_stay(tmp_path: Path) -> None:
    """Records that were cut do not come back beside, or behind, those that were committed after it."""
    home = tmp_path / "d"
    home.mkdir()
    fs = DiskFS(home)
    log = open_small(home, fs, sync=True)
    for number in range(12):
        by_append(log, number)
    log.truncate_to(5)
    kept = [value_of(number) for number in range(5)]
    for number in range(20, 24):
        by_append(log, number)
        kept.append(value_of(number))
        for values in after_power_cuts(fs, tmp_path, number):
            assert values == kept
    log.close()


@pytest.mark.parametrize("sync", [False, True, 50])
def test_a_killed_process_loses_nothing_that_was_appended(tmp_path: Path, sync: Any) -> None:
    """The page cache is the system's: in every mode what `append` returned for is there."""
    program = (
        "import kafkalog, os, signal, sys\n"
        f"log = kafkalog.open(sys.argv[1], 'a', sync={sync!r}, internal_segment_bytes=400)\n"
        "for n in range(40): log.append(b'%d ' % n * 20)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t-0")], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    with kafkalog.open(tmp_path / "t-0", "a", internal_segment_bytes=400) as log:
        assert [record.value for record in log] == [value_of(number) for number in range(40)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_write_that_fails_leaves_the_log_as_it_was(tmp_path: Path, code: int) -> None:
    """A full disk: the error names the file, and with room again the same log goes on."""
    fs = FaultFS()
    log = open_small(tmp_path, fs)
    by_append(log, 0)
    fs.fail("pwrite", path=".log", code=code, partial=30)
    with pytest.raises(StorageError) as failure:
        by_append(log, 1)
    assert failure.value.errno == code and str(failure.value.path).endswith(".log")
    assert [record.value for record in log] == [value_of(0)]
    fs.heal()
    by_append(log, 1)
    assert [record.value for record in log] == [value_of(0), value_of(1)]
    log.close()


def test_a_full_disk_at_every_call_loses_nothing_that_was_told(tmp_path: Path) -> None:
    for nth in each_failure(400):
        home = tmp_path / str(nth)
        home.mkdir()
        fs = FaultFS()
        rule = fs.fail(nth=nth, times=1, code=errno.ENOSPC)
        acknowledged = []
        try:
            log = open_small(home, fs, sync=True)
        except StorageError:
            assert rule.fired
            continue
        for number in range(8):
            try:
                by_append(log, number)
                acknowledged.append(value_of(number))
            except StorageError:
                break
        try:
            log.close()
        except KafkalogError:
            pass
        if not rule.fired:
            assert len(acknowledged) == 8
            break
        with kafkalog.open(home / "t-0", "a", **SMALL) as again:
            assert [record.value for record in again][: len(acknowledged)] == acknowledged


# The document

NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`|`::(\w+)`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """(file, function) of each test that the text names; `::name` alone means the file before it."""
    found, file = [], ""
    for match in NAMED.finditer(text):
        file = match[1] or file
        found.append((file, match[2] or match[3] or ""))
    return found


def test_each_promise_names_its_tests() -> None:
    named = named_tests(DOCUMENT.read_text())
    assert len(named) > 30
    for file, function in named:
        path = ROOT / file
        assert path.exists(), f"{file} is named, and is not there"
        if function:
            assert f"def {function}(" in path.read_text(), f"{file} has no {function}"


def test_each_row_of_a_table_of_promises_has_a_proof() -> None:
    """Rows of the tables with a column "shown by" name a test each."""
    promised = 0
    for table in re.findall(r"((?:^\|.*\|\n)+)", DOCUMENT.read_text(), re.MULTILINE):
        header, _, *rows = table.strip().splitlines()
        if not header.rstrip(" |").endswith("shown by"):
            continue
        for row in rows:
            assert NAMED.search(row.rsplit("|", 2)[-2]), f"no test in: {row}"
            promised += 1
    assert promised > 20
