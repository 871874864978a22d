"""Directories of killed writers, opened by the reference as by a broker after a crash: it finds what we find."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import UnsafeFileSystem
from kafkalog.log.open_writable import open_for_append
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from tests.crash.killer import Killed, Killer
from tests.crash.power import TOPIC
from tests.crash.session import settings_of
from tests.interop import ours
from tests.interop.reference import Reference

DIRECTORIES = 50

pytestmark = [pytest.mark.crash, pytest.mark.filterwarnings(f"ignore::{UnsafeFileSystem.__module__}.UnsafeFileSystem")]


@pytest.fixture(scope="module")
def killed() -> Iterator[list[Killed]]:
    """Yield the directories of several writers, each killed at a random moment."""
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
    """Return the log start in the directory's checkpoint, as a broker reads it."""
    file = root / "log-start-offset-checkpoint"
    lines = file.read_text().split("\n")[2:] if file.exists() else []
    return int(lines[0].split()[2]) if lines and lines[0] else 0


def compare(
    reference: Reference, root: Path, theirs: Path, given: dict[str, Any], settings: dict[str, object]
) -> None:
    """Recovers `root` by us and its copy `theirs` by the reference: log start, log end and every record agree.

    Where a crash came while the only segment, an empty one, gave way to its successor, there is no segment. Then the
    reference goes back to the checkpoint's log start, below offsets that were given out; we stay where the log was.
    """
    has_segments = any(theirs.glob("*.log"))
    with kafkalog.open(root / TOPIC, "a", **given) as log:
        start, end = log.start_offset, log.end_offset
    with reference.open(theirs, settings, clean=False, log_start=log_start(theirs.parent)) as log:
        found = (log.state["log_start_offset"], log.state["log_end_offset"])
        if has_segments:
            assert found == (start, end), root
        else:
            assert start == end >= found[1], root
        assert log.read() == ours.records(root / TOPIC), root


def test_the_reference_recovers_the_same(reference: Reference, killed: list[Killed], tmp_path: Path) -> None:
    """LOAD-10: log start, log end and every record of 50 crashed directories, recovered by both."""
    for one in killed:
        theirs = shutil.copytree(one.root, tmp_path / f"theirs-{one.seed}") / TOPIC
        compare(reference, one.root, theirs, settings_of(one.seed), reference_settings(one.seed))
        shutil.rmtree(theirs.parent)


def test_a_crash_between_two_empty_segments(reference: Reference, tmp_path: Path) -> None:
    """LOAD-13: what such a crash leaves; a log never gives out an offset again."""
    root = tmp_path / "data"
    opened = open_for_append(root / TOPIC)
    opened.append_batches(encode_batch([b"v"] * 258, timestamp=1))
    opened.log.truncate_fully_and_start_at(280)
    opened.close()
    (root / CLEAN_SHUTDOWN_FILE).unlink()
    for path in (root / TOPIC).glob("*280.*"):
        if path.suffix != ".snapshot":
            path.rename(f"{path}.deleted")
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC.rpartition('-')[0]} 0 243\n")
    theirs = shutil.copytree(root, tmp_path / "theirs") / TOPIC
    compare(reference, root, theirs, {}, {})
    with kafkalog.open(root / TOPIC) as log:
        assert log.end_offset == 280
