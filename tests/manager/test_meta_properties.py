"""meta.properties: which node a data directory belongs to, and its id."""

import base64
from pathlib import Path

import pytest

from kafkalog.errors import CorruptCheckpoint, IllegalArgument, StorageError
from kafkalog.manager.meta_properties import MetaProperties, parse_meta_properties, read_meta_properties
from kafkalog.storage.names import META_PROPERTIES
from kafkalog.storage.partition_metadata import new_topic_id
from kafkalog.types import TopicPartition
from tests.golden_cases import Case, cases
from tests.manager.managers import MARKER, T0, OpenManager, list_names

CLUSTER, DIRECTORY = "8bkf8jO-QCi4aM6oI0Uh4g", "sVlBnYaUTd-NYVuH1kAXMg"
V1 = f"#\n#Sun Nov 15 12:00:00 UTC 2026\ncluster.id={CLUSTER}\nversion=1\ndirectory.id={DIRECTORY}\nnode.id=7\n"


def write(path: Path, text: str) -> None:
    path.mkdir(exist_ok=True)
    (path / META_PROPERTIES).write_text(text)


def test_both_versions_are_read() -> None:
    """CKPT-9."""
    assert parse_meta_properties(V1.encode()) == MetaProperties(1, CLUSTER, 7, DIRECTORY)
    assert parse_meta_properties(b"broker.id=3\nversion=0\n") == MetaProperties(0, None, 3, None)
    both = f"version = 0\r\nbroker.id : 3\r\ncluster.id  {CLUSTER}\r\n".encode()
    assert parse_meta_properties(both) == MetaProperties(0, CLUSTER, 3, None)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "version is missing"),
        ("version=2\nnode.id=1\ncluster.id=c\n", "version '2' is unknown"),
        (V1.replace("node.id=7\n", ""), "node.id is missing"),
        (V1.replace("node.id=7", "node.id=-1"), "node.id '-1' is not a node id"),
        (V1.replace("node.id=7", "node.id=9999999999"), "is not a node id"),
        (V1.replace(f"cluster.id={CLUSTER}\n", ""), "cluster.id is missing"),
        (V1.replace(DIRECTORY, "short"), "directory.id 'short' is not an id"),
        ("version=0\n", "broker.id is missing"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, content: str, reason: str) -> None:
    """CKPT-9: and such a directory is not used; the others are."""
    write(tmp_path / "a", content)
    with pytest.raises(CorruptCheckpoint, match=reason) as caught:
        read_meta_properties(str(tmp_path / "a"))
    assert caught.value.path == str(tmp_path / "a" / META_PROPERTIES) and caught.value.hint
    with pytest.raises(StorageError, match=reason):
        OpenManager(tmp_path / "a")
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        assert [one.is_online for one in held.manager.directories] == [False, True]


def test_a_directory_is_chosen_by_its_id(tmp_path: Path) -> None:
    """MGR-7: one that is unassigned, lost or of another node means the usual placement."""
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, V1)
    write(b, V1.replace(DIRECTORY, other := new_topic_id()))
    with OpenManager(a, b) as held:
        assert [one.directory_id for one in held.manager.directories] == [DIRECTORY, other]
        for number in range(3):
            assert held.create_log(TopicPartition("t", number), directory=other).path.startswith(str(b))
        reserved = [base64.urlsafe_b64encode(n.to_bytes(16, "big")).decode()[:22] for n in (0, 1, 2)]
        for number, name in enumerate([*reserved, new_topic_id()], 3):
            assert held.create_log(TopicPartition("t", number), directory=name).path.startswith(str(a))


def test_directories_of_two_nodes_are_not_opened_together(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, V1)
    for text, reason in (
        (V1.replace("node.id=7", "node.id=8"), "node 8 of cluster"),
        (V1.replace(CLUSTER, new_topic_id()), "of cluster"),
        (V1, "has the same directory.id"),
    ):
        write(b, text)
        with pytest.raises(IllegalArgument, match=reason):
            OpenManager(a, b)
    with OpenManager(a):
        pass


def test_without_the_file_a_directory_has_no_id(tmp_path: Path) -> None:
    with OpenManager(tmp_path) as held:
        assert held.manager.directories[0].directory_id is None
        held.create_log(T0)
    assert META_PROPERTIES not in list_names(tmp_path) and MARKER in list_names(tmp_path)


@pytest.mark.parametrize("case", cases("logdir"), ids=lambda case: case.id)
def test_a_broker_s_file(case: Case) -> None:
    """CKPT-9: what a real broker wrote."""
    meta = read_meta_properties(str(case.directory))
    assert meta is not None and meta.version == 1 and meta.cluster_id and meta.directory_id
