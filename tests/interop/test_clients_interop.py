"""librdkafka, aiokafka and the Java client read what we wrote, through a real broker; we read what they send it.

The broker makes the topics and stops; we write batches of every format and codec into their directories; it starts
again on them, as they are.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kafkalog
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType, codec_name
from kafkalog.records.legacy import LegacyBuilder
from tests.interop import ours
from tests.interop.broker import QUIET, Broker
from tests.interop.clients import Aiokafka, Client, Librdkafka, Row
from tests.interop.reference import RecordTuple, Reference

T = 1_700_000_000_000
PER_SET = 100
CLIENTS = {"confluent_kafka": Librdkafka, "aiokafka": Aiokafka}
# no implementation has zstd for v0 and v1
KINDS = [(magic, codec) for magic in (0, 1, 2) for codec in CompressionType if magic == 2 or codec < 4]
kinds = pytest.mark.parametrize(("magic", "codec"), KINDS)


def rows_to_read() -> list[Row]:
    """Null and empty parts, headers, and values that fill many blocks of a codec."""
    random = Random(9)
    rows: list[Row] = [
        (T, None, None, ()),
        (T + 5, b"", b"", ()),
        (T - 3, b"key", b"value", (("h", b"1"), ("h", None), ("é", b"\xff\0"))),
        (T + 9, b"k" * 200, None, (("empty", b""),)),
        (T + 10, None, b"a value that repeats, " * 9000, ()),
        (T + 11, b"k", random.randbytes(150_000), ()),
    ]
    return rows + [(T + 20 + n, b"%d" % n, random.randbytes(n % 90), ()) for n in range(300)]


ROWS = rows_to_read()


def topic_name(magic: int, codec: CompressionType) -> str:
    return f"v{magic}-{codec_name(codec)}"


def sets(magic: int, codec: CompressionType) -> bytes:
    """The rows in batches, or plain messages, of PER_SET records, with offsets and leader epoch."""
    out = b""
    for start in range(0, len(ROWS), PER_SET):
        make: Any = RecordsBuilder if magic == 2 else LegacyBuilder
        more = {"leader_epoch": 0} if magic == 2 else {}
        builder = make(start, magic=magic, compression=codec, **more)
        for row in ROWS[start : start + PER_SET]:
            builder.append(*row[: 4 if magic == 2 else 3])
        out += bytes(builder.build())
    return out


def expected(magic: int) -> list[RecordTuple]:
    return [
        (n, t if magic else -1, key, value, tuple(headers) if magic == 2 else ())
        for n, (t, key, value, headers) in enumerate(ROWS)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients") / "data"


@pytest.fixture(scope="module")
def broker(reference: Reference, data: Path) -> Iterator[Broker]:
    """A broker that serves a topic of each format and codec, written by us, and empty ones to send to."""
    data.mkdir()
    sent_to = [f"from-{name}-{codec_name(codec)}" for name in CLIENTS for codec in CompressionType]
    with Broker(reference, data.parent / "first", data, QUIET) as first:
        for topic in [topic_name(*kind) for kind in KINDS] + sent_to:
            first.ask("create_topic", topic=topic)
    for kind in KINDS:
        with kafkalog.open(data / f"{topic_name(*kind)}-0", "a") as log:
            log.replicate(sets(*kind))
    with Broker(reference, data.parent / "second", data, QUIET) as second:
        yield second


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    pytest.importorskip(request.param, reason=f"{request.param} is not installed: pip install kafkalog[test]")
    made: Client = CLIENTS[request.param](broker.bootstrap)
    return made


@kinds
def test_they_consume_ours(client: Client, magic: int, codec: CompressionType) -> None:
    if isinstance(client, Aiokafka) and (magic, codec) == (0, CompressionType.LZ4):
        pytest.skip("aiokafka does not read lz4 in format v0")
    assert client.consume(topic_name(magic, codec), len(ROWS)) == expected(magic)


@kinds
def test_the_java_client_consumes_ours(broker: Broker, magic: int, codec: CompressionType) -> None:
    assert broker.consume(topic_name(magic, codec)) == expected(magic)


@kinds
def test_the_broker_left_our_bytes_alone(broker: Broker, data: Path, magic: int, codec: CompressionType) -> None:
    log = data / f"{topic_name(magic, codec)}-0" / f"{0:020d}.log"
    assert log.read_bytes() == sets(magic, codec)


@pytest.mark.parametrize("codec", CompressionType)
def test_we_read_what_they_send(client: Client, data: Path, codec: CompressionType) -> None:
    """While the broker has the directory open; aiokafka sends no record without key and value."""
    name = next(name for name, kind in CLIENTS.items() if isinstance(client, kind))
    topic = f"from-{name}-{codec_name(codec)}"
    rows = [row for row in ROWS if name != "aiokafka" or row[1] is not None or row[2] is not None]
    client.produce(topic, rows, codec_name(codec))
    sent = [(n, t, key, value, tuple(headers)) for n, (t, key, value, headers) in enumerate(rows)]
    assert ours.records(data / f"{topic}-0") == sent
    with kafkalog.open(data / f"{topic}-0") as log:
        assert codec in {batch.header.compression for batch in log.batches()}
