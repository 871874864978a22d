"""A broker opens a log whose damaged bytes were left out, and its consumer gets every sound record."""

import os
from pathlib import Path

from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests.interop import ours
from tests.interop.broker import QUIET, Broker
from tests.interop.clients import Librdkafka
from tests.interop.reference import Reference

T = 1_700_000_000_000
COUNT = 3000


def damage(path: Path, first: int, field: int) -> list[int]:
    """Flip a bit of one batch in the middle of the segment; its offsets come back. `field` 0 is its base offset."""
    data = bytearray(path.read_bytes())
    at, number = 0, 0
    while number < first:
        at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
        number += 1
    base, delta = int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 23 : at + 27], "big")
    data[at + (5 if field == 0 else 100)] ^= 1
    path.write_bytes(data)
    return list(range(base, base + delta + 1))


def test_the_broker_s_consumer_reads_every_sound_record_after_an_excision(reference: Reference, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with Broker(reference, tmp_path / "first", data, QUIET) as broker:
        settings = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
        broker.ask("create_topic", topic="t", config=settings)
        client = Librdkafka(broker.bootstrap)
        for n in range(0, COUNT, 20):
            client.produce("t", [(T + n + i, b"k", os.urandom(900), ()) for i in range(20)], "none")
        before = broker.consume("t")
    assert len(before) == COUNT
    segments = sorted((data / "t-0").glob("*.log"))
    assert len(segments) > 2
    lost = damage(segments[0], 3, 1) + damage(segments[1], 5, 0) + damage(segments[-1], 2, 1)
    assert not verify(data).ok
    report = repair(data, apply=True, excise=True)
    assert report.ok and verify(data, deep=True).ok, str(report)
    wanted = [record for record in before if record[0] not in lost]
    assert 0 < len(wanted) < COUNT
    assert ours.records(data / "t-0") == wanted
    with Broker(reference, tmp_path / "second", data, QUIET) as broker:
        assert broker.consume("t") == wanted
        client = Librdkafka(broker.bootstrap)
        client.produce("t", [(T + COUNT, b"k", b"after", ())], "none")
        assert broker.consume("t")[-1][:1] == (COUNT,)
    assert verify(data, deep=True).ok
