"""Records as text by a template, against a slow oracle: what `consume` prints."""

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.text import template
from kafkalog._core.text.template import IS_DONE, IS_FULL, NEEDS_BYTES, TemplateText
from kafkalog.tools.consume.templates import Pieces, delimited, formatted, json_lines
from tests import reference_text
from tests.builder import R, batch, frame, message_v1, seal, varint
from tests.renderers import render_in_steps

MAX64 = 2**63 - 1
blobs = st.none() | st.binary(max_size=90) | st.text(max_size=30).map(str.encode)
names = st.text(st.characters(codec="utf-8"), max_size=6)
rows = st.builds(
    R, value=blobs, key=blobs, timestamp=st.integers(-1, 2**41),
    headers=st.lists(st.tuples(names, blobs), max_size=3).map(tuple), delta=st.none(),
)  # fmt: skip
groups = st.lists(st.lists(rows, max_size=5), max_size=4)
LINES = delimited()


def log_of(made: list[list[R]], base: int = 0, gap: int = 0) -> tuple[bytes, list[tuple[int, R]]]:
    """Batches of these records, and the records with their offsets."""
    data, records = b"", []
    for group in made:
        data += batch(group, base_offset=base, last_delta=len(group) - 1 + gap)
        records += [(base + i, r) for i, r in enumerate(group)]
        base += len(group) + gap
    return data, records


def rendered(pieces: Pieces, data: bytes, **options: Any) -> bytes:
    text = TemplateText(pieces, limit=1 << 30, **options)
    assert text.render(data, 0, len(data)) in (NEEDS_BYTES, IS_DONE)
    return text.text.take()


@given(groups, st.sampled_from([b"", b"NULL", b"\xff"]), st.sampled_from([b"\n", b"", b"--\x00--"]))
def test_values_and_keys_with_delimiters(made: list[list[R]], null: bytes, end: bytes) -> None:
    data, records = log_of(made, gap=2)
    plain = delimited(delimiter=end, null=null)
    assert rendered(plain, data) == b"".join((null if r.value is None else r.value) + end for _, r in records)
    keyed = delimited(delimiter=end, key_delimiter=b"::", null=null)
    assert rendered(keyed, data) == b"".join(
        (null if r.key is None else r.key) + b"::" + (null if r.value is None else r.value) + end for _, r in records
    )


@given(groups)
def test_encodings(made: list[list[R]]) -> None:
    data, records = log_of(made)
    pieces = delimited(key_delimiter=b" ", key_encoding="hex", value_encoding="base64", null=b"~")
    assert rendered(pieces, data) == b"".join(
        (b"~" if r.key is None else r.key.hex().encode())
        + b" "
        + (b"~" if r.value is None else base64.b64encode(r.value))
        + b"\n"
        for _, r in records
    )


@given(groups)
def test_json_lines(made: list[list[R]]) -> None:
    data, records = log_of(made, base=7)
    lines = rendered(json_lines(topic="t.x", partition=3), data).decode().splitlines(keepends=True)
    expected = [reference_text.json_object(r, offset, topic="t.x", partition=3) for offset, r in records]
    joined = "".join(lines)
    assert [json.loads(line) for line in joined.split("\n")[:-1]] == expected
    assert list(map(list, map(json.loads, joined.split("\n")[:-1]))) == [list(row) for row in expected]


def test_json_text_is_compact_and_escapes_only_what_it_must() -> None:
    data, _ = log_of([[R('a"\\/\n\r\t\b\f\x01\x1f\x7fé€'.encode(), b"\xff\xfe", 5, (("h", None), ("", b"x")))]])
    assert rendered(json_lines(topic="t", partition=0, broker=4), data).decode() == (
        '{"topic":"t","partition":0,"offset":0,"tstype":"create","ts":5,"broker":4,"headers":["h",null,"","x"],'
        '"key":"//4=","key_encoding":"base64",'
        '"payload":"a\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f\x7fé€"}\n'
    )


