"""Writes first inputs for each target, made by the builders of the package: `python -m fuzz.seeds DIRECTORY TARGET`."""

import gzip
import json
import sys
from hashlib import sha1
from importlib import import_module
from pathlib import Path

from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.keys.key_builder import KeyBuilder
from kafkalog.keys.format import Block, KeyIndexHeader, packed
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.sidecars.identity import NO_STAMP

T = 1_700_000_000_000
TEXT = b"one two one two one two one two " * 9
LEGACY_CODECS = [codec for codec in CompressionType if codec != CompressionType.ZSTD]


def filled(builder: RecordsBuilder | LegacyBuilder, count: int, headers: bool) -> bytes:
    """A batch of a few small records."""
    for row in range(count):
        pairs = [("h", b"1"), ("", None)] if headers and row % 2 else []
        builder.append(T + row * 70, b"k" * row if row else None, b"v" * 9 * row if row != 2 else None, pairs)
    return bytes(builder.build())


def batches() -> list[bytes]:
    """Batches of every format and codec, and several in a row."""
    made = [filled(RecordsBuilder(5, compression=codec), n, n > 1) for codec in CompressionType for n in (1, 3)]
    made += [
        filled(LegacyBuilder(5, magic=magic, compression=codec), n, False)
        for magic in (0, 1) for codec in LEGACY_CODECS for n in (1, 3)
    ]  # fmt: skip
    return [*made, made[0] + made[1], made[0] + made[-1], made[0][:-3]]


def ready() -> list[bytes]:
    """Batches of one and of three records with keys, plain and of a producer; each for both logs of the target."""
    made = []
    for ids in ({}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}):
        for count in (1, 3):
            builder = RecordsBuilder(**ids)
            for row in range(count):
                builder.append(T + row, b"k%d" % row, b"v" * row * 30)
            batch = bytes(builder.build())
            made += [batch, batch[:7] + b"\1" + batch[8:]]
    return made


def frames() -> list[bytes]:
    """Return each codec's output for empty, small and larger input, in the forms that Kafka meets."""
    made: list[bytes] = []
    for content in (b"", b"abc", TEXT):
        zipped, framed = gzip.compress(content, mtime=0), bytes(compress(CompressionType.SNAPPY, content))
        made += [zipped, zipped + zipped, framed, framed + framed, framed[20:]]
        for options in ({}, {"level": 3}, {"magic": 0}):
            made.append(bytes(compress(CompressionType.LZ4, content, **options)))
        squeezed = bytes(compress(CompressionType.ZSTD, content))
        made += [squeezed, squeezed + squeezed, b"\x50\x2a\x4d\x18\x02\x00\x00\x00ab" + squeezed]
    return made


def side_files() -> list[bytes]:
    """Entries in order and not, a transaction index, a snapshot, and the text files."""
    offsets = b"".join((9 * n).to_bytes(4, "big") + (700 * n).to_bytes(4, "big") for n in range(1, 30))
    times = b"".join((T + n).to_bytes(8, "big") + (9 * n).to_bytes(4, "big") for n in range(1, 30))
    aborted = bytes(2) + bytes(range(32))
    body = (1).to_bytes(4, "big") + bytes(7) + b"\x05" + bytes(40)
    snapshot = b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body
    return [
        offsets, times, offsets + bytes(64), times[::-1], aborted, aborted * 3, snapshot,
        b"0\n2\nt 0 5\nu-1 1 9\n", b"0\n1\n0 0\n", b"version: 0\ntopic_id: rq3Zn1oMQAaJ8bOyrPTClA", b"0\n", b"",
        offsets + b"\x04", times + b"\x05", aborted + b"\x06", snapshot + b"\x07",
    ]  # fmt: skip


