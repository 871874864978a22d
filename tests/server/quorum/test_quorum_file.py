"""The file with the term of a replica set: written whole, read as it was, and never guessed at."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.manager.known_topics import QUORUM_FILE
from kafkalog.server.node.node import Node
from kafkalog.server.quorum.decisions import Ballot, next_term
from kafkalog.server.quorum.file import NO_NODE, QuorumFile, QuorumState
from kafkalog.server.quorum.state_file import StateFiles
from kafkalog.util.fileio import OS, FileSystem
from tests.server.looping import in_loop
from tests.server.nodes import node_for

NODES = st.integers(-1, 2**31 - 1)
STATES = st.builds(QuorumState, st.integers(0, 2**31 - 1), NODES, NODES)


class FullDisk(FileSystem):
    """Nothing can be put in a file's place."""

    def rename(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        raise OSError(28, "No space left on device")


def test_there_is_no_state_before_one_was_written(tmp_path: Path) -> None:
    assert QuorumFile(tmp_path).read() is None


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    file = QuorumFile(tmp_path)
    for state in (QuorumState(3), QuorumState(4, 2, 1)):
        file.write(state)
        assert QuorumFile(tmp_path).read() == state
    assert sorted(os.listdir(tmp_path)) == [QUORUM_FILE]
    assert json.loads((tmp_path / QUORUM_FILE).read_bytes()) == {"version": 1, "term": 4, "leader": 2, "voted_for": 1}


@given(STATES)
def test_every_state_comes_back(state: QuorumState) -> None:
    assert QuorumFile.parse(QuorumFile.format(state)) == state


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"[]", b"\xff", b"[" * 5000,
        b'{"version": 2, "term": 1, "leader": 1, "voted_for": 1}',
        b'{"version": true, "term": 1, "leader": 1, "voted_for": 1}',
        b'{"version": 1, "term": -1, "leader": 1, "voted_for": 1}',
        b'{"version": 1, "term": "1", "leader": 1, "voted_for": 1}',
        b'{"version": 1, "term": 1, "leader": 1}',
        b'{"version": 1, "term": 1, "leader": 2147483648, "voted_for": 1}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / QUORUM_FILE).write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match="may vote twice") as raised:
        QuorumFile(tmp_path).read()
    assert str(raised.value.path).endswith(QUORUM_FILE)
    assert (tmp_path / QUORUM_FILE).read_bytes() == content


def test_a_vote_is_known_while_the_directory_of_its_first_copy_is_offline(tmp_path: Path) -> None:
    """Directories that were offline have an older state; they get the newest when they are back."""
    online = [str(tmp_path / name) for name in ("a", "b")]
    for name in online:
        os.mkdir(name)
    files = StateFiles(QuorumFile, lambda: online, fs=OS)
    assert files.load() is None
    files.write(QuorumState(3, 1, 1))
    a = online.pop(0)
    assert files.load() == QuorumState(3, 1, 1)
    files.write(QuorumState(5, NO_NODE, 2))
    online.insert(0, a)
    assert QuorumFile(a).read() == QuorumState(3, 1, 1)
    assert files.load() == QuorumFile(a).read() == QuorumState(5, NO_NODE, 2)


@in_loop
async def test_a_node_remembers_its_vote_without_its_first_disk(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in "ab"]
    settings: dict[str, Any] = {"node_id": 2, "kafkalog_replicas": "1@a:9091,2@b:9092,3@c:9093"}

    def ballot(node: Node, candidate: int, term: int) -> Ballot:
        return node.quorum.ballot(term)._replace(candidate=candidate)

    async with node_for(*directories, **settings) as node:
        term = next_term(0, 1, node.quorum.own_set)
        assert (await node.quorum.vote(ballot(node, 1, term))).is_granted
    shutil.rmtree(directories[0])  # its disk is not mounted
    async with node_for(*directories, **settings) as node:
        assert node.quorum.state == QuorumState(term, NO_NODE, 1)


@in_loop
async def test_a_node_with_an_offline_disk_votes_for_no_one_but_may_hand_over(tmp_path: Path) -> None:
    """What it acknowledged to an earlier leader may be there; a majority without it has that as well."""
    directories = [tmp_path / name for name in "ab"]
    async with node_for(*directories, node_id=2, kafkalog_replicas="1@a:9091,2@b:9092,3@c:9093") as node:
        await node.topics.create("t", 2)
        own = node.quorum
        ballot = own.ballot(next_term(own.state.term, 1, own.own_set))._replace(candidate=1)
        assert (await own.vote(ballot, is_pre_vote=True)).is_granted
        node.store.fail_directory(directories[1], OSError(5, "the disk"))
        state = own.state
        for is_pre_vote in (True, False):
            vote = await own.vote(ballot, is_pre_vote=is_pre_vote)
            assert not vote.is_granted and "is offline here" in vote.reason and own.state == state
        await own.lead_uncontested()
        ballot = own.ballot(next_term(own.state.term, 1, own.own_set))
        ballot = ballot._replace(candidate=1, version=own.metadata.versions.complete)
        assert (await own.vote(ballot)).is_granted


def test_a_state_counts_once_one_directory_has_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class OneFullDisk(FullDisk):
        def rename(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
            if "full" in os.fspath(target):
                super().rename(source, target)
            OS.rename(source, target)

    names = ["full", "free"]
    for name in names:
        (tmp_path / name).mkdir()
    files = StateFiles(QuorumFile, lambda: [str(tmp_path / name) for name in names], fs=OneFullDisk())
    files.write(QuorumState(3, 1, 1))
    assert files.load() == QuorumState(3, 1, 1)
    assert "the term of the replica set is only in the other data directories" in caplog.text
    names.remove("free")
    with pytest.raises(StorageError, match="write the term"):
        files.write(QuorumState(4, 1, 1))


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    QuorumFile(tmp_path).write(QuorumState(3, 1, 1))
    with pytest.raises(StorageError, match="write the term"):
        QuorumFile(tmp_path, fs=FullDisk()).write(QuorumState(4, 2, 2))
    assert QuorumFile(tmp_path, fs=OS).read() == QuorumState(3, 1, 1)
