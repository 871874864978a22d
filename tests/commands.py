"""Running the `kafkalog` command as a user does: another process, its status, its two outputs."""

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.command_server import IS_POSSIBLE, CommandServer

ROOT = Path(__file__).parent.parent
MODULE = "kafkalog.cli.main"
LINE = [sys.executable, "-m", MODULE]


def environment(**more: str) -> dict[str, str]:
    """The surroundings of a run: no data directory by default, no colour, this source tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKALOG_")}
    return {**kept, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100", **more}


def kafkalog(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    """The finished command; its outputs as bytes."""
    return run([MODULE, *map(str, arguments)], stdin=stdin, cwd=cwd, timeout_s=120, **env)


def run(
    program: list[str], *, stdin: bytes = b"", cwd: Path | None = None, timeout_s: int, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    """Return a finished program, which is a module or a file with its arguments; its outputs as bytes."""
    environ = environment(**env)
    if IS_POSSIBLE:
        done = server().run(program, stdin, os.path.abspath(cwd or "."), environ, timeout_s)
        if done is not None:
            return done
    line = [sys.executable, *([] if program[0].endswith(".py") else ["-m"]), *program]
    return subprocess.run(line, input=stdin, capture_output=True, cwd=cwd, env=environ, timeout=timeout_s)


@cache
def server() -> CommandServer:
    """Return what runs the commands of this process."""
    return CommandServer(environment())


def ok(*arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str) -> bytes:
    """Return the stdout of a command that must succeed."""
    done = kafkalog(*arguments, stdin=stdin, cwd=cwd, **env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def started(*arguments: str | Path, **env: str) -> "subprocess.Popen[bytes]":
    """A running command with pipes at all three ends; Ctrl-C is not ignored in it, whatever our parent does."""
    return subprocess.Popen(
        [*LINE, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**env),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
