"""LogValidator and conversion against the real ones: random sets, sound and not, and logs that took every format."""

import base64
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kafkalog
from fuzz.leader import validate_and_assign_offsets
from kafkalog import convert
from kafkalog._core.batch.legacy import MessageSet, wrapper
from kafkalog._core.batch.scan import scan
from kafkalog.errors import InvalidRecord, InvalidTimestamp, KafkalogError
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.validate import ValidationRules, ValidatorMetrics
from tests.builder import R, batch, seal
from tests.interop.reference import RecordTuple, Reference, record_tuple

T = 1_700_000_000_000
CODECS = list(CompressionType)
# errors of the reference that are no decision of the validator: what it has skipped, or a codec's own
UNCONTROLLED = {"UnsupportedOperationException", "KafkaException", "IllegalArgumentException"}
KINDS = {"InvalidRecordException": InvalidRecord, "InvalidTimestampException": InvalidTimestamp}
COUNTERS = ("invalid_magic", "invalid_offset", "invalid_sequence", "invalid_checksums", "no_key_compacted_topic")
WITH_RECORDS_TEXT = ("does not match outer magic", "Invalid timestamp type in message")


def random_rows(random: Random) -> list[R]:
    times = [T, T + 1, T - 999, T + 2000, T - 2000, -1]
    return [
        R(
            random.choice([None, b"", b"v" * random.randrange(60)]),
            random.choice([None, b"k", b"key" * 9]) if random.random() < 0.3 else b"k",
            random.choice(times[: random.choice([1, 3, 6])]),
            (("h", random.choice([None, b"1"])),) if random.random() < 0.3 else (),
        )
        for _ in range(random.randint(1, 6))
    ]


def v2(random: Random) -> bytes:
    """A batch of any codec, with now and then a header that lies."""
    fields: dict[str, int] = {}
    if random.random() < 0.3:
        fields |= {"producer_id": 7, "producer_epoch": 1, "base_sequence": random.choice([0, 5, -1])}
    if random.random() < 0.3:
        fields |= random.choice([
            {"last_delta": 3}, {"last_delta": -1}, {"count": 0}, {"count": 9}, {"max_timestamp": T + 7},
        ])  # fmt: skip
    codec = random.choice(CODECS)
    fields["attributes"] = codec | (8 if random.random() < 0.1 else 0) | (0x20 if random.random() < 0.1 else 0)
    plain = batch(random_rows(random), **fields)
    body = bytes(compress(codec, plain[61:]))
    return seal(plain[:8] + (61 + len(body) - 12).to_bytes(4, "big") + plain[12:61] + body)


def old(random: Random) -> bytes:
    """Messages of v0 or v1, plain or wrapped, with now and then a wrong offset, format or checksum inside."""
    magic, codec = random.choice([0, 1]), random.choice(CODECS[:4])
    rows = random_rows(random)
    inner = bytearray()
    for at, row in enumerate(rows):
        other = magic == 1 and codec and random.random() < 0.05
        one = MessageSet(0 if other else magic)
        offset = at + (1 if codec and random.random() < 0.05 else 0)
        one.append(offset, row.timestamp, row.key, row.value)
        inner += one.build()
    if codec and random.random() < 0.1:
        inner[12] ^= 1
    if not codec:
        return bytes(inner)
    time = max(row.timestamp for row in rows)
    stamped = magic == 1 and random.random() < 0.1
    return bytes(
        wrapper(
            compress(codec, inner, magic=magic), magic=magic, codec=codec, offset=len(rows) - 1, timestamp=time,
            append_time=stamped,
        )
    )  # fmt: skip


def records_of(data: bytes) -> list[RecordTuple]:
    return [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for b in MemoryRecords(data).batches() for r in b
    ]


def assert_same_refusal(error: KafkalogError, theirs: dict[str, Any]) -> None:
    """The kind, and the records that are named, with the same reasons."""
    kind = theirs["error"]
    if kind in UNCONTROLLED:
        return
    assert type(error) is KINDS.get(kind) or kind == "CorruptRecordException", (error, theirs)
    ours = [list(pair) for pair in getattr(error, "record_errors", ())]
    assert [index for index, _ in ours] == [index for index, _ in theirs["records"]]
    for (_, mine), (_, text) in zip(ours, theirs["records"], strict=True):
        assert mine == text or any(words in text and words in mine for words in WITH_RECORDS_TEXT)


