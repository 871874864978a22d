"""examples/tail_broker.py beside another process that writes; beside a real broker it runs in tests/interop."""

import signal
import subprocess
import sys
from pathlib import Path

import kafkalog
from tests.commands import environment
from tests.examples.programs import interrupted, refused, said, started

WRITER = """
import sys, kafkalog
with kafkalog.open_dirs(sys.argv[1], "a") as dirs:
    for line in sys.stdin:
        partition, value = line.split()
        print(dirs["orders", int(partition)].append((b"key", value.encode())).first_offset, flush=True)
"""


def test_what_another_process_writes_is_printed_as_it_comes(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 2)
        dirs["orders", 1].append(b"old")
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment()}
    with subprocess.Popen(command, **pipes) as writer:  # type: ignore[call-overload]
        assert writer.stdin is not None and writer.stdout is not None
        follower = started("tail_broker.py", tmp_path, "orders", "--from-beginning")
        assert follower.stdout is not None
        assert follower.stdout.readline() == "orders-1 0 - old\n"
        for partition, offset, value in ((0, 0, "a"), (1, 1, "b"), (0, 1, "c")):
            writer.stdin.write(f"{partition} {value}\n")
            writer.stdin.flush()
            assert follower.stdout.readline() == f"orders-{partition} {offset} key {value}\n"
            assert writer.stdout.readline() == f"{offset}\n"
        interrupted(follower)
        writer.stdin.close()
    assert writer.returncode == 0
    assert sorted(said("tail_broker.py", tmp_path, "orders", "--from-beginning", "--idle", "0.1")) == [
        "orders-0 0 key a", "orders-0 1 key c", "orders-1 0 - old", "orders-1 1 key b"
    ]  # fmt: skip
    assert said("tail_broker.py", tmp_path, "orders", "--idle", "0") == []


def test_whoever_reads_its_output_may_go_away(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([b"x" * 100] * 5000)
    follower = started("tail_broker.py", tmp_path, "orders", "--from-beginning")
    assert follower.stdout is not None and follower.stderr is not None
    assert follower.stdout.readline().startswith("orders-0 0 - x")
    follower.stdout.close()
    assert follower.wait(60) == -signal.SIGPIPE and not follower.stderr.read()
    follower.stderr.close()


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    assert "does not exist" in refused("tail_broker.py", tmp_path / "nowhere", "orders")
    assert "there is no topic 'orders'" in refused("tail_broker.py", tmp_path, "orders")
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 2)
    assert "timeout is -1.0" in refused("tail_broker.py", tmp_path, "orders", "--idle", "-1")
