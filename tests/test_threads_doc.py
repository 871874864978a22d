"""docs/threads.md names every lock and thread there is, and locks are taken in its order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.locks_and_threads import GATES, LOCKS, THREADS, Place, find_created, rows
from tests.trees import ROOT, SOURCES

MOCK_ONLY = {(("manager/job.py", "_running"), ("manager/job.py", "_running"))}
"""A job that schedules something runs what is due inside itself, with the one thread that a mock scheduler has."""
SAMPLE = (
    "tests/manager/test_disk_failure.py", "tests/manager/test_moving.py", "tests/manager/test_cleaning.py",
    "tests/test_open_dirs_together.py",
    "tests/test_open_dirs_jobs.py", "tests/test_many_threads.py",
)  # fmt: skip


def places_of(found: dict[tuple[str, int], str]) -> set[Place]:
    return {(file, name) for (file, _), name in found.items()}


def test_every_lock_is_in_the_document() -> None:
    documented = {**rows("Locks"), **rows("Gates"), **rows("Locks between processes")}
    assert documented.keys() == places_of(find_created(LOCKS | GATES))


def test_every_thread_is_in_the_document() -> None:
    assert rows("Threads").keys() == places_of(find_created(THREADS))


def test_compiled_code_has_neither_but_for_the_lock_of_a_log() -> None:
    words = ("import threading", "pthread", "PyThread", "prange", "openmp")
    for path in (SOURCES / "kafkalog" / "_core").rglob("*"):
        if path.suffix in (".pyx", ".pxd", ".h") and path.stem != "log_lock":
            text = path.read_text(encoding="utf-8")
            assert not [word for word in words if word in text], path.name


@pytest.mark.slow
def test_locks_are_taken_in_the_order_of_the_document(tmp_path: Path) -> None:
    """As far as tests that work with many threads, failing disks and moved partitions take them."""
    order = rows("Locks")
    noted = tmp_path / "order"
    environment = os.environ | {"LOCK_ORDER": str(noted), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.locks_and_threads", *SAMPLE]
    command.append(f"--basetemp={tmp_path / 'tests'}")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    edges = set()
    for line in noted.read_text(encoding="utf-8").splitlines():
        held_file, held, wanted_file, requested = line.split(" ")
        edges.add(((held_file, held), (wanted_file, requested)))
    assert len(edges) > 10
    waits = {edge for edge in edges if edge[1][1] == "gate"}
    assert not waits, "a thread waits at a gate with a lock in its hands"
    assert not {edge for edge in edges - MOCK_ONLY if order[edge[0]] >= order[edge[1]]}