def compare(reference: Reference, data: bytes, random: Random) -> str:
    """Return the result of one set, which must be the same on both sides: "taken" or the reference's error."""
    target = random.choice([None, *CODECS])
    head = scan(data)[0]
    sound = head.magic < 2 or 0 < head.count == head.last_offset + 1  # else they assign a coordinator any offsets
    stamps, client, compact = random.random() < 0.3, random.random() < 0.85 or not sound, random.random() < 0.2
    before, after = (1000, 1000) if random.random() < 0.5 else (2**63 - 1, 3_600_000)
    theirs = reference.ask(
        "validate", data=base64.b64encode(data).decode(), target="producer" if target is None else target.name.lower(),
        log_append_time=stamps, before_ms=before, after_ms=after, compact=compact, now=T, epoch=6, client=client,
        first_offset=123,
    )  # fmt: skip
    rules = ValidationRules(target, append_time=stamps, before_ms=before, after_ms=after, need_keys=compact)
    metrics = ValidatorMetrics()
    try:
        ours = validate_and_assign_offsets(
            data, 123, rules, T, from_client=client, leader_epoch=6, partition="t-0", metrics=metrics
        )
    except KafkalogError as error:
        assert "error" in theirs, f"we refuse what they take: {error!r}"
        assert_same_refusal(error, theirs)
        if theirs["error"] not in UNCONTROLLED:
            assert theirs["counters"] == [getattr(metrics, name) for name in COUNTERS]
        return str(theirs["error"])
    if head.is_control and ours.message_size_maybe_changed:
        return "control"  # they lose the flag of a compressed control batch, which no coordinator sends
    assert "error" not in theirs, f"we take what they refuse: {theirs}"
    assert (ours.next_offset, ours.max_timestamp_ms) == (theirs["next_offset"], theirs["max_timestamp"])
    assert ours.message_size_maybe_changed == theirs["size_may_have_changed"]
    assert ours.stats.records_converted == theirs["converted"]
    written = base64.b64decode(theirs["data"])
    assert records_of(bytes(ours.records)) == records_of(written)
    (mine,), (real,) = (list(MemoryRecords(one).table) for one in (ours.records, written))
    for name in ("base_offset", "last_offset", "attributes", "producer_id", "producer_epoch", "base_sequence",
                 "leader_epoch", "base_timestamp", "max_timestamp", "count", "is_valid"):  # fmt: skip
        assert getattr(mine, name) == getattr(real, name), name
    if not ours.message_size_maybe_changed or mine.compression == 0:
        assert bytes(ours.records) == written
    return "taken"


@pytest.mark.parametrize("make", [v2, old])
def test_random_sets_fare_alike(reference: Reference, make: Any) -> None:
    """VAL-3 to VAL-22: taken or refused, for the same reason, and written alike."""
    random = Random(make.__name__)
    outcomes: dict[str, int] = {}
    for _ in range(700):
        outcome = compare(reference, make(random), random)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["taken"] > 100 and outcomes["InvalidTimestampException"] > 20
    assert outcomes["InvalidRecordException"] > 20


def made(magic: int, codec: CompressionType, rows: list[R]) -> bytearray:
    builder: Any = RecordsBuilder(compression=codec) if magic == 2 else LegacyBuilder(magic=magic, compression=codec)
    for row in rows:
        builder.append(row.timestamp, row.key, row.value)
    built: bytearray = builder.build()
    return built


@pytest.mark.parametrize("setting", ["producer", "gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_the_real_log_reads_what_ours_converted(reference: Reference, tmp_path: Path, setting: str) -> None:
    """LOG-2, LOG-8: every format and codec appended, then looked at as after a crash, batch by batch."""
    path = tmp_path / "topic-0"
    rows = [R(b"value %d" % at * 5, b"k%d" % at, T + at) for at in range(20)]
    expected: list[RecordTuple] = []
    with kafkalog.open(path, "a", compression_type=setting, message_timestamp_after_max_ms=2**62) as log:
        for magic in (0, 1, 2):
            for codec in CODECS[: 5 if magic == 2 else 4]:
                first = log.append_bytes(made(magic, codec, rows)).first_offset
                times = [-1 if magic == 0 else row.timestamp for row in rows]
                expected += [
                    (first + at, time, row.key, row.value, ())
                    for at, (time, row) in enumerate(zip(times, rows, strict=True))
                ]
    with reference.open(path, clean=False) as real:
        assert real.end_offset == len(expected)
        assert real.read() == expected


@pytest.mark.parametrize("codec", CODECS[:4])
def test_the_real_classes_read_converted_sets(reference: Reference, codec: CompressionType) -> None:
    """VAL-19: through every format and back; checksums, inner offsets and times are the reference's."""
    rows = [R(b"value %d" % at, None if at % 3 else b"k", T + at * 7 % 5) for at in range(50)]
    data: bytes | bytearray = made(2, codec, rows)
    timeless = False
    for magic in (1, 2, 1, 0, 1, 2):
        data = convert(data, magic)
        timeless = timeless or magic == 0
        batches = reference.ask("read_set", data=base64.b64encode(data).decode())
        assert {(one["magic"], one["codec"]) for one in batches} == {(magic, codec.name.lower())}
        records = [record_tuple(row) for one in batches for row in one["records"]]
        assert records == [
            (at, -1 if timeless else row.timestamp, row.key, row.value, ()) for at, row in enumerate(rows)
        ]


def test_a_message_by_hand() -> None:
    """The layout of a v1 message, as the conversion writes it, byte by byte."""
    out = convert(batch([R(b"v", b"k", T)], base_offset=5), 1)
    body = struct.pack(">bbq", 1, 0, T) + struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
    assert out == struct.pack(">qiI", 5, len(body) + 4, zlib.crc32(body)) + body
