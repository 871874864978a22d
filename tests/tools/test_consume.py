"""write_records: chunks of checked batches in, text out, and errors that say where."""

import io
import json
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.encode import encode_batch
from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalArgument, InvalidRecord, KafkalogError
from kafkalog.records.compression import compress
from kafkalog.storage.segment_reader import Chunk
from kafkalog.tools.consume.decoded import Serdes, write_decoded
from kafkalog.tools.consume.templates import Pieces, delimited, formatted, json_lines
from kafkalog.tools.consume.text import Written, write_records
from tests import reference_text
from tests.builder import R, batch, frame, seal, varint
from tests.records.test_tables import build_batches, join

PIECES = json_lines(topic="t", partition=0)
blobs = st.none() | st.binary(max_size=40) | st.text(max_size=10).map(str.encode)
rows = st.builds(
    R, value=blobs, key=blobs, timestamp=st.integers(0, 2**41), delta=st.none(),
    headers=st.lists(st.tuples(st.text(max_size=5), blobs), max_size=2).map(tuple),
)  # fmt: skip
mixed = st.lists(st.tuples(st.integers(0, 4), st.lists(rows, min_size=1, max_size=5)), max_size=8)


def chunk(*parts: bytes, position: int = 0, first: int = 0, cut: int = 0) -> Chunk:
    data = b"".join(parts)
    table = scan(data, file_mode=True, base_position=position)
    return Chunk(data, table, first, len(table) - cut, "x/00000000000000000000.log", position)


def values(base: int, *texts: bytes) -> bytes:
    return batch([R(text) for text in texts], base_offset=base)


def compress_batch(codec: int, records: list[R], base: int = 0) -> bytes:
    """A batch of these records, compressed."""
    plain = batch(records, base_offset=base)
    packed = bytes(compress(codec, plain[61:]))
    body = plain[12:21] + struct.pack(">h", codec) + plain[23:61] + packed
    return seal(plain[:8] + struct.pack(">i", len(body)) + body)


def write_text(*chunks: Chunk, **bounds: int) -> tuple[bytes, Written]:
    out = io.BytesIO()
    done = write_records(chunks, out, delimited(), **bounds)
    return out.getvalue(), done


def test_chunks_are_written_in_order_from_the_first_offset_to_the_last() -> None:
    one, two = chunk(values(0, b"a", b"b"), values(2, b"c")), chunk(values(3, b"d", b"e"), position=900)
    assert write_text(one, two) == (b"a\nb\nc\nd\ne\n", Written(5, 5))
    assert write_text(one, two, first_offset=1, end_offset=4) == (b"b\nc\nd\n", Written(3, 4))
    assert write_text(one, two, max_records=2) == (b"a\nb\n", Written(2, 2))
    assert write_text(first_offset=8) == (b"", Written(0, 8))


def test_rows_left_out_of_a_chunk_are_not_written() -> None:
    parts = values(0, b"a"), values(1, b"b"), values(2, b"c")
    assert write_text(chunk(*parts, first=1, cut=1), first_offset=1) == (b"b\n", Written(1, 2))


def test_no_chunk_is_taken_after_the_last_record() -> None:
    def endless() -> Iterator[Chunk]:
        base = 0
        while True:
            yield chunk(values(base, b"a", b"b"))
            base += 2

    out = io.BytesIO()
    assert write_records(endless(), out, delimited(), max_records=3) == Written(3, 3)
    assert write_records(endless(), out, delimited(), end_offset=5) == Written(5, 5)
    assert out.getvalue() == b"a\nb\na\n" + b"a\nb\na\nb\na\n"


def unreachable() -> Iterator[Chunk]:
    raise AssertionError("nothing was asked for")
    yield


def test_nothing_is_read_where_nothing_is_asked_for() -> None:
    out = io.BytesIO()
    assert write_records(unreachable(), out, delimited(), max_records=0, first_offset=7) == Written(0, 7)
    assert write_records(unreachable(), out, delimited(), first_offset=7, end_offset=7) == Written(0, 7)


def test_text_is_handed_over_with_each_chunk() -> None:
    """One who follows a log sees each record as soon as its chunk was read."""
    out = io.BytesIO()
    seen: list[bytes] = []

    def slow() -> Iterator[Chunk]:
        for base in range(3):
            yield chunk(values(base, b"v%d" % base))
            seen.append(out.getvalue())

    write_records(slow(), out, delimited())
    assert seen == [b"v0\n", b"v0\nv1\n", b"v0\nv1\nv2\n"]


