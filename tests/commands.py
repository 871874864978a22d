"""Running the `kafkalog` command as a user does: another process, its status, its two outputs."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

from kafkalog.testing import hosting
from tests.command_server import IS_POSSIBLE, CommandServer, Forked

ROOT = Path(__file__).parent.parent
MODULE = "kafkalog.cli.main"
LINE = [sys.executable, "-m", MODULE]
ALONE = hosting.start_inside
"""How `kafkalog.testing` starts its processes outside of these tests."""


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


def start_inside(module: str, control: socket.socket, log: BinaryIO) -> "Forked | subprocess.Popen[bytes]":
    """Start a process of `kafkalog.testing` as `hosting.start_inside` does, in a fork where that can be."""
    program = ["-c", hosting._CHILD.format(module), str(hosting.ROOT), "3"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    imports = f"kafkalog.testing.inside.{module}", "uvloop"
    return begun(program, log, os.getcwd(), environ, imports, control.fileno()) or ALONE(module, control, log)


def begun(
    program: list[str], log: BinaryIO, cwd: str | Path, environ: Mapping[str, str], imports: Sequence[str], *more: int
) -> Forked | None:
    """Return a program that runs in a fork, its outputs in one file; None where a fork cannot run it."""
    if not IS_POSSIBLE:
        return None
    with open(os.devnull, "rb") as nothing:
        files = [nothing.fileno(), log.fileno(), log.fileno(), *more]
        return server().start(program, files, str(cwd), environ, imports=imports)


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
