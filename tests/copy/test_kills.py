"""Copies that are killed, at each step and at random moments: every record is there once, in order."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.server.groups.stored import committed_offsets
from tests.commands import ROOT, environment
from tests.copy.topics import cluster_on, records_in
from tests.redact.model import read_all

NAMES = ("plain-0", "plain-1", "gaps-0")


def run_and_kill(data: Path, target: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.copy.killed", str(data), target, how],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert int(done.stdout) >= 10, done.stdout


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("how", ["steps", "moments"])
def test_killed_copies_to_a_directory_have_each_batch_once(tmp_path: Path, how: str) -> None:
    data, target = tmp_path / "data", tmp_path / "copied"
    run_and_kill(data, str(target), how)
    for name in NAMES:
        assert read_all(target / name) == read_all(data / name)
    assert committed_offsets([str(target)]) == committed_offsets([str(data)])


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("how", ["steps", "moments"])
def test_killed_copies_to_a_cluster_have_each_record_once(tmp_path: Path, how: str) -> None:
    data, files = tmp_path / "data", tmp_path / "cluster"
    with cluster_on(files) as server:
        run_and_kill(data, f"kafka://{server.bootstrap}", how)
    for name in NAMES:
        source, copied = records_in(data / name), records_in(files / name)
        assert [one[1:] for one in copied] == [one[1:] for one in source], name
        assert [one.offset for one in copied] == list(range(len(source)))
        before = [one.offset for one in source].index(source[-1].offset)
        group = committed_offsets([str(files)])["readers"][name[:-2]][int(name[-1])]
        assert group == before - 1
