"""examples/after_full_disk.py: a data directory is mended after its disk was full."""

from pathlib import Path

import kafkalog
from tests.examples.programs import EXAMPLES, refused, run, said
from tests.tiny_disk import run_on_tiny_disk


def full_disk(data: Path) -> None:
    """A data directory as a full disk and a stop leave it: a batch, an index and a checkpoint that are cut short."""
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 2, {"retention.ms": -1})
        for number in range(2):
            for n in range(20):
                dirs["orders", number].append([b"%d" % n] * 10)
    (data / ".kafka_cleanshutdown").unlink()
    log = data / "orders-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-7])
    log.with_suffix(".timeindex").write_bytes(b"\0\0\0")
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 200\n")


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_what_is_wrong_is_told_then_mended_and_kept(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "before"
    full_disk(data)
    before = contents(data)
    dry_run = run("after_full_disk.py", data)
    assert dry_run.returncode == 1 and contents(data) == before
    assert "repairable: orders-0/00000000000000000000.log: the batch is cut off" in dry_run.stdout
    assert "orders-0/00000000000000000000.timeindex: 3 bytes are not a whole number of entries" in dry_run.stdout
    assert "nothing was changed: give --apply" in dry_run.stdout
    lines = said("after_full_disk.py", data, "--apply", "--backup", backup)
    assert lines[-2:] == ["orders-0: offsets 0 to 190", "orders-1: offsets 0 to 200"]
    kept = {path.name: data for path, data in contents(backup).items()}
    assert kept["00000000000000000000.timeindex"] == b"\0\0\0"
    assert any(name.startswith("00000000000000000000.log.from-") for name in kept)
    assert said("after_full_disk.py", data)[-1].endswith("sound")
    with kafkalog.open_dirs(data, "a") as dirs:
        assert [log.append(b"goes on").first_offset for log in dirs.logs("orders")] == [190, 200]


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    assert "there is no such file" in refused("after_full_disk.py", tmp_path / "nowhere")
    full_disk(tmp_path / "data")
    (tmp_path / "data" / "recovery-point-offset-checkpoint").unlink()
    with kafkalog.open(tmp_path / "data" / "orders-1", "a"):
        assert "Hint: stop the broker" in refused("after_full_disk.py", tmp_path / "data", "--apply")


WRITER = """
import os
import kafkalog

log = kafkalog.open("data/orders-0", "a", segment_bytes=1 << 17, retention_ms=-1)
try:
    while True:
        log.append([os.urandom(1000)] * 10)
except kafkalog.StorageError as error:
    assert error.errno == 28, error
    batch = bytes(next(log.batches()))
    with open(log.segments[-1].path, "ab", buffering=0) as file:  # what a writer without care leaves
        assert 0 < file.write(batch) < len(batch)
    print(log.end_offset, flush=True)
    os._exit(9)
"""

ON_A_FULL_DISK = f"""
import os, subprocess, sys, tempfile

writer = subprocess.run([sys.executable, "-c", {WRITER!r}], stdout=subprocess.PIPE, text=True)
assert writer.returncode == 9
print(writer.stdout, end="", flush=True)
program = [sys.executable, {str(EXAMPLES / "after_full_disk.py")!r}, "data", "--apply", "--backup"]
with tempfile.TemporaryDirectory() as elsewhere:
    print(subprocess.run([*program, elsewhere + "/before"], stdout=subprocess.PIPE, text=True).stdout, flush=True)
    os.unlink("ballast")
    sys.exit(subprocess.run([*program, elsewhere + "/before"]).returncode)
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """Nothing that was appended is lost; while nothing is free it says so, and does not begin."""
    done = run_on_tiny_disk("open('ballast', 'wb').write(bytes(80_000))\n" + ON_A_FULL_DISK)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "make room first" in done.stderr and "Traceback" not in done.stderr
    assert lines[-1] == f"orders-0: offsets 0 to {lines[0]}" and int(lines[0]) > 500