def test_json_with_encodings_asked_for_and_headers_that_are_not_text() -> None:
    data, _ = log_of([[R(b"v", b"k", 5, (("h", b"\x80"), ("n", None)))], [R(None, None, 6)]])
    pieces = json_lines(topic="t", partition=0, key_encoding="hex", value_encoding="base64")
    first, second = map(json.loads, rendered(pieces, data).splitlines())
    assert (first["key"], first["key_encoding"]) == ("6b", "hex")
    assert (first["payload"], first["payload_encoding"]) == ("dg==", "base64")
    assert (first["headers"], first["headers_encoding"]) == (["aA==", "gA==", "bg==", None], "base64")
    assert second["key"] is second["payload"] is None
    assert not {"key_encoding", "payload_encoding", "headers", "headers_encoding"} & second.keys()


def test_append_time_of_the_log_is_every_records_time() -> None:
    data = batch([R(b"a", timestamp=5), R(b"b", timestamp=6)], attributes=8, max_timestamp=99)
    assert [json.loads(line)["tstype"] for line in rendered(json_lines(topic="t", partition=0), data).splitlines()] == [
        "logappend",
        "logappend",
    ]
    assert rendered(formatted("%T ", topic="t", partition=0), data) == b"99 99 "


@given(groups)
def test_formats(made: list[list[R]]) -> None:
    data, records = log_of(made, base=5)
    pieces = formatted(r"%t[%p]@%o %T %K:%k %S:%s %h%%\n", topic="top", partition=12, null=b"NULL")
    expected = b""
    for offset, r in records:
        headers = b",".join(n.encode() + b"=" + (b"NULL" if v is None else v) for n, v in r.headers)
        expected += b"top[12]@%d %d %d:%s %d:%s %s%%\n" % (
            offset, r.timestamp, -1 if r.key is None else len(r.key), b"NULL" if r.key is None else r.key,
            -1 if r.value is None else len(r.value), b"NULL" if r.value is None else r.value, headers,
        )  # fmt: skip
    assert rendered(pieces, data) == expected
    sizes = rendered(formatted("%R", topic="t", partition=0), data)
    assert sizes == b"".join(struct.pack(">i", -1 if r.value is None else len(r.value)) for _, r in records)


@given(groups, st.integers(0, 30), st.integers(0, 30), st.integers(-1, 6))
def test_offsets_and_counts_bound_what_is_written(made: list[list[R]], first: int, end: int, count: int) -> None:
    data, records = log_of(made, base=3, gap=1)
    text = TemplateText(LINES, first_offset=first, end_offset=end, max_records=count, limit=1 << 30)
    text.render(data, 0, len(data))
    wanted = [(offset, r) for offset, r in records if first <= offset < end]
    wanted = wanted if count < 0 else wanted[:count]
    assert text.text.take() == b"".join((r.value or b"") + b"\n" for _, r in wanted)
    assert text.records == len(wanted)
    assert text.next_offset >= (wanted[-1][0] + 1 if wanted else first)


def test_next_offset_is_where_to_go_on() -> None:
    data, _ = log_of([[R(), R(), R()], [R(), R()]], gap=2)
    text = TemplateText(LINES, max_records=2)
    assert text.render(data, 0, len(data)) == IS_DONE
    assert text.next_offset == 2
    text = TemplateText(LINES)
    text.render(data, 0, len(data))
    assert text.next_offset == 9


@given(groups, st.integers(1, 300), st.integers(1, 90))
def test_any_chunking_and_any_limit_give_the_same_text(made: list[list[R]], limit: int, step: int) -> None:
    data, _ = log_of(made)
    pieces = json_lines(topic="t", partition=0)
    whole = rendered(pieces, data)
    assert render_in_steps(TemplateText(pieces, limit=limit), data, step) == whole


def test_control_batches_are_left_out() -> None:
    marker = batch([R(struct.pack(">hi", 0, 1), bytes(4))], attributes=48, base_offset=1)
    data = batch([R(b"a")]) + marker + batch([R(b"b")], base_offset=2)
    text = TemplateText(LINES)
    text.render(data, 0, len(data))
    assert (text.text.take(), text.records, text.next_offset) == (b"a\nb\n", 2, 3)


