"""Running the `kafkalog` command as a user does: another process, its status, its two outputs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINE = [sys.executable, "-m", "kafkalog.cli.main"]


def environment(**more: str) -> dict[str, str]:
    """The surroundings of a run: no data directory by default, no colour, this source tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKALOG_")}
    return {**kept, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100", **more}


def kafkalog(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    """The finished command; its outputs as bytes."""
    return subprocess.run(
        [*LINE, *map(str, arguments)], input=stdin, capture_output=True, cwd=cwd, env=environment(**env), timeout=120
    )


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
