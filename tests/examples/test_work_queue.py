"""examples/work_queue.py: a queue of tasks with workers that may be killed."""

from pathlib import Path

from kafkalog.tools.retain.directories import retain
from tests.examples.programs import interrupted, refused, said, started


def tasks_of(lines: list[str]) -> list[str]:
    """The tasks that workers said are done."""
    return [line.split(" (")[0].removeprefix("done ") for line in lines]


def test_workers_share_the_tasks_and_one_that_is_killed_loses_none(tmp_path: Path) -> None:
    data = tmp_path / "data"
    tasks = [f"task {n}" for n in range(60)]
    assert said("work_queue.py", data, "put", *tasks) == ["60 tasks put"]
    victim = started("work_queue.py", data, "work", "--seconds", "0.005")
    assert victim.stdout is not None
    before = [victim.stdout.readline() for _ in range(3)]  # it is in the middle of them
    others = [started("work_queue.py", data, "work", "--until-empty", "--seconds", "0.005") for _ in range(2)]
    victim.kill()
    outputs = [before + victim.communicate(timeout=60)[0].splitlines()]
    for one in others:
        out, errors = one.communicate(timeout=120)
        assert one.returncode == 0 and not errors, errors
        outputs.append(out.splitlines())
    done = [task for lines in outputs for task in tasks_of(lines)]
    # a kill between a commit and its line takes the line, not the task
    assert len(set(done)) == len(done) and len(done) >= len(tasks) - 1 and set(done) <= set(tasks)
    assert said("work_queue.py", data, "work", "--until-empty") == []


def test_tasks_that_come_later_are_done_and_ctrl_c_ends_a_worker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    said("work_queue.py", data, "put", "one")
    worker = started("work_queue.py", data, "work")
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("done one (tasks-0 0) by ")
    said("work_queue.py", data, "put", "two")
    assert worker.stdout.readline().startswith("done two ")
    interrupted(worker)
    assert (tmp_path / "data.cursors").is_dir()


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    assert "does not exist" in refused("work_queue.py", tmp_path / "nowhere", "work")
    (tmp_path / "empty").mkdir()
    assert "there is no topic 'tasks'" in refused("work_queue.py", tmp_path / "empty", "work")
    assert "TASK" in refused("work_queue.py", tmp_path, "put", status=2)


def test_tasks_that_come_one_by_one_are_spread_too_and_none_expires(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for n in range(5):
        assert said("work_queue.py", data, "put", f"task {n}") == ["1 tasks put"]
    done = said("work_queue.py", ".", "work", "--until-empty", cwd=data)
    assert sorted(one.split(" by ")[0] for one in done) == [
        "done task 0 (tasks-0 0)", "done task 1 (tasks-1 0)", "done task 2 (tasks-2 0)", "done task 3 (tasks-3 0)",
        "done task 4 (tasks-0 1)",
    ]  # fmt: skip
    assert not retain(data, now_ms=2**45).due
