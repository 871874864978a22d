"""A log that the UnifiedLog of Kafka 4.4 closed without trimming it: ours reads and repairs it, and 4.4 goes on."""

import subprocess
from pathlib import Path

import pytest

import kafkalog
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests.interop import toolchain


def run_4_4(partition: Path, count: int, *, preallocate: bool) -> "subprocess.CompletedProcess[str]":
    command = toolchain.java_44_command("Untrimmed", str(partition), str(count), str(preallocate).lower())
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == 0:
        (partition.parent / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":-1}')
        (partition.parent / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {done.stdout.strip()}\n")
    return done


def end_after(partition: Path, count: int, *, preallocate: bool) -> int:
    done = run_4_4(partition, count, preallocate=preallocate)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def values(partition: Path) -> list[bytes | None]:
    with kafkalog.open(partition) as log:
        return [record.value for record in log.records()]


def expected(count: int) -> list[bytes | None]:
    return [b"value %d" % number for number in range(count)]


@pytest.mark.parametrize("how", ["repair", "append"])
@pytest.mark.parametrize("preallocate", [False, True])
def test_a_log_that_4_4_closed_without_trimming(tmp_path: Path, preallocate: bool, how: str) -> None:
    partition = tmp_path / "t-0"
    assert end_after(partition, 300, preallocate=preallocate) == 300
    assert values(partition) == expected(300)
    assert verify(tmp_path).ok
    if preallocate:
        assert "CorruptRecordException" in run_4_4(partition, 1, preallocate=True).stderr, "4.4 refuses its own log"
    if how == "repair":
        repair(tmp_path, apply=True)
    else:
        with kafkalog.open(partition, "a", retention_ms=-1) as log:
            log.append([b"value 300"])
    count = 301 if how == "append" else 300
    assert values(partition) == expected(count)
    assert end_after(partition, 5, preallocate=preallocate) == count + 5
    assert values(partition) == expected(count + 5)
