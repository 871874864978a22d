"""Both dump tools print the same of every format and codec, and of what odd writers made (DUMP-1, 2, 3, 14).

Shallow, deep, with data and without metadata; wrappers that hold the older format, snappy without frames, gzip in
several members, lz4 with checksums, control batches of every type, emptied batches, delete horizons, transactions.
"""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import cramjam
import pytest

from kafkalog import control
from kafkalog._core.batch.legacy import MessageSet, wrapper
from kafkalog._core.batch.repack import with_payload
from kafkalog._core.bytes.crc import crc32c
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.tools.dump.files import DumpOptions
from tests import builder
from tests.builder import R, batch, frame
from tests.interop.reference import Reference
from tests.interop.test_dump_damage_interop import assert_same

T = 1_700_000_000_000
RUNS = {
    (): DumpOptions(),
    ("--deep-iteration",): DumpOptions(deep_iteration=True),
    ("--print-data-log",): DumpOptions(print_data_log=True),
    ("--print-data-log", "--skip-record-metadata"): DumpOptions(print_data_log=True, skip_record_metadata=True),
}
KINDS = [(magic, codec) for magic in (0, 1, 2) for codec in CompressionType if magic == 2 or codec < 4]
ODD_UTF8 = (b"\xff\xfe", b"\xed\xa0\x80x", "π€🎉".encode(), b"two\nlines", b"\xf0\x9f", b"")


@pytest.fixture(autouse=True)
def _quick_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder's own checksum is slow."""
    monkeypatch.setattr(builder, "crc32c", crc32c)


def compare(reference: Reference, directory: Path, data: bytes, base: int = 0) -> None:
    path = directory / f"{base:020d}.log"
    path.write_bytes(data)
    for flags, options in RUNS.items():
        assert_same(reference, path, flags, options)


def filled(magic: int, codec: CompressionType, base: int, **more: Any) -> bytes:
    """A set of records with odd keys, values and headers."""
    random = Random(base)
    make: Any = RecordsBuilder if magic == 2 else LegacyBuilder
    made = make(base, magic=magic, compression=codec, **more)
    for n in range(40):
        key = random.choice([None, b"k%d" % n, *ODD_UTF8])
        value = random.choice([None, b"v" * random.randrange(300), random.randbytes(9), *ODD_UTF8])
        headers = random.choice([(), (("h", b"1"),), (("a", None), ("é", b""), ("", b"\xff"))]) if magic == 2 else ()
        made.append(random.choice([-1, 0, T + n, T - n]), key, value, headers)
    return bytes(made.build())


@pytest.mark.parametrize(("magic", "codec"), KINDS)
def test_formats_and_codecs(reference: Reference, tmp_path: Path, magic: int, codec: CompressionType) -> None:
    parts = [filled(magic, codec, 0), filled(magic, codec, 40)]
    if magic:
        times = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": T + 99}
        parts.append(filled(magic, codec, 80, **times))
    compare(reference, tmp_path, b"".join(parts))


def test_formats_mixed_in_one_file(reference: Reference, tmp_path: Path) -> None:
    parts = [filled(magic, codec, 7 + 40 * n) for n, (magic, codec) in enumerate(KINDS)]
    compare(reference, tmp_path, b"".join(parts), 7)


@pytest.mark.parametrize("codec", CompressionType)
def test_producers_and_transactions(reference: Reference, tmp_path: Path, codec: CompressionType) -> None:
    """Sequences that wrap, and a delete horizon."""
    producer = {"producer_id": 2**40, "producer_epoch": 3, "base_sequence": 2**31 - 20, "leader_epoch": 17}
    parts = [
        filled(2, codec, 0, **producer),
        filled(2, codec, 40, **producer, is_transactional=True),
        bytes(control.marker_batch(control.ControlType.COMMIT, 2**40, 3, 9, timestamp=T, base_offset=80)),
        filled(2, codec, 81, delete_horizon_ms=T + 2**40),
        frame(b"", count=0, last_delta=4, base_offset=121, max_timestamp=T, **producer),
    ]
    compare(reference, tmp_path, b"".join(parts))


def test_control_batches(reference: Reference, tmp_path: Path) -> None:
    """Of every type, unknown ones too, alone and several in a batch."""
    kinds = {
        control.ControlType.LEADER_CHANGE: {"leaderId": 1, "voters": [{"voterId": 1}], "grantingVoters": []},
        control.ControlType.SNAPSHOT_HEADER: {"lastContainedLogTimestamp": T},
        control.ControlType.SNAPSHOT_FOOTER: {},
        control.ControlType.KRAFT_VERSION: {"kRaftVersion": 1},
    }
    made = RecordsBuilder(0, is_control=True)
    for kind, data in kinds.items():
        made.append_control(T, *control.control_parts(kind, data))
    made.append_control(T, struct.pack(">hh", 0, 99), b"of a later version")
    made.append_control(T, struct.pack(">hh", 7, -3) + b"more", None)
    parts = [bytes(made.build())]
    parts += [
        bytes(control.marker_batch(kind, 9, 0, epoch, timestamp=T, base_offset=6 + n))
        for n, (kind, epoch) in enumerate([(control.ControlType.ABORT, -1), (control.ControlType.COMMIT, 2**31 - 1)])
    ]
    compare(reference, tmp_path, b"".join(parts))


def mixed_wrapper(codec: int) -> bytes:
    """A v1 wrapper that holds messages of v0 among its own (an old bug), with gaps between their offsets."""
    inner = b""
    for offset, magic in ((0, 1), (2, 0), (5, 1)):
        one = MessageSet(magic)
        one.append(offset, T + offset, b"k", b"value %d" % offset)
        inner += bytes(one.build())
    return bytes(wrapper(compress(codec, inner, magic=1), magic=1, codec=codec, offset=25, timestamp=T + 5))


def packed(codec: int, pack: Callable[[bytes], bytes]) -> bytes:
    """A batch whose records were compressed by other means than ours."""
    plain = batch([R(b"value %d" % n * 50, b"k", T + n) for n in range(30)])
    return bytes(with_payload(plain, pack(plain[61:]), codec))


ODD = {
    "v0 inside v1, gzip": mixed_wrapper(1),
    "v0 inside v1, snappy": mixed_wrapper(2),
    "v0 inside v1, lz4": mixed_wrapper(3),
    "snappy without frames": packed(2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "gzip in two members": packed(1, lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
    "zstd in two frames": packed(
        4, lambda data: bytes(cramjam.zstd.compress(data[:100])) + bytes(cramjam.zstd.compress(data[100:]))
    ),
    "lz4 with dependent blocks": packed(3, lambda data: bytes(cramjam.lz4.compress(data))),
    "gzip bytes in an lz4 batch": packed(3, gzip.compress),
    "plain bytes in a zstd batch": packed(4, bytes),
    "offset 0 of a wrapper of v1": bytes(
        wrapper(compress(1, bytes(LegacyBuilder(0).build()) or b"", magic=1), magic=1, codec=1, offset=0)
    ),
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_odd_writers(reference: Reference, tmp_path: Path, data: bytes) -> None:
    compare(reference, tmp_path, data)
