"""write_decoded: the same text as write_records where nothing is decoded, and decoded keys and values elsewhere."""

import io
import json
import struct
from typing import Any

import pytest

from kafkalog._core.batch.repack import with_payload
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.records.compression import compress
from kafkalog.tools.consume import templates
from kafkalog.tools.consume.decoded import Serdes, parse_serdes, write_decoded
from kafkalog.tools.consume.templates import Pieces
from kafkalog.tools.consume.text import Written, write_records
from kafkalog.tools.decoders import plain as decoders
from kafkalog.tools.decoders.plain import DecodeError
from tests.builder import R, batch, message_v1
from tests.tools.test_consume import Chunk, chunk

ROWS = [
    R(b"one", b"k", 1000, (("h", b"x"), ("n", None))),
    R(b"\xff\x00", b"", 1001, (("h", b"\xfe"),)),
    R(None, None, 1002),
    R("π€🎉\n".encode(), b"\xed\xa0\x80", 1003),
]
MARKER = batch([R(struct.pack(">hi", 0, 1), bytes(4))], attributes=48, base_offset=4)
CHUNK = chunk(batch(ROWS), MARKER, batch([R(b"last", b"k", 5)], base_offset=5))
NONE = Serdes(None, None)
EVERY: list[Pieces] = [
    templates.delimited(),
    templates.delimited(key_delimiter=b":", null=b"NULL", key_encoding="hex", value_encoding="base64"),
    templates.formatted("%o %T %p %t %K %k %S %s %h %R\\n", topic="t", partition=3),
    templates.json_lines(topic="t", partition=0),
    templates.json_lines(topic="t", partition=0, key_encoding="hex", value_encoding="base64"),
]


def write_text(pieces: Pieces, serdes: Serdes, *chunks: Chunk, **bounds: int) -> tuple[bytes, Written]:
    out = io.BytesIO()
    done = write_decoded(chunks, out, pieces, serdes, **bounds)
    return out.getvalue(), done


@pytest.mark.parametrize("pieces", EVERY, ids=range(len(EVERY)))
@pytest.mark.parametrize("bounds", [{}, {"first_offset": 1, "end_offset": 5}, {"max_records": 2}, {"max_records": 0}])
def test_without_decoders_it_is_the_text_of_the_compiled_writer(pieces: Pieces, bounds: dict[str, int]) -> None:
    out = io.BytesIO()
    done = write_records([CHUNK], out, pieces, **bounds)
    text, ours = write_text(pieces, NONE, CHUNK, **bounds)
    assert text == out.getvalue()
    assert ours.records == done.records
    assert ours.next_offset <= done.next_offset


def test_decoded_parts() -> None:
    rows = [R(struct.pack(">iq", 5, -7), b"\x01"), R(None, b"\x02"), R(struct.pack(">iq", 6, 8), None)]
    serdes = parse_serdes(["value=i q$", "key=B"])
    assert serdes is not None
    pieces = templates.delimited(key_delimiter=b"=", null=b"NULL")
    assert write_text(pieces, serdes, chunk(batch(rows)))[0] == b"1=5 -7\n2=NULL\nNULL=6 8\n"


def test_json_lines_hold_decoded_values_as_json() -> None:
    serdes = Serdes(decoders.integer, decoders.json)
    rows = [R(b'{"a":[1,null]}', b"\0\0\0\7"), R(None, None)]
    lines = write_text(templates.json_lines(topic="t", partition=0), serdes, chunk(batch(rows)))[0].splitlines()
    first, second = map(json.loads, lines)
    assert (first["key"], first["payload"], "payload_encoding" in first) == (7, {"a": [1, None]}, False)
    assert (second["key"], second["payload"]) == (None, None)


def test_every_format_and_codec() -> None:
    plain = batch([R(b"packed", b"k")], base_offset=1)
    packed = bytes(with_payload(plain, compress(2, plain[61:]), 2))
    found = chunk(message_v1(0, b"old"), packed)
    assert write_text(templates.delimited(), Serdes(None, decoders.text), found)[0] == b"old\npacked\n"


def test_what_a_decoder_does_not_understand_is_told_with_its_offset() -> None:
    found = chunk(batch([R(b"\0\0\0\1"), R(b"bad")], base_offset=8))
    out = io.BytesIO()
    with pytest.raises(DecodeError, match="the value cannot be decoded") as caught:
        write_decoded([found], out, templates.delimited(), Serdes(None, decoders.integer), first_offset=8)
    assert (caught.value.offset, caught.value.path, out.getvalue()) == (9, found.path, b"1\n")


def test_large_text_is_written_in_pieces() -> None:
    found = chunk(*[batch([R(b"v" * 50_000)], base_offset=n) for n in range(20)])
    text, done = write_text(templates.delimited(), Serdes(None, decoders.text), found)
    assert (text, done) == ((b"v" * 50_000 + b"\n") * 20, Written(20, 20))


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        (["key=integer"], decoders.integer, None),
        (["value=json", "key=text"], decoders.text, decoders.json),
        (["long"], decoders.long, decoders.long),
        (["long", "key=text"], decoders.text, decoders.long),
    ],
)
def test_the_flags(given: list[str], key: Any, value: Any) -> None:
    serdes = parse_serdes(given)
    assert serdes is not None
    assert (serdes.key, serdes.value) == (key, value)


def test_flags_that_mean_nothing() -> None:
    assert parse_serdes([]) is None
    for given in ("keys=i", "key=", "nothing"):
        with pytest.raises(IllegalArgument):
            parse_serdes([given])


@pytest.mark.parametrize("depth", [100, 600, 900, 950, 3_000])
@pytest.mark.parametrize("pieces", [templates.delimited(), templates.json_lines(topic="t", partition=0)])
def test_json_of_any_depth_is_printed_or_refused_with_its_place(depth: int, pieces: templates.Pieces) -> None:
    """Python's parser gets further down than anything that walks over what it made."""
    value = b"[" * depth + b"]" * depth
    found = chunk(batch([R(b"1"), R(value)], base_offset=7))
    out = io.BytesIO()
    try:
        write_decoded([found], out, pieces, Serdes(None, decoders.json))
    except InvalidRecord as error:
        assert depth > 100 and (error.path, error.offset) == (found.path, 8)
    else:
        assert value in out.getvalue()
