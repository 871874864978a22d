"""A capture of Kafka 4.4: the golden tests on it, and directories that it stopped cleanly without trimming them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.verify.directories import verify
from tests.golden_cases import unpack
from tests.trees import ROOT

pytestmark = pytest.mark.golden
CAPTURE = ROOT / "tests" / "data" / "golden44"
UNTRIMMED = ("untrimmed", "logdir")


@pytest.mark.skipif("KAFKALOG_GOLDEN" in os.environ, reason="another capture was asked for")
def test_the_golden_tests_hold_for_4_4() -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = [sys.executable, "-m", "pytest", *options, str(ROOT / "tests" / "golden")]
    environment = os.environ | {"KAFKALOG_GOLDEN": str(CAPTURE)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def partition_of(tmp_path: Path, archive: str) -> Path:
    """The partition whose last segment was not trimmed, in a copy of the data directory."""
    unpack(CAPTURE / f"{archive}.tar.gz", tmp_path)
    return tmp_path / "data" / ("t-0" if archive == "untrimmed" else "__cluster_metadata-0")


@pytest.mark.parametrize("archive", UNTRIMMED)
def test_a_clean_stop_without_trimming_is_no_damage(archive: str, tmp_path: Path) -> None:
    path = partition_of(tmp_path, archive)
    assert (path.parent / ".kafka_cleanshutdown").exists()
    index = max(path.glob("*.index"))
    assert index.read_bytes()[-8:] == bytes(8), "it has free space"
    with LogView(path) as view:
        assert view.problems == () and view.tail_damage is None
    with kafkalog.open(path) as log:
        before = [(one.offset, one.timestamp, one.key, one.value) for one in log.records()]
    report = verify(path)
    assert report.ok and {one.kind for one in report.notes} <= {"index-room", "tail-zeros"}, str(report)
    with kafkalog.open(path, "a", retention_ms=-1) as log:
        assert [(one.offset, one.timestamp, one.key, one.value) for one in log.records()] == before
    assert index.read_bytes()[-8:] != bytes(8)
    assert not [one for one in verify(path).findings if one.kind in ("index-room", "tail-zeros")]
    if archive == "untrimmed":
        assert [value for *_, value in before] == [b"value %d" % number for number in range(70)]
    else:
        assert before[-1][0] == 585
