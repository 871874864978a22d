"""Progress is for people: on a terminal, when work lasts, without colour where NO_COLOR says so."""

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.commands import environment

COLOUR = re.compile(rb"\x1b\[[0-9;]*(3[0-9]|38;|9[0-7])[0-9;]*m")
CODE = """
import sys
from kafkalog.cli import main, progress
progress.SHOW_AFTER_S = -1.0  # every work lasts
sys.exit(main.run(sys.argv[1:]))
"""


TASKS = """
import sys
from kafkalog.cli import progress
progress.SHOW_AFTER_S = -1.0
with progress.TaskMeter("verify", quiet=sys.argv[1:] == ["-q"]) as meter:
    for done in range(4):
        meter.tell((done, 4))
"""


def on_terminal(arguments: list[str], *, colour: bool, code: str = CODE) -> tuple[bytes, bytes]:
    """What a command prints on stdout, and on the terminal that its stderr is."""
    env = environment(TERM="xterm-256color", COLORTERM="truecolor")
    if colour:
        del env["NO_COLOR"]
    master, slave = pty.openpty()
    out = tempfile.TemporaryFile()
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=slave, env=env
        )
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the child has closed its end
                break
            if not part:
                break
            shown += part
        assert child.wait(120) == 0, shown
        out.seek(0)
        return out.read(), shown
    finally:
        out.close()
        os.close(master)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(200_000)))
    return path


@pytest.mark.parametrize("colour", [True, False], ids=["colour", "NO_COLOR"])
def test_a_bar_on_a_terminal(tmp_path: Path, lines: Path, colour: bool) -> None:
    data = str(tmp_path / "data")
    out, shown = on_terminal(["produce", "-d", data, "-t", "t", "-l", str(lines)], colour=colour)
    assert out == b"" and b"produce" in shown and b"t-0: 200,000 records" in shown
    assert bool(COLOUR.search(shown)) == colour
    out, shown = on_terminal(["produce", "-q", "-d", data, "-t", "t", "-l", str(lines)], colour=colour)
    assert (out, shown) == (b"", b"")


def test_json_on_the_terminal_has_no_bar_between_its_lines(tmp_path: Path, lines: Path) -> None:
    data = str(tmp_path / "data")
    on_terminal(["produce", "-q", "-d", data, "-t", "t", "-l", str(lines)], colour=False)
    for more in ([], ["--by", "partition"]):
        arguments = ["stats", "-d", data, "-J", *more]
        assert b"stats" in on_terminal(arguments, colour=False)[1]
        both = CODE.replace("sys.exit", "sys.stdout.isatty = lambda: True\nsys.exit")
        assert on_terminal(arguments, colour=False, code=both)[1] == b""


def test_data_goes_to_stdout_alone(tmp_path: Path, lines: Path) -> None:
    data = str(tmp_path / "data")
    on_terminal(["produce", "-q", "-d", data, "-t", "t", "-l", str(lines)], colour=False)
    out, _ = on_terminal(["consume", "-d", data, "-t", "t"], colour=True)
    assert out == lines.read_bytes()


def test_no_bar_where_nobody_looks(tmp_path: Path, lines: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, "produce", "-d", str(tmp_path / "data"), "-t", "t", "-l", str(lines)],
        stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"", b"t-0: 200,000 records, offsets 0 to 199999\n")


def test_a_recovery_is_shown(lines: Path, tmp_path: Path) -> None:
    """Where there is one: with its partition, before the bar of what is produced."""
    data = tmp_path / "data"
    produce = ["produce", "-d", str(data), "-t", "t", "-l", str(lines)]
    on_terminal(produce, colour=False)
    assert b"recover" not in on_terminal(produce, colour=False)[1]
    (data / ".kafka_cleanshutdown").unlink()
    shown = on_terminal(produce, colour=False)[1]
    assert b"recover t-0" in shown and shown.index(b"recover t-0") < shown.index(b"produce ")
    (data / ".kafka_cleanshutdown").unlink()
    assert b"recover" not in on_terminal([*produce, "-q"], colour=False)[1]


def test_tasks_that_are_done_are_counted_on_a_terminal_alone() -> None:
    _, shown = on_terminal([], colour=False, code=TASKS)
    assert b"verify" in shown and b"3/4 tasks" in shown and not COLOUR.search(shown)
    assert on_terminal(["-q"], colour=False, code=TASKS)[1] == b""
    done = subprocess.run([sys.executable, "-c", TASKS], capture_output=True, env=environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("command", ["stats", "report"])
def test_figures_that_take_long_have_a_bar(tmp_path: Path, lines: Path, command: str) -> None:
    """And nothing of it goes to stdout, or to a stderr that is no terminal."""
    data = str(tmp_path / "data")
    on_terminal(["produce", "-q", "-d", data, "-t", "t", "-l", str(lines)], colour=False)
    arguments = [command, data, *(["-o", "-"] if command == "report" else ["-J"])]
    out, shown = on_terminal(arguments, colour=False)
    assert command.encode() in shown and re.search(rb"/\d+\.\d .B", shown), shown
    quiet, nothing = on_terminal([*arguments, "-q"], colour=False)
    assert nothing == b"" and len(quiet) == len(out) and (b"t-0" if command == "report" else b'"topic": "t"') in out
    done = subprocess.run([sys.executable, "-c", CODE, *arguments], capture_output=True, env=environment(), timeout=120)
    assert done.returncode == 0 and b"\x1b" not in done.stdout + done.stderr and b"MB/s" not in done.stderr
