"""An export to a data directory that is killed at any step is completed by the next run."""

import os
import sys
from pathlib import Path

import kafkalog
from kafkalog.exchange.kafka_dir import export_directory

_CHANGES = ("os.rename", "os.remove", "os.rmdir")
KILLED = 9


def run_killed(data: Path, target: Path, step: int) -> int:
    """Export in a child that ends at its change number `step` of directories; return its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    changes = 0

    def end(event: str, _: object) -> None:
        nonlocal changes
        changes += event in _CHANGES
        if changes > step:
            os._exit(KILLED)

    sys.addaudithook(end)
    try:
        export_directory(data, target)
    except BaseException:
        os._exit(2)
    os._exit(0)


def test_killed_run_is_completed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1, {})
        dirs["orders", 0].append([b"%d" % n for n in range(10)])
    for step in range(1000):
        target = tmp_path / f"out{step}" / "copy"
        status = run_killed(data, target, step)
        if status == 0:
            break
        assert status == KILLED
        export_directory(data, target)
        with kafkalog.open(target / "orders-0") as log:
            assert [record.value for record in log] == [b"%d" % n for n in range(10)]
        assert os.listdir(target.parent) == ["copy"], step
    assert step > 10
