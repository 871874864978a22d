"""A running broker's directory is sound, a killed one's too; what we repair is what the reference's recovery makes."""

import os
import shutil
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests.interop import ours
from tests.interop.broker import QUIET, Broker
from tests.interop.clients import Librdkafka
from tests.interop.reference import Reference

T = 1_700_000_000_000
INTERVAL = 300


def test_beside_a_broker_and_after_it_was_killed(reference: Reference, tmp_path: Path) -> None:
    """LOAD-10, LOG-26: no false alarm while it writes and rolls, after a kill, and after a clean stop."""
    data = tmp_path / "data"
    data.mkdir()
    with Broker(reference, tmp_path / "first", data, QUIET) as broker:
        settings = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
        broker.ask("create_topic", topic="busy", config=settings)
        client = Librdkafka(broker.bootstrap)
        done = threading.Event()

        def produce() -> None:
            n = 0
            while not done.is_set():
                client.produce("busy", [(T + n + i, b"k", os.urandom(900), ()) for i in range(300)], "none")
                n += 300

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            for n in range(15):
                report = verify(data, deep=n % 5 == 0)
                assert report.ok, str(report)
        finally:
            done.set()
            thread.join()
        assert report.sums.records > 300 and len(list((data / "busy-0").glob("*.log"))) > 1
        assert broker._process is not None
        broker._process.kill()
    report = verify(data, deep=True)
    assert report.ok and "unclean" in [one.kind for one in report.notes], str(report)
    with Broker(reference, tmp_path / "second", data, QUIET):
        assert verify(data).ok
    report = verify(data, deep=True)
    assert report.ok and not report.notes, str(report)


@pytest.mark.parametrize("batch", [1, 7])
def test_a_repaired_log_is_what_recovery_leaves_and_opens_clean(
    reference: Reference, tmp_path: Path, batch: int
) -> None:
    """SEG-20, SEG-22: the same `.log`, `.index` and `.timeindex`, byte for byte, torn end included."""
    mine = ours.partition(tmp_path / "mine", "t-0")
    with kafkalog.open(mine, "a", segment_bytes=1 << 20, index_interval_bytes=INTERVAL) as log:
        for n in range(0, 3000, batch):
            log.append([(None, b"v%d" % i + b"." * 700, T + i * 3 - (i % 5)) for i in range(n, n + batch)])
    segments = sorted(mine.glob("*.log"))
    assert len(segments) > 1
    segments[0].with_suffix(".index").write_bytes(b"no index at all")
    segments[0].with_suffix(".timeindex").unlink()
    with segments[-1].open("ab") as file:
        file.write(segments[0].read_bytes()[:333])
    (mine.parent / ".kafka_cleanshutdown").unlink()
    theirs = ours.partition(tmp_path / "theirs", "t-0")
    shutil.copytree(mine, theirs)
    with reference.open(theirs, {"index.interval.bytes": INTERVAL}, clean=False) as log_of_reference:
        log_of_reference.close()
    assert not verify(mine).ok
    repair(mine.parent, apply=True, all_indexes=True, index_interval_bytes=INTERVAL)
    assert ours.files(mine) == ours.files(theirs)
    assert verify(mine.parent, deep=True).ok
    with reference.open(mine, {"index.interval.bytes": INTERVAL}, clean=True) as opened:
        assert opened.read() == ours.records(mine)
