"""Running a job's command in this process, against the session of the tests."""

from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalog.cli.main import run


class Done(NamedTuple):
    """The exit status of a command, and its two outputs."""

    status: int
    out: str
    err: str


def job(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> Done:
    """Run `kafkalog spark ...` as from a shell, in this process."""
    capfd.readouterr()
    status = run(["spark", *map(str, arguments)])
    return Done(status, *capfd.readouterr())
