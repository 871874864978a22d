"""`python -m kafkalog`, and what a shell is told when it asks how a line may go on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog as library
from kafkalog import __version__
from kafkalog.cli import main
from tests.commands import LINE, environment, kafkalog, ok

ASK = {"_KAFKALOG_COMPLETE": "bash_complete"}


def complete_line(line: str, **env: str) -> list[str]:
    """What bash may put for the last word of `line`: `plain,<word>`, or what kind of file."""
    words = line.split(" ")
    return ok(COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **ASK, **env).decode().split()


def test_the_package_is_the_command_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafkalog", "--version"], capture_output=True, env=environment(), cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, f"kafkalog {__version__}\n".encode())
    wrong = subprocess.run([sys.executable, "-m", "kafkalog", "consum"], capture_output=True, env=environment())
    assert wrong.returncode == 2 and wrong.stderr.startswith(b"Usage: kafkalog [")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_asks_the_command(shell: str) -> None:
    script = ok("completion", shell).decode()
    assert f"_KAFKALOG_COMPLETE={shell}_complete" in script and "kafkalog" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script.encode(), check=True)


def test_another_shell_is_wrong_usage() -> None:
    done = kafkalog("completion", "csh")
    assert done.returncode == 2 and b"bash" in done.stderr and b"Traceback" not in done.stderr


def test_commands_options_and_files() -> None:
    assert complete_line("kafkalog co") == ["plain,compact", "plain,completion", "plain,consume", "plain,copy"]
    assert complete_line("kafkalog topics d") == ["plain,delete", "plain,describe"]
    assert "plain,--isolation-level" in complete_line("kafkalog consume --i")
    assert complete_line("kafkalog completion z") == ["plain,zsh"]
    assert complete_line("kafkalog consume -d da") == ["file,da"]


def test_no_command_is_imported_to_name_it() -> None:
    code = (
        "import sys, click; from kafkalog.cli.main import build; group = build()\n"
        "names = [one.value for one in group.shell_complete(click.Context(group), 'c')]\n"
        "print(*names, 'kafkalog.cli.consume_cmd' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=True).stdout
    wanted = sorted(name for name in main.COMMANDS if name.startswith("c"))
    assert said.decode().split() == [*wanted, "False"]


def test_topics_of_the_directory_are_offered(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "others-0", "zebra-0"):
        library.open(tmp_path / name, "a").close()
    wanted = ["plain,orders", "plain,others"]
    assert complete_line(f"kafkalog consume -d {tmp_path} -t o") == wanted
    assert complete_line("kafkalog stats -t o", KAFKALOG_DIR=str(tmp_path)) == wanted
    assert complete_line(f"kafkalog consume -d {tmp_path / 'missing'} -t o") == []
    assert complete_line(f"kafkalog consume -d {tmp_path / 'orders-0'} -t o") == []
    assert complete_line("kafkalog consume -t o") == []


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    """The script as bash runs it; the program stands on the path."""
    program = tmp_path / "kafkalog"
    program.write_text("#!/bin/sh\nexec " + " ".join(LINE) + ' "$@"\n')
    program.chmod(0o755)
    code = (
        'eval "$(kafkalog completion bash)"; COMP_WORDS=(kafkalog ver); COMP_CWORD=1\n'
        '_kafkalog_completion kafkalog; echo "${COMPREPLY[@]}"; complete -p kafkalog'
    )
    path = f"{tmp_path}:{environment()['PATH']}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, env=environment(PATH=path), text=True)
    assert done.stdout == "verify\ncomplete -o nosort -F _kafkalog_completion kafkalog\n", done.stderr