def test_checksums_are_checked_unless_told_otherwise() -> None:
    good, bad = batch([R(b"good")]), bytearray(batch([R(b"also")], base_offset=1))
    bad[-2] ^= 1
    data = good + bytes(bad)
    text = TemplateText(LINES)
    assert text.render(data, 0, len(data)) == template.BAD_CRC
    assert (text.text.take(), text.position, text.batch_offset, text.next_offset) == (b"good\n", len(good), 1, 1)
    assert rendered(LINES, data, check_crc=False) == b"good\nalsn\n"


def test_a_batch_smaller_than_its_header_is_never_valid() -> None:
    made = struct.pack(">qiib", 0, 40, 0, 2) + bytes(35)
    assert TemplateText(LINES, check_crc=False).render(made, 0, len(made)) == template.BAD_CRC


def test_formats_and_codecs_that_are_not_read_stop() -> None:
    for codec in range(1, 8):
        made = batch([R(b"a")]) + frame(b"zz", count=1, last_delta=0, base_offset=1, attributes=codec)
        text = TemplateText(LINES)
        assert text.render(made, 0, len(made)) not in (NEEDS_BYTES, IS_FULL, IS_DONE)
        assert (text.batch_offset, text.text.take()) == (1, b"a\n")
    text = TemplateText(LINES)
    made = message_v1(0, b"v")
    assert text.render(made, 0, len(made)) not in (NEEDS_BYTES, IS_FULL, IS_DONE)
    made = made[:16] + b"\x03" + made[17:]
    assert TemplateText(LINES).render(made, 0, len(made)) == template.BAD_MAGIC
    made = struct.pack(">qi", 0, 13) + bytes(20)
    assert TemplateText(LINES).render(made, 0, len(made)) == template.BAD_SIZE


SMALL = batch([R(b"v1", b"k", 5, (("h", b"x"), ("n", None))), R("ä".encode(), None, 9)], base_sequence=3, producer_id=1)
EVERYTHING = json_lines(topic="t", partition=0) + formatted("%h%s%k%o%T%S%K%R", topic="t", partition=0)


def test_every_prefix_asks_for_more() -> None:
    for size in range(len(SMALL)):
        text = TemplateText(EVERYTHING)
        assert text.render(SMALL[:size], 0, size) == NEEDS_BYTES
        assert (len(text.text), text.needed) == (0, 17 if size < 17 else len(SMALL))


@pytest.mark.parametrize("check_crc", [True, False])
def test_every_changed_byte_ends_in_a_status(check_crc: bool) -> None:
    known = {v for k, v in vars(template).items() if k.isupper()} | set(range(1, 16))
    for at in range(len(SMALL)):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            damaged = bytearray(SMALL)
            damaged[at] ^= change
            for made in (bytes(damaged), seal(bytes(damaged))):
                text = TemplateText(EVERYTHING, check_crc=check_crc)
                assert text.render(made, 0, len(made)) in known


@given(st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=2)), max_size=40))
def test_many_tiny_headers_fit_the_room_made_for_them(headers: list[tuple[bytes, bytes | None]]) -> None:
    """Text may be much longer than the bytes it comes from: a null header of two bytes is `"",null,`."""
    body = b"\0\0\0" + varint(-1) * 2 + varint(len(headers))
    for name, value in headers:
        body += varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)
    data = frame(varint(len(body)) + body, count=1, last_delta=0)
    plain = rendered(formatted("%h", topic="t", partition=0), data)
    assert plain == b",".join(n + b"=" + (b"NULL" if v is None else v) for n, v in headers)
    found = json.loads(rendered(json_lines(topic="t", partition=0), data))
    flat = [part for header in headers for part in header]
    if not headers:
        assert "headers" not in found
    elif "headers_encoding" in found:
        assert [None if p is None else base64.b64decode(p) for p in found["headers"]] == flat
    else:
        assert [None if p is None else p.encode() for p in found["headers"]] == flat


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of piece"):
        TemplateText([(99, b"")])
    with pytest.raises(ValueError, match="outside a buffer of 4 bytes"):
        TemplateText(LINES).render(b"four", 0, 5)
    text = TemplateText(LINES)
    with memoryview(text.text), pytest.raises(BufferError):
        text.render(b"", 0, 0)
