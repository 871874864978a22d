"""The files that a closed log leaves are those that a broker would have left."""

from pathlib import Path

import kafkalog


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_closed_log_has_the_index_files_of_its_empty_last_segment(tmp_path: Path) -> None:
    """SEG-28: a new log, and one that has just rolled; of length 0, and made once."""
    directory = tmp_path / "data" / "t-0"
    directory.parent.mkdir()
    kafkalog.open(directory, "a").close()
    empty = {f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")}
    assert empty <= set(names(directory))
    assert all((directory / name).stat().st_size == 0 for name in empty)
    with kafkalog.open(directory, "a") as log:
        log.append(b"x")
        log.roll()
    rolled = {f"{1:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")}
    assert rolled <= set(names(directory))
    inodes = {name: (directory / name).stat().st_ino for name in rolled}
    kafkalog.open(directory, "a").close()
    assert {name: (directory / name).stat().st_ino for name in rolled} == inodes