def test_text_much_larger_than_its_limit() -> None:
    value = b"\x01" * 300_000
    out = io.BytesIO()
    write_records([chunk(bytes(encode_batch([value], timestamp=1)))], out, json_lines(topic="t", partition=0))
    assert out.getvalue().count(b"\\u0001") == 300_000


@pytest.mark.parametrize(
    ("part", "kind", "word"),
    [
        (frame(b"zz", count=1, last_delta=0, base_offset=4, attributes=3), InvalidRecord, "lz4"),
        (frame(b"zz", count=1, last_delta=0, base_offset=4, attributes=6), IllegalArgument, "compression id 6"),
        (frame(varint(30), count=1, last_delta=0, base_offset=4), InvalidRecord, "record 0 of the batch"),
    ],
)
@pytest.mark.parametrize("codec", [0, 1])
def test_what_cannot_be_read_is_named_after_what_can(
    part: bytes, kind: type[KafkalogError], word: str, codec: int
) -> None:
    good = compress_batch(codec, [R(text) for text in (b"a", b"b", b"c", b"d")])
    out = io.BytesIO()
    with pytest.raises(kind, match=word) as caught:
        write_records([chunk(good, part, position=5000)], out, delimited())
    assert out.getvalue() == b"a\nb\nc\nd\n"
    assert (caught.value.path, caught.value.offset) == ("x/00000000000000000000.log", 4)
    assert caught.value.position in (5000 + len(good), 5000 + len(good) + 61)  # the batch, or its records
    assert write_text(chunk(good, part), end_offset=4) == (b"a\nb\nc\nd\n", Written(4, 4))


@pytest.mark.parametrize("threads", [1, 3])
@given(made=mixed, start=st.integers(0, 30), stop=st.integers(0, 90), limit=st.none() | st.integers(0, 9))
def test_every_format_and_codec_gives_the_text_of_its_records(
    threads: int, made: list[tuple[int, list[R]]], start: int, stop: int, limit: int | None
) -> None:
    """LOG-24: from the middle of a compressed batch on, only the records asked for come out."""
    chunks, expected, base = [], [], 0
    for codec, rows in made:
        chunks.append(chunk(compress_batch(codec, rows, base), position=base * 1000))
        expected += [(base + i, row) for i, row in enumerate(rows) if start <= base + i < stop]
        base += max(1, len(rows))
    expected = expected[:limit]
    out = io.BytesIO()
    bound = -1 if limit is None else limit
    done = write_records(
        chunks, out, PIECES, first_offset=start, end_offset=stop, max_records=bound, threads=threads
    )
    assert done.records == len(expected)
    text = [json.loads(line) for line in out.getvalue().decode().split("\n")[:-1]]
    assert text == [reference_text.json_object(row, offset, topic="t", partition=0) for offset, row in expected]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pieces", [PIECES, formatted(r"%o %T %K %k=%S %s %h\n", topic="t", partition=0, null=b"NULL")])
def test_old_formats_and_wrappers_are_shown_as_their_records_are(threads: int, pieces: Pieces) -> None:
    """The other way to the same text is a Python object for each record."""
    made = build_batches((0, 0), (1, 0), (1, 1), (0, 1), (2, 0), (3, 0), (0, 0), (2, 1), (3, 1), (4, 2), (0, 2), (1, 1))
    data, records = join(made)
    out, objects = io.BytesIO(), io.BytesIO()
    done = write_records([chunk(data)], out, pieces, first_offset=records[3].offset, threads=threads)
    assert done.records == len(records) - 3
    write_decoded([chunk(data)], objects, pieces, Serdes(None, None), first_offset=records[3].offset)
    assert out.getvalue() == objects.getvalue() != b""


def test_text_of_compressed_batches_much_larger_than_its_limit() -> None:
    out = io.BytesIO()
    parts = [compress_batch(4, [R(b"\x01" * 300_000), R(b"\x01" * 300_000)]), compress_batch(1, [R(b"\x01")] * 3, 2)]
    write_records([chunk(*parts)], out, PIECES)
    assert out.getvalue().count(b"\\u0001") == 600_003


def test_control_batches_among_compressed_ones_are_left_out() -> None:
    marker = batch([R(struct.pack(">hi", 0, 1), bytes(4))], attributes=48, base_offset=1)
    parts = compress_batch(1, [R(b"a")]), marker, compress_batch(2, [R(b"b")], 2)
    assert write_text(chunk(*parts)) == (b"a\nb\n", Written(2, 3))
