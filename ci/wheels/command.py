"""Programs that are run: their output goes to a file, and a failure says what was run and how it ended."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SHOWN_LINES = 25


class Failed(Exception):
    """A step that did not work out: what was tried, and the last lines it said."""


def run(
    command: Sequence[str | Path], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Run `command` with `env` added to the environment; its output is returned and added to `log`.

    Raises `Failed` where it cannot be started or exits with another status than 0.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=cwd, env={**os.environ, **(env or {})}, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise Failed(f"{words[0]} cannot be run: {error}") from error
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(words)}\n{done.stdout}\n")
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-SHOWN_LINES:])
        raise Failed(f"status {done.returncode} of: {' '.join(words)}\n{last}\n(all of it: {log})")
    return done.stdout