def avro_values() -> list[bytes]:
    """A sound value of each pair of schemas, cut and longer, and the schemas themselves."""
    from fuzz import avro

    made = []
    for number, (writer, reader) in enumerate(avro.PAIRS):
        value = avro.sample(number)
        made += [bytes([number]) + one for one in (value, value[:-1], value + b"\0", value[: len(value) // 2])]
        made += [bytes([avro.SCHEMAS]) + json.dumps(schema).encode() for schema in (writer, reader)]
    return made


CONDITIONS = (
    "offset {} 5", "time {} '2026-11-20T12:00Z'", "key {} 'eu-1'", "header.trace {} ''", "value.a {} 1.5",
    "value.b.c {} 'x'", "size {} 100 and key_size {} 2", "not (partition {} 1 or topic {} 't')", "1 {} value.n",
    "key {} header.t", "timestamp {} 1700000000000 or offset {} -1",
)  # fmt: skip
TESTS = (
    "key like 'eu-%'", "value.b.c not like '_\\%'", "key matches '^a(b|c)*$'", "header.t not matches '[0-9]{2}'",
    "offset in (1, 2, null)", "key not in ('a', x'00ff')", "value is null", "header.\"a b\" is not null",
    "value.a == 1e300", "key == 'it''s'", "(((offset == 1)))", "value.l[0].x is null",
    "value.l[*].x in (1, 2) and not value.l[-1].t[*] == 'a'", "not not not value.a is null",
)  # fmt: skip


def expressions() -> list[bytes]:
    """Conditions of each kind as text, some cut, and as numbers of words."""
    signs = ("==", "!=", "<", "<=", ">", ">=")
    texts = [text.replace("{}", sign) for text in CONDITIONS for sign in signs] + list(TESTS)
    texts += [f"{one} and {other}" for one, other in zip(texts, reversed(texts), strict=True)][:10]
    return [
        *(b"\1" + text.encode() for text in texts), *(b"\1" + text.encode()[: len(text) // 2] for text in TESTS),
        *(bytes([0, *range(start, 47, 5)]) for start in range(5)), bytes([0, 3, 13, 28]), bytes([0, 2, 21, 26]),
    ]  # fmt: skip


def key_indexes() -> list[bytes]:
    """Indexes of no record, of a few and of many, whole, cut and with a wrong byte, and batches, one of sections."""
    made = batches()
    large = RecordsBuilder(0)
    for n in range(40):
        large.append(T, (b"", b"k", b"key")[n % 3], b"v" * (n * 7), [])
    made.append(bytes(large.build()))
    for count in (0, 3, 150, 3000):
        builder = KeyBuilder(bytes(16), 0, 5000)
        for first in range(0, count, 100):
            made_of = RecordsBuilder(first)
            for n in range(first, min(first + 100, count)):
                made_of.append(T, b"key-%d" % n, b"v", [])
            data = bytes(made_of.build())
            table = scan(data)
            builder.mark(table, 0, 1)
            builder.take(data, table, 0, 1)
        header = KeyIndexHeader(0, 5000, 9999, bytes(16), bytes(16), NO_STAMP, count)
        index = b"".join(packed(header, [Block(*builder.finish())]))
        made.append(index)
        for at in range(0, len(index), max(len(index) // 8, 1)):
            made += [index[:at], index[:at] + bytes([index[at] ^ 0x40]) + index[at + 1 :]]
    return made


def main() -> None:
    """Writes the files of one target."""
    makers = {
        "decompress": frames, "index": side_files, "append": lambda: [*ready(), *batches()], "avro": avro_values,
        "where": expressions, "keys": key_indexes,
    }  # fmt: skip
    if sys.argv[2] == "outline" or sys.argv[2].endswith("_values"):
        makers[sys.argv[2]] = import_module(f"fuzz.{sys.argv[2]}").seeds
    made = makers.get(sys.argv[2], batches)
    folder = Path(sys.argv[1]) / sys.argv[2]
    folder.mkdir(parents=True, exist_ok=True)
    for content in made():
        (folder / sha1(content).hexdigest()[:16]).write_bytes(content)


if __name__ == "__main__":
    main()
