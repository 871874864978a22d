"""Text to batches: every line once, in order, batches closed by exact size, one lane a partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.murmur import partition_for_key
from kafkalog._core.text.ingest import LineEncoder
from tests.builder import R, batch

T = 1_700_000_000_000


def encode(encoder: LineEncoder, text: bytes, step: int = 7, time: int = T) -> None:
    """Feeds the text in steps, as a reader with a small buffer would."""
    have = b""
    for at in range(0, len(text), step):
        have += text[at : at + step]
        have = have[encoder.feed(have, len(have), time) :]
    assert encoder.feed(have, len(have), time, final=True) == len(have)
    encoder.seal()


def records(encoder: LineEncoder, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    data = encoder.take(partition)
    table = scan(data)
    assert table.first_invalid == -1
    assert table.valid_bytes == len(data)
    return [(r.key, r.value) for r in decode(data, table)]


@given(
    st.lists(st.binary(max_size=60).map(lambda b: b.replace(b"\n", b".")), max_size=60),
    st.integers(1, 50),
    st.booleans(),
)
def test_lines_come_out_as_they_went_in(lines: list[bytes], step: int, ends: bool) -> None:
    text = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    wanted = text.split(b"\n")
    if wanted[-1] == b"":
        wanted.pop()  # a last line counts when it has text; what follows the last newline does not
    encoder = LineEncoder(batch_bytes=200)
    encode(encoder, text, step)
    assert encoder.records() == len(wanted)
    assert [value for _, value in records(encoder)] == wanted


@given(st.lists(st.binary(min_size=0, max_size=90).map(lambda b: b.replace(b"\n", b".")), min_size=1, max_size=60))
def test_batches_are_those_of_the_plain_encoder(lines: list[bytes]) -> None:
    encoder = LineEncoder(batch_bytes=256)
    encode(encoder, b"".join(line + b"\n" for line in lines))
    wanted, open_batch = [], []
    for line in lines:
        r = R(line, timestamp=T)
        if open_batch and len(batch([*open_batch, r])) > 256:
            wanted.append(batch(open_batch))
            open_batch = []
        open_batch.append(r)
    assert bytes(encoder.take()) == b"".join([*wanted, batch(open_batch)])


def test_carriage_returns_and_empty_lines_stay() -> None:
    encoder = LineEncoder()
    encode(encoder, b"a\r\n\n\nb")
    assert [value for _, value in records(encoder)] == [b"a\r", b"", b"", b"b"]


def test_a_batch_has_the_time_of_the_feed_that_opened_it() -> None:
    encoder = LineEncoder()
    encoder.feed(b"a\n", 2, 1000)
    encoder.feed(b"b\n", 2, 2000)
    encoder.seal()
    encoder.feed(b"c\n", 2, 3000)
    encoder.seal()
    data = encoder.take()
    assert [r.timestamp for r in decode(data, scan(data))] == [1000, 1000, 3000]


def test_keys_nulls_and_partitions() -> None:
    encoder = LineEncoder(5, key_delimiter=b"::", null=b"NULL", batch_bytes=4096)
    text = b"".join(b"key%d::value%d\n" % (i, i) for i in range(50)) + b"nokey\nNULL::NULL\na::NULL\nb::c::d\n"
    encode(encoder, text)
    everything = []
    for partition in range(5):
        for key, value in records(encoder, partition):
            everything.append((key, value))
            if key is not None:
                assert partition_for_key(key, 5) == partition
    assert sorted(everything, key=str) == sorted(
        [
            *((b"key%d" % i, b"value%d" % i) for i in range(50)),
            (None, b"nokey"),
            (None, None),
            (b"a", None),
            (b"b", b"c::d"),
        ],
        key=str,
    )


def test_keyless_records_stay_on_a_partition_until_its_batch_closes() -> None:
    encoder = LineEncoder(3, batch_bytes=100)
    encode(encoder, b"".join(b"line %02d\n" % i for i in range(12)))
    values = [[int(value[5:]) for _, value in records(encoder, p)] for p in range(3)]
    assert sorted(n for lane in values for n in lane) == list(range(12))
    assert all(lane for lane in values)
    assert values[0][:2] == [0, 1]


def test_long_lines_and_long_delimiters() -> None:
    encoder = LineEncoder(delimiter=b"--", batch_bytes=100)
    encode(encoder, b"x" * 5000 + b"--" + b"y-z", step=900)
    assert [value for _, value in records(encoder)] == [b"x" * 5000, b"y-z"]


def test_one_key_for_all_headers_and_single_records() -> None:
    encoder = LineEncoder(key=b"k", encoded_headers=b"\x02\x02h\x02v")
    encoder.add(b"v", b"other", T)
    encoder.feed(b"line\n", 5, T)
    encoder.seal()
    data = encoder.take()
    got = [(r.key, r.value, r.headers) for r in decode(data, scan(data))]
    assert got == [(b"other", b"v", (("h", b"v"),)), (b"k", b"line", (("h", b"v"),))]


def test_misuse() -> None:
    with pytest.raises(ValueError, match="partitions"):
        LineEncoder(0)
    with pytest.raises(ValueError, match="1000001 partitions"):
        LineEncoder(1_000_001)
    for size in (60, 2**31):
        with pytest.raises(ValueError, match=f"limit of {size} bytes is outside 61 to 2147483647"):
            LineEncoder(batch_bytes=size)
    assert LineEncoder(batch_bytes=61).add(b"v", None, T) == LineEncoder(batch_bytes=2**31 - 1).add(b"v", None, T)
    with pytest.raises(ValueError, match="delimiter"):
        LineEncoder(delimiter=b"")
    with pytest.raises(IndexError):
        LineEncoder().take(1)
    with pytest.raises(ValueError, match="bytes of a buffer"):
        LineEncoder().feed(b"", 1, T)
