"""write_records: chunks of checked batches in, text out, and errors that say where."""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kafkalog._core.encode import encode_batch
from kafkalog._core.scan import BatchTable, scan
from kafkalog.errors import InvalidRecord, KafkalogError, UnsupportedCompression, UnsupportedForFormat
from kafkalog.tools.consume import Written, write_records
from kafkalog.tools.templates import delimited, json_lines
from tests.builder import R, batch, frame, message_v1, varint


@dataclass(frozen=True)
class Chunk:
    """As the readers of a log hand them on: the rows `first` up to `last` of a scanned buffer."""

    data: bytes
    batches: BatchTable
    first: int
    last: int
    path: str = "x/00000000000000000000.log"
    position: int = 0


def chunk(*parts: bytes, position: int = 0, first: int = 0, cut: int = 0) -> Chunk:
    data = b"".join(parts)
    table = scan(data, file_mode=True, base_position=position)
    return Chunk(data, table, first, len(table) - cut, position=position)


def values(base: int, *texts: bytes) -> bytes:
    return batch([R(text) for text in texts], base_offset=base)


def written(*chunks: Chunk, **bounds: int) -> tuple[bytes, Written]:
    out = io.BytesIO()
    done = write_records(chunks, out, delimited(), **bounds)
    return out.getvalue(), done


def test_chunks_are_written_in_order_from_the_first_offset_to_the_last() -> None:
    one, two = chunk(values(0, b"a", b"b"), values(2, b"c")), chunk(values(3, b"d", b"e"), position=900)
    assert written(one, two) == (b"a\nb\nc\nd\ne\n", Written(5, 5))
    assert written(one, two, first_offset=1, end_offset=4) == (b"b\nc\nd\n", Written(3, 4))
    assert written(one, two, max_records=2) == (b"a\nb\n", Written(2, 2))
    assert written(first_offset=8) == (b"", Written(0, 8))


def test_rows_left_out_of_a_chunk_are_not_written() -> None:
    parts = values(0, b"a"), values(1, b"b"), values(2, b"c")
    assert written(chunk(*parts, first=1, cut=1), first_offset=1) == (b"b\n", Written(1, 2))


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
        (frame(b"zz", count=1, last_delta=0, base_offset=4, attributes=3), UnsupportedCompression, "lz4"),
        (message_v1(4, b"v"), UnsupportedForFormat, "v1"),
        (frame(varint(30), count=1, last_delta=0, base_offset=4), InvalidRecord, "record 0 of the batch"),
    ],
)
def test_what_cannot_be_read_is_named_after_what_can(part: bytes, kind: type[KafkalogError], word: str) -> None:
    good = values(0, b"a", b"b", b"c", b"d")
    out = io.BytesIO()
    with pytest.raises(kind, match=word) as caught:
        write_records([chunk(good, part, position=5000)], out, delimited())
    assert out.getvalue() == b"a\nb\nc\nd\n"
    assert (caught.value.path, caught.value.offset) == ("x/00000000000000000000.log", 4)
    record_at = 61 if kind is InvalidRecord else 0
    assert caught.value.position == 5000 + len(good) + record_at
