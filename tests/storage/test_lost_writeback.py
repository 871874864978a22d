"""A disk that loses what was written while the file was closed to make room: the next flush says so.

The disk is an image on a tmpfs that is full when the system writes back, so it needs root and a loop device.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOUNTS = """
set -e
mount -t tmpfs -o size=24m none "$1"
cd "$1"
truncate -s 64m image
mkfs.ext4 -q -O ^has_journal image
mkdir disk
mount -o loop image disk
shift
exec "$@"
"""
SCRIPT = """
import os, pathlib
from kafkalog.errors import StorageError
from kafkalog.util.descriptors import DESCRIPTORS
from tests.storage.logs import append_batches, log

a_log = log(pathlib.Path("disk"))
append_batches(a_log, 100_000, times=10)
a_log.flush()
os.sync()
with open("ballast", "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(1 << 16))
    except OSError:
        pass
append_batches(a_log, 100_000, times=40)
while a_log.active_segment.records._fd >= 0:
    DESCRIPTORS.close_some(1)
with open(a_log.active_segment.path, "r+b") as other:  # somebody else hears of it, and with that the system has told
    try:
        os.fdatasync(other.fileno())
    except OSError:
        print("lost")
os.unlink("ballast")
with open(a_log.active_segment.path, "r+b") as another:
    os.fdatasync(another.fileno())
    print("not told")
try:
    a_log.flush()
except StorageError as error:
    print("told")
try:
    append_batches(a_log)
except StorageError as error:
    print("no more writes")
a_log.close_handlers()
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="needs root and mkfs.ext4")
def test_what_was_lost_while_a_file_was_closed_is_told_by_the_flush(tmp_path: Path) -> None:
    """An fsync through a descriptor opened later does not get the error: the probe left open does (fsync(2))."""
    unshare = ["unshare", "-m", "sh", "-c", MOUNTS, "sh", str(tmp_path)]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no loop device may be mounted here")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.split("\n")[:-1]
    if lines[:2] != ["lost", "not told"]:
        pytest.skip(f"the system did not lose what it was to lose: {lines} {done.stderr[-500:]}")
    assert lines[2:] == ["told", "no more writes"], done.stderr[-2000:]
