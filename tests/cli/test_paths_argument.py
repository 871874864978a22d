"""Data directories of commands that take paths: as arguments, by -d, and by KAFKALOG_DIR."""

from pathlib import Path

import pytest

import kafkalog as library
from tests.commands import kafkalog

COMMANDS = [["verify"], ["repair"], ["compact"], ["retain"], ["kept", "list"], ["stats"]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One topic, closed cleanly."""
    with library.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1, {"cleanup.policy": "compact"})
        dirs["orders", 0].append((b"key", b"value"))
    return tmp_path / "data"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_way_names_the_same(data: Path, command: list[str]) -> None:
    expected = kafkalog(*command, data)
    assert expected.returncode == 0, expected
    for done in (
        kafkalog(*command, "-d", data), kafkalog(*command, "--dir", data), kafkalog(*command, KAFKALOG_DIR=str(data)),
        kafkalog(*command, data, KAFKALOG_DIR="/no/such/directory"),
    ):  # fmt: skip
        assert (done.returncode, done.stderr) == (0, expected.stderr)
        assert len(done.stdout.splitlines()) == len(expected.stdout.splitlines())


@pytest.mark.parametrize("command", COMMANDS[:-1], ids=" ".join)
def test_without_any_it_is_wrong_usage(command: list[str]) -> None:
    done = kafkalog(*command)
    assert done.returncode == 2 and b"set KAFKALOG_DIR" in done.stderr and done.stdout == b""


def test_arguments_and_options_add_up(data: Path, tmp_path: Path) -> None:
    library.open(tmp_path / "other" / "users-0", "a").close()
    done = kafkalog("verify", data, "-d", tmp_path / "other")
    assert done.returncode == 0 and done.stdout.startswith(b"2 partitions")
