"""Running a program of examples/ as a user does: another process, its status, its two outputs."""

import signal
import subprocess
import sys
from pathlib import Path

from tests import commands
from tests.commands import environment

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def line(name: str, *arguments: str | Path) -> list[str]:
    """The command that runs a program of that name."""
    return [sys.executable, str(EXAMPLES / name), *map(str, arguments)]


def run(name: str, *arguments: str | Path, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    """The finished program."""
    done = commands.run([str(EXAMPLES / name), *map(str, arguments)], cwd=cwd, timeout_s=300, **env)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def said(name: str, *arguments: str | Path, cwd: Path | None = None, **env: str) -> list[str]:
    """The lines that a program which must succeed printed."""
    done = run(name, *arguments, cwd=cwd, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def refused(name: str, *arguments: str | Path, status: int = 1) -> str:
    """Return the stderr of a program that must fail: never a traceback."""
    done = run(name, *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def started(name: str, *arguments: str | Path) -> "subprocess.Popen[str]":
    """A running program; Ctrl-C is not ignored in it, whatever our parent does."""
    return subprocess.Popen(
        line(name, *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(), preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


AGAIN_S = 60


def interrupted(program: "subprocess.Popen[str]") -> None:
    """Ends a running program by Ctrl-C, which it must take well.

    Python drops a Ctrl-C that comes as a finalizer begins, and says so on stderr: as a user does, it is pressed again.
    """
    for is_last in (False, True):
        program.send_signal(signal.SIGINT)
        try:
            _, errors = program.communicate(timeout=AGAIN_S)
        except subprocess.TimeoutExpired as expired:
            said = (expired.stderr or b"").decode()
            if is_last or "Exception ignored in: <function" not in said:
                raise
        else:
            assert program.returncode == 130
            assert errors.count("Traceback") == errors.count("Exception ignored in: <function"), errors
            return
