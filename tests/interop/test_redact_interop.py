"""A broker opens a redacted directory, and its consumer reads the same offsets, times and keys."""

import os
from pathlib import Path

from kafkalog.redact import redact
from kafkalog.tools.verify.directories import verify
from tests.interop.broker import QUIET, Broker
from tests.interop.clients import Librdkafka
from tests.interop.reference import Reference

T = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_the_broker_s_consumer_reads_every_offset_after_a_redaction(reference: Reference, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with Broker(reference, tmp_path / "first", data, QUIET) as broker:
        settings = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
        broker.ask("create_topic", topic="t", config=settings)
        client = Librdkafka(broker.bootstrap)
        for n in range(0, 2000, 20):
            rows = [(T + n + i, b"k%d" % (i % 7), os.urandom(1500), ()) for i in range(20)]
            client.produce("t", rows, CODECS[n // 20 % 5])
        before = broker.consume("t")
    assert len(before) == 2000 and len(list((data / "t-0").glob("*.log"))) > 1
    report = redact(data, "t", keys=[b"k3"], offsets={0: [0, 1999]}, change="empty", apply=True)
    assert report.ok and verify(data, deep=True).ok, str(report)
    with Broker(reference, tmp_path / "second", data, QUIET) as broker:
        after = broker.consume("t")
        assert [one[0] for one in after] == [one[0] for one in before]
        wanted = {number for number, one in enumerate(before) if b"k3" in one} | {0, 1999}
        changed = {number for number, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]}
        assert changed == wanted
        assert all(b"" in after[number] for number in wanted)
        client = Librdkafka(broker.bootstrap)
        client.produce("t", [(T + 2000, b"k", b"after", ())], "none")
        assert broker.consume("t")[-1][:1] == (2000,)
    assert verify(data, deep=True).ok
