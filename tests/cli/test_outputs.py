"""Where a command's output goes when it cannot go where it should: closed, full or broken; odd names on the way."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.commands import LINE, environment, kafkalog, ok


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t with the records a, b and c."""
    ok("produce", "-d", tmp_path / "data", "-t", "t", stdin=b"a\nb\nc\n")
    return tmp_path / "data"


def shell(words: str, *arguments: str | Path) -> "subprocess.CompletedProcess[bytes]":
    """The command run by a shell that redirects as `words` say."""
    line = " ".join(f"'{part}'" for part in (*LINE, *map(str, arguments)))
    return subprocess.run(
        ["sh", "-c", f"{line} {words}"], capture_output=True, env=environment(), timeout=120, stdin=subprocess.DEVNULL
    )


COMMANDS = [
    ["consume", "-d", "DATA", "-t", "t"],
    ["topics", "list", "-d", "DATA"],
    ["offsets", "get", "-d", "DATA", "-t", "t"],
    ["ls", "-d", "DATA"],
    ["dump", "DATA/t-0"],
    ["--version"],
    ["--help"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("where", [">&-", "> /dev/full"])
def test_an_output_that_takes_nothing_is_an_error_in_one_line(data: Path, command: list[str], where: str) -> None:
    if where.endswith("full") and not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    done = shell(where, *[part.replace("DATA", str(data)) for part in command])
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(b"kafkalog: cannot write the output: ") and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_closed_stderr_changes_nothing(data: Path, command: list[str]) -> None:
    arguments = [part.replace("DATA", str(data)) for part in command]
    done = shell("2>&-", *arguments)
    assert done.returncode == 0 and done.stdout == ok(*arguments)


def test_closed_descriptors_are_never_those_of_the_log(data: Path) -> None:
    """Else what is printed would go into a segment, or a close would drop the lock."""
    before = ok("consume", "-d", data, "-t", "t")
    done = shell(">&- 2>&- <&-", "produce", "-v", "-d", data, "-t", "t")
    assert done.returncode == 1  # there is no input
    shell(f"< '{data}/t-0/00000000000000000000.log' >&- 2>&-", "produce", "-l", "-v", "-d", data, "-t", "other")
    assert ok("consume", "-d", data, "-t", "t") == before
    assert ok("dump", "--deep-iteration", data / "t-0").count(b"isvalid: true") == 1
    assert (data / ".kafka_cleanshutdown").exists()


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    """Paths are bytes; what is printed of them is them again."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/d\xff\xfe")
    source = os.fsdecode(os.fsencode(tmp_path) + b"/in\xff")
    Path(source).write_bytes(b"from a file")
    ok("produce", "-d", folder, "-t", "t", source)
    assert ok("consume", "-d", folder, "-t", "t") == b"from a file\n"
    assert os.fsencode(folder) in ok("ls", "-d", folder)
    assert os.fsencode(folder) in ok("dump", f"{folder}/t-0")
    assert os.fsencode(folder) in ok("topics", "describe", "-d", folder, "-t", "t")
    for arguments in (["consume", "-d", folder, "-t", "no"], ["produce", "-d", folder, "-t", "t", source + "x"]):
        done = kafkalog(*arguments)
        assert done.returncode == 1 and b"Traceback" not in done.stderr and done.stderr.startswith(b"kafkalog: ")


def test_dump_of_a_data_directory_names_its_partitions(data: Path) -> None:
    done = kafkalog("dump", data)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"t-0" in done.stderr and b"data directory" in done.stderr
