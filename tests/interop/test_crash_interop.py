"""Directories of killed writers, opened by the reference as by a broker after a crash: it finds what we find."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import UnsafeFileSystem
from tests.crash.killer import Killed, Killer
from tests.crash.power import TOPIC
from tests.crash.session import settings_of
from tests.interop import ours
from tests.interop.reference import Reference

DIRECTORIES = 50

pytestmark = [pytest.mark.crash, pytest.mark.filterwarnings(f"ignore::{UnsafeFileSystem.__module__}.UnsafeFileSystem")]


@pytest.fixture(scope="module")
def killed() -> Iterator[list[Killed]]:
    """What as many writers left, each killed at a random moment."""
    place = Path(tempfile.mkdtemp(prefix="kafkalog-crash-"))
    with Killer() as killer:
        yield [killer.kill_one(place / str(seed), seed) for seed in range(DIRECTORIES)]
    shutil.rmtree(place)


def reference_settings(seed: int) -> dict[str, object]:
    """The topic's settings by the names that the reference gives them.

    With room in the indexes: where they are small, a recovery that puts entries elsewhere finds them full, and the
    reference refuses such a log.
    """
    given = settings_of(seed)
    return {
        "internal.segment.bytes": given["internal_segment_bytes"],
        "index.interval.bytes": given["index_interval_bytes"],
        "segment.index.bytes": 65536,
        "retention.bytes": given["retention_bytes"],
        "preallocate": str(given["preallocate"]).lower(),
    }


def log_start(root: Path) -> int:
    """What the directory's checkpoint says, as a broker reads it."""
    file = root / "log-start-offset-checkpoint"
    lines = file.read_text().split("\n")[2:] if file.exists() else []
    return int(lines[0].split()[2]) if lines and lines[0] else 0


def test_the_reference_recovers_the_same(reference: Reference, killed: list[Killed], tmp_path: Path) -> None:
    """LOAD-10: log start, log end and every record of 50 crashed directories, recovered by both."""
    for one in killed:
        theirs = shutil.copytree(one.root, tmp_path / f"theirs-{one.seed}") / TOPIC
        with kafkalog.open(one.root / TOPIC, "a", **settings_of(one.seed)) as log:
            start, end = log.start_offset, log.end_offset
        settings = reference_settings(one.seed)
        with reference.open(theirs, settings, clean=False, log_start=log_start(theirs.parent)) as log:
            state = log.state
            assert (state["log_start_offset"], state["log_end_offset"]) == (start, end), one.seed
            assert log.read() == ours.records(one.root / TOPIC), one.seed
        shutil.rmtree(theirs.parent)
