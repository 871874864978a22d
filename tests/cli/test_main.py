"""The command itself: version, help, unknown words, errors without traceback, lazy imports."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

import click
import pytest

from kafkalog import __version__
from kafkalog.cli import main
from tests.commands import environment, kafkalog, ok

COMMANDS = sorted(main.COMMANDS)


def test_version() -> None:
    assert ok("--version") == f"kafkalog {__version__}\n".encode()


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["topics", "create"], ["offsets", "get"]])
def test_help(command: list[str]) -> None:
    for flag in ("--help", "-h"):
        text = ok(*command, flag)
        assert text.startswith(b"Usage: kafkalog") and b"Traceback" not in text


def test_help_names_every_command() -> None:
    text = ok("--help").decode()
    for name, (_, line) in main.COMMANDS.items():
        assert name in text and line.split()[0] in text


def _commands_below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield (name, command) of the leaves of the command tree."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for inner, one in command.commands.items():
        yield from _commands_below(f"{name} {inner}", one)


LEAVES = [
    leaf for name, (module, _) in main.COMMANDS.items() for leaf in _commands_below(name, import_module(module).command)
]


@pytest.mark.parametrize(("name", "command"), LEAVES, ids=[name for name, _ in LEAVES])
def test_help_has_a_correct_example(name: str, command: click.Command) -> None:
    lines = cleandoc(command.help or "").splitlines()
    examples = [line for line in lines if line.startswith("Example: kafkalog ")]
    own = [line for line in examples if line.startswith(f"Example: kafkalog {name} ")]
    assert own, f"no line begins with 'Example: kafkalog {name}'"
    for line in own:
        words = shlex.split(line.removeprefix(f"Example: kafkalog {name} "))
        command.make_context(name, words)  # raises UsageError for a wrong option or value
    shown = command.get_help(click.Context(command, info_name=name))
    assert f"Example: kafkalog {name} " in " ".join(shown.split())


@pytest.mark.parametrize(
    "arguments", [["consum"], ["--nonsense"], ["topics", "lst"], ["consume", "--nonsense"], ["offsets"], []]
)
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    done = kafkalog(*arguments)
    assert done.returncode == 2 and b"Usage" in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


def test_a_near_word_is_suggested() -> None:
    assert b"consume" in kafkalog("consum").stderr


def test_only_the_command_that_runs_is_imported() -> None:
    code = "import sys; from kafkalog.cli.main import run; run(['--version']); print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment()).stdout.split()
    assert not {b"click", b"numpy", b"rich", b"kafkalog.log.log", b"kafkalog._core.batch.scan"} & set(modules)


def test_an_unexpected_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "build", broken)
    with pytest.raises(ZeroDivisionError):
        main.run(["ls"])


def test_an_error_is_one_message_with_a_hint(tmp_path: Path) -> None:
    done = kafkalog("consume", "-d", tmp_path, "-t", "t")
    assert done.returncode == 1 and done.stdout == b""
    assert done.stderr.startswith(b"kafkalog: ") and done.stderr.count(b"\n") == 1 and b"Hint:" in done.stderr


LOSES_A_SIGNAL = """
import os, sys, time
from kafkalog.cli import main

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(0.001)

def work(args):
    Finalized()
    time.sleep(60)

main.build = lambda: type("Commands", (), {"main": lambda self, args, **more: work(args)})()
main.main()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_a_finalizer_ends_the_program(number: int, status: int) -> None:
    """Python drops what the signal's handler raises there."""
    command = [sys.executable, "-c", LOSES_A_SIGNAL, str(number)]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def test_ctrl_c_while_the_command_line_is_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kafkalog.cli.main import main; main()"
    found = subprocess.run([sys.executable, "-c", code, "topics"], capture_output=True, env=environment(), check=False)
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")
