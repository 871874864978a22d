"""Copies that are killed, at each step and at random moments: every record is there once, in order."""

import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.copy import copy_topics
from kafkalog.server.groups.stored import committed_offsets
from tests import commands
from tests.copy.topics import cluster_on, records_in
from tests.kills import KILLS
from tests.redact.model import read_all

NAMES = ("plain-0", "plain-1", "gaps-0")


def run_and_kill(data: Path, target: str, how: str) -> None:
    words = ["tests.copy.killed", str(data), target, how, *([str(KILLS)] if KILLS else [])]
    done = commands.run(words, cwd=commands.ROOT, timeout_s=600)
    assert done.returncode == 0, done.stderr.decode()[-5000:]
    assert int(done.stdout) >= (KILLS if how == "moments" and KILLS else 10), done.stdout


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
        passed = sum(one.offset < source[-1].offset - 1 for one in source)  # the last offset but one may be in a gap
        assert committed_offsets([str(files)])["readers"][name[:-2]][int(name[-1])] == passed


@pytest.mark.parametrize("left", ["no second partition", "no segment", "no file"])
def test_a_copy_killed_while_it_created_the_topic_continues(tmp_path: Path, left: str) -> None:
    data, target = tmp_path / "data", tmp_path / "copied"
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("t", 2, {"retention.ms": -1})
        for log in dirs.logs("t"):
            log.append([b"%d" % n for n in range(10)])
    copy_topics(str(data), str(target), ["t"], apply=True)
    for path in target.glob("t-*/*"):
        if left == "no file" or path.name != "partition.metadata":
            path.unlink()
    for path in target.glob("*checkpoint*"):
        path.unlink()
    if left == "no second partition":
        shutil.rmtree(target / "t-1")
    copy_topics(str(data), str(target), ["t"], apply=True)
    for name in ("t-0", "t-1"):
        assert read_all(target / name) == read_all(data / name)
