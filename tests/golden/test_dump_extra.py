"""The command line of the dump tool on damaged files, internal topics and odd options: every run of golden/dump-extra.

Standard output is the reference's; so is standard error where it ended with status 0. Where it died ours ends with
another status and one message. DUMP-3, DUMP-4, DUMP-8, DUMP-9, DUMP-13, DUMP-15.
"""

import functools
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.cli.main import run
from tests.golden_cases import GOLDEN, unpack

pytestmark = pytest.mark.golden

FOLDER = GOLDEN / "dump-extra"
OWN_WORDS = {"--help", "--version"}


@functools.cache
def runs() -> list[dict[str, Any]]:
    """The runs of the capture, none where it has not this folder."""
    path = FOLDER / "runs.json.gz"
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["runs"] if path.is_file() else []
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory that the runs were made in."""
    target = tmp_path_factory.mktemp("dump-extra")
    unpack(FOLDER / "data.tar.gz", target)
    yield target / "data"


def params() -> list[Any]:
    found = [pytest.param(one, id=str(number)) for number, one in enumerate(runs())]
    skip = pytest.mark.skip(reason=f"no dump-extra in the golden capture {GOLDEN.name!r}")
    return found or [pytest.param(None, id="absent", marks=skip)]


@pytest.mark.parametrize("one", params())
def test_run(
    one: dict[str, Any], data: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(data)
    status = run(["dump", *one["args"]])
    printed = capfdbinary.readouterr()
    if OWN_WORDS & set(one["args"]):
        assert status == 0
        assert printed.out
        return
    assert printed.out.decode() == one["stdout"]
    assert (status == 0) == (one["exit"] == 0)
    complaints = printed.err.decode().replace(os.getcwd(), "<DATADIR>")
    if one["exit"] == 0:
        assert complaints == one["stderr"]
    else:
        assert complaints and "Traceback" not in complaints
