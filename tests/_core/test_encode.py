"""v2 batches from Python objects: equal to the plain encoder byte for byte, by exact sizes, with typed refusals."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.encode import BadRecord, BatchBuilder, encode_batch
from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import scan
from tests._core.test_decode import rows
from tests.builder import R, batch

T = 1_700_000_000_000


@given(st.lists(rows, min_size=1, max_size=20))
def test_equals_the_plain_encoder(records: list[R]) -> None:
    built = encode_batch([(r.key, r.value, r.timestamp, r.headers) for r in records], timestamp=0)
    assert bytes(built) == batch(records)


@given(st.lists(rows, min_size=1, max_size=30), st.integers(61, 600))
def test_builder_closes_by_exact_size(records: list[R], limit: int) -> None:
    builder = BatchBuilder(limit)
    taken: list[R] = []
    for r in records:
        fits = len(batch([*taken, r])) <= limit or not taken
        assert builder.append(r.value, r.key, r.timestamp, r.headers) == fits
        if not fits:
            break
        taken.append(r)
        assert builder.size == len(batch(taken))
    assert bytes(builder.build()) == batch(taken)
    assert builder.count == 0
    assert builder.build() == b""


def test_every_shape() -> None:
    moment = datetime(2018, 5, 15, 11, 45, 18, 288000, tzinfo=UTC)
    data = encode_batch(
        [
            b"v",
            bytearray(b"w"),
            memoryview(b"m"),
            (b"k", b"v"),
            (None, None, 5),
            (b"k", b"v", moment, {"h": b"1"}),
            {"value": b"d", "timestamp": 9, "headers": [("a", None)]},
            Record(b"r", b"rk", 11),
            Record(b"now"),
        ],
        timestamp=T,
    )
    got = [(r.key, r.value, r.timestamp, r.headers) for r in decode(data, scan(data))]
    assert got == [
        (None, b"v", T, ()),
        (None, b"w", T, ()),
        (None, b"m", T, ()),
        (b"k", b"v", T, ()),
        (None, None, 5, ()),
        (b"k", b"v", 1_526_384_718_288, (("h", b"1"),)),
        (None, b"d", 9, (("a", None),)),
        (b"rk", b"r", 11, ()),
        (None, b"now", T, ()),
    ]


@pytest.mark.parametrize("bad", ["text", ("k", b"v"), (b"k", "v"), 5, (b"one",), {"valeu": b"x"}, (b"k", b"v", "noon")])
def test_wrong_types_say_so(bad: object) -> None:
    with pytest.raises(TypeError):
        encode_batch([b"ok", bad], timestamp=T)


def test_text_is_refused_with_the_fix() -> None:
    with pytest.raises(TypeError, match="encode"):
        encode_batch(["text"], timestamp=T)


def test_negative_timestamp_names_the_record() -> None:
    """REC-25: only -1 may stand for none, and it means now here."""
    with pytest.raises(BadRecord) as raised:
        encode_batch([b"ok", (None, b"v", -2)], timestamp=T)
    assert (raised.value.index, raised.value.field) == (1, "timestamp")


def test_header_key_none_is_refused() -> None:
    """REC-3."""
    with pytest.raises(TypeError, match="name"):
        encode_batch([(None, b"v", 1, [(None, b"x")])], timestamp=T)


def test_builder_flags_and_append_time() -> None:
    builder = BatchBuilder()
    builder.append(b"v", timestamp=T)
    header = scan(
        builder.build(
            base_offset=5, leader_epoch=2, producer_id=9, producer_epoch=1, base_sequence=7, transactional=True
        )
    )[0]
    assert (header.base_offset, header.leader_epoch, header.producer_id, header.producer_epoch) == (5, 2, 9, 1)
    assert (header.base_sequence, header.is_transactional, header.is_control, header.is_valid) == (7, True, False, True)
    builder.append(b"v", timestamp=T)
    header = scan(builder.build(append_time=T + 1))[0]
    assert (header.timestamp_type, header.max_timestamp, header.is_valid) == (1, T + 1, True)


def test_offset_deltas_must_grow() -> None:
    builder = BatchBuilder()
    builder.append(b"a", offset_delta=3)
    with pytest.raises(ValueError, match="follow"):
        builder.append(b"b", offset_delta=3)


def test_a_generator_and_an_empty_list() -> None:
    assert len(scan(encode_batch((bytes([i]) for i in range(5)), timestamp=T))) == 1
    assert encode_batch([], timestamp=T) == b""


class Shouted(str):
    """Text that says other bytes of itself than it has, and another length than those have."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        class Long(bytes):
            def __len__(self) -> int:
                return 100

        return Long(b"other")


def test_a_header_name_is_what_it_holds() -> None:
    built = encode_batch([(None, b"v", T, [(Shouted("name"), b"x")])], timestamp=T)
    assert [r.headers for r in decode(built, scan(built))] == [(("name", b"x"),)]


def test_a_header_name_that_is_no_text() -> None:
    with pytest.raises(BadRecord, match="surrogates") as raised:
        encode_batch([b"ok", (None, b"v", T, [("\ud800", b"x")])], timestamp=T)
    assert (raised.value.index, raised.value.field) == (1, "headers")


@pytest.mark.parametrize("headers", ["ab", [("a",)], [("a", b"b", b"c")], [b"abc"]])
def test_headers_are_pairs(headers: object) -> None:
    with pytest.raises(TypeError, match="pairs"):
        encode_batch([(None, b"v", T, headers)], timestamp=T)
