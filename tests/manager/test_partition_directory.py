"""Files that may lie in a directory that becomes a partition."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import NotAPartition
from kafkalog.manager.topics import TopicStore


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["notes"], "contains 'notes'"), (["b", "a"], "contains 'a' and 1 more"),
        (["c", "a", "b"], "contains 'a' and 2 more"),
        (["partition.metadata", "é"], r"contains '\xe9'"),
    ],
)  # fmt: skip
def test_a_directory_with_other_files_is_no_partition(tmp_path: Path, names: list[str], message: str) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"x")
    with pytest.raises(NotAPartition) as caught:
        kafkalog.open(path, "a")
    assert (caught.value.path, caught.value.message) == (
        str(path), f"the directory has no segment files but {message}",
    )  # fmt: skip
    assert {one.name for one in path.iterdir()} == set(names)


@pytest.mark.parametrize("names", [[], ["partition.metadata.tmp", "leader-epoch-checkpoint.tmp"]])
def test_a_directory_as_good_as_empty_becomes_a_new_partition(tmp_path: Path, names: list[str]) -> None:
    """Lines of checkpoints are those of a partition of that name which is gone."""
    path = tmp_path / "t-0"
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"x")
    checkpoints = [tmp_path / f"{name}-offset-checkpoint" for name in ("log-start", "recovery-point")]
    for checkpoint in checkpoints:
        checkpoint.write_text("0\n1\nt 0 5\n")
    with kafkalog.open(path, "a") as log:
        assert (log.start_offset, log.append(b"v").first_offset) == (0, 0)
    assert set(TopicStore(tmp_path).topics()) == {"t"}


def test_a_file_is_no_partition(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    path.write_bytes(b"x")
    with pytest.raises(NotAPartition, match="a file has the name of the partition directory"):
        kafkalog.open(path, "a")
