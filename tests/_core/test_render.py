"""The dump tool's text of batches and records, against a slow oracle: DUMP-1, DUMP-2, DUMP-3, DUMP-11, DUMP-14."""

import gzip
import struct
import threading
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.batch.unpack import FIRST_FAULT
from kafkalog._core.text import render
from kafkalog._core.text.render import IS_FULL, NEEDS_BYTES
from kafkalog._core.text.text_buffer import java_text
from tests import reference_text
from tests.builder import R, batch, frame, message_v1, seal, sized, varint
from tests.renderers import dump_text, render_in_steps

MAX32, MAX64 = 2**31 - 1, 2**63 - 1
blobs = st.none() | st.binary(max_size=40) | st.text(max_size=12).map(str.encode)
times = st.integers(-1, 2**41) | st.sampled_from([-(2**63), MAX64])
names = st.text(st.characters(codec="utf-8"), max_size=6)
rows = st.builds(
    R, value=blobs, key=blobs, timestamp=times, headers=st.lists(st.tuples(names, blobs), max_size=3).map(tuple),
    delta=st.none() | st.integers(-(2**31), MAX32 - 9),
)  # fmt: skip
FIELDS: dict[str, st.SearchStrategy[int]] = {
    "base_offset": st.integers(0, 2**40) | st.just(MAX64),
    "attributes": st.sampled_from([0, 8, 16, 24, 64, 72]),
    "leader_epoch": st.integers(-1, MAX32),
    "producer_id": st.integers(-1, MAX64),
    "producer_epoch": st.integers(-1, 2**15 - 1),
    "base_sequence": st.sampled_from([-1, 0, 7, MAX32 - 1, MAX32, -5]),
}
fields = st.fixed_dictionaries({}, optional=FIELDS)


def rendered(batches: bytes, **options: Any) -> str:
    """The text of whole batches, rendered in one go."""
    text = dump_text(limit=1 << 30, **options)
    assert text.render(batches, 0, len(batches), 0) == NEEDS_BYTES
    assert text.position == len(batches)
    return text.text.take().decode()


def in_range(records: list[R], header: dict[str, int]) -> dict[str, int]:
    """Header fields under which the builder can write the records: deltas of time need 64 bits only."""
    header = dict(header)
    if any(abs(r.timestamp - records[0].timestamp) >= 2**62 for r in records):
        header["base_timestamp"] = 0
    return header


@given(st.lists(rows, max_size=5), fields, st.booleans(), st.booleans())
def test_records_are_printed_as_the_oracle_prints_them(
    records: list[R], header: dict[str, int], data: bool, skip_metadata: bool
) -> None:
    made = batch(records, **in_range(records, header))
    expected = reference_text.deep_text(records, made, 0, data=data, skip_metadata=skip_metadata)
    assert rendered(made, deep=True, data=data, skip_metadata=skip_metadata) == expected


@given(st.binary(max_size=60))
def test_malformed_utf8_is_replaced_as_java_does(data: bytes) -> None:
    assert java_text(data).decode() == reference_text.java_text(data)


@given(st.text(max_size=60))
def test_well_formed_utf8_is_kept(text: str) -> None:
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert java_text(text.encode()) == text.encode()


def test_the_batch_of_the_format_notes() -> None:
    """The worked example of format.md section 12: 87 bytes, two records."""
    records = [R(b"v", b"k", 1000, (("h1", b"1"), ("h2", None))), R(b"w", None, 1001)]
    made = batch(records, leader_epoch=3)
    assert len(made) == 87
    assert rendered(made, data=True) == (
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 1001 size: 87 magic: 2 compresscodec: none "
        f"crc: {struct.unpack_from('>I', made, 17)[0]} isvalid: true\n"
        "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h1,h2] key: k payload: v\n"
        "| offset: 1 CreateTime: 1001 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: w\n"
    )


def test_shallow_text_has_batch_lines_only() -> None:
    first, second = batch([R(), R()]), batch([R()], base_offset=9)
    expected = reference_text.batch_line(first, 0) + reference_text.batch_line(second, len(first))
    assert rendered(first + second) == expected


def test_positions_count_from_the_base_position() -> None:
    made = batch([R()])
    text = dump_text()
    text.render(b"xx" + made, 2, 2 + len(made), 5_000_000_000)
    assert text.text.take().decode() == reference_text.batch_line(made, 5_000_000_002)


def test_an_empty_batch_has_its_line_only() -> None:
    made = frame(b"", count=0, last_delta=4, base_sequence=10, max_timestamp=7, producer_id=3)
    line = rendered(made, data=True)
    assert line == reference_text.batch_line(made, 0)
    assert " lastOffset: 4 count: 0 baseSequence: 10 lastSequence: 14 " in line


def test_a_wrong_checksum_is_told_and_the_records_are_printed_all_the_same() -> None:
    made = bytearray(batch([R(b"good")]))
    made[-2] ^= 1
    text = rendered(bytes(made), data=True)
    assert "isvalid: false\n| offset: 0 " in text and text.endswith("payload: gooe\n")


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_compressed_batch_has_its_line_also_if_its_records_cannot_be_had(codec: int) -> None:
    made = frame(b"unreadable", count=3, last_delta=2, attributes=codec)
    assert rendered(made) == reference_text.batch_line(made, 0)
    deep = dump_text(deep=True)
    assert deep.render(made, 0, len(made), 0) >= FIRST_FAULT and deep.is_refused
    assert deep.batch_offset == 0
    assert deep.text.take().decode() == reference_text.batch_line(made, 0)


ONE = message_v1(12, b"value", b"key", timestamp=99)
ZERO = ONE[:16] + b"\0\0" + ONE[26:]
ZERO = ZERO[:8] + struct.pack(">iI", len(ZERO) - 12, zlib.crc32(ZERO[16:])) + ZERO[16:]


def test_messages_of_format_v1_and_v0_have_lines_of_their_own() -> None:
    """DUMP-14, A1."""
    expected = [reference_text.message_line(ONE, 0), reference_text.message_line(ZERO, len(ONE))]
    assert "CreateTime: 99 " in expected[0] and "NoTimestampType: -1 " in expected[1]
    assert rendered(ONE + ZERO) == "".join(expected)
    bad = ONE[:-1] + b"!"
    for made, kind in ((ONE, "CreateTime: 99"), (ZERO, "NoTimestampType: -1"), (bad, "CreateTime: 99")):
        line, record = rendered(made, data=True).splitlines()
        crc, valid = struct.unpack_from(">I", made, 12)[0], "false" if made is bad else "true"
        value = made[-5:].decode()
        fields = f"| offset: 12 {kind} keySize: 3 valueSize: 5 isValid: {valid} crc: {crc}"
        assert record == f"{fields} key: key payload: {value}"
        assert line + "\n" == reference_text.message_line(made, 0)
        assert rendered(made, deep=True).splitlines()[1] == fields
        assert rendered(made, data=True, skip_metadata=True).splitlines()[1] == f"| key: key payload: {value}"


def test_messages_of_a_wrapper_have_its_time() -> None:
    """With LogAppendTime they have the wrapper's time, but one of format v0 in it has none; crc is each one's own."""
    wrapper = message_v1(13, gzip.compress(bytes(8) + ONE[8:] + struct.pack(">q", 1) + ZERO[8:]), timestamp=500)
    wrapper = wrapper[:17] + b"\x09" + wrapper[18:]
    deep = dump_text(data=True, limit=1)
    while deep.render(wrapper, deep.position, len(wrapper), 0) == IS_FULL:
        continue
    lines = deep.text.take().decode().splitlines()
    assert [line.split(" keySize")[0] for line in lines[1:]] == [
        "| offset: 12 LogAppendTime: 500",
        "| offset: 13 LogAppendTime: -1",
    ]
    assert deep.non_consecutive == [(-1, 12)]
    assert lines[1].endswith(f"isValid: true crc: {struct.unpack_from('>I', ONE, 12)[0]} key: key payload: value")


@pytest.mark.parametrize("ask", [False, True])
def test_a_message_whose_value_runs_past_its_end_is_printed_up_to_it(ask: bool) -> None:
    """As in the reference, which finds out when it reads the value (format.md section 15, C2)."""
    long = ONE[:-9] + struct.pack(">i", 6) + ONE[-5:]
    text = dump_text(data=True, ask=ask)
    assert text.render(long, 0, len(long), 0) in range(1, 30)
    record = text.text.take().decode().splitlines()[1]
    assert record.startswith("| offset: 12 CreateTime: 99 keySize: 3 valueSize: 6 isValid: false crc: ")
    assert "key: key" not in record
    assert rendered(long, deep=True).splitlines()[1] == record
    for damaged in (ONE[:26] + struct.pack(">i", 99) + ONE[30:], ONE[:-9]):
        damaged = damaged[:8] + struct.pack(">i", len(damaged) - 12) + damaged[12:]
        text = dump_text(deep=True)
        assert text.render(damaged, 0, len(damaged), 0) in range(1, 30)
        assert text.text.take().decode().count("\n") == 1


def test_sizes_of_a_message_are_printed_as_they_are_stored() -> None:
    """Any size below 0 is null."""
    made = ONE[:-9] + struct.pack(">i", -5)
    made = made[:8] + struct.pack(">i", len(made) - 12) + made[12:]
    record = rendered(made, data=True).splitlines()[1]
    assert " keySize: 3 valueSize: -5 isValid: false " in record and record.endswith(" key: key")


def test_transaction_markers_name_their_kind_and_epoch() -> None:
    for kind, name in ((0, "ABORT"), (1, "COMMIT")):
        record = R(struct.pack(">hi", 0, 7), struct.pack(">hh", 0, kind), 5)
        made = batch([record], attributes=48, producer_id=1, producer_epoch=0)
        end = f"keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: {name} coordinatorEpoch: 7\n"
        assert rendered(made, data=True).endswith(end)
        assert rendered(made, data=True, skip_metadata=True).split("\n")[1:] == ["", ""]


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        (struct.pack(">hh", -1, 0), b"x" * 6, render.BAD_CONTROL),
        (b"\0\0\0", b"x" * 6, render.BAD_CONTROL),
        (None, b"x" * 6, render.BAD_CONTROL),
        (struct.pack(">hh", 0, 0), b"\0\0\0\0\0", render.BAD_CONTROL),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 0), render.BAD_CONTROL),
        (struct.pack(">hh", 0, 1), None, render.BAD_CONTROL),
    ],
)
def test_malformed_control_records_stop_behind_their_header_keys(
    key: bytes | None, value: bytes | None, status: int
) -> None:
    """The reference dies there as well, with the same text before it."""
    made = batch([R(value, key)], attributes=48)
    text = dump_text(deep=True)
    assert text.render(made, 0, len(made), 0) == status
    assert text.text.take().decode().endswith(" headerKeys: []")


@pytest.mark.parametrize("kind", [-1, 7, 32767])
def test_control_types_that_mean_nothing_have_their_number(kind: int) -> None:
    made = batch([R(None, struct.pack(">hh", 0, kind))], attributes=48)
    assert rendered(made, deep=True).endswith(f" headerKeys: [] controlType: UNKNOWN({kind})\n")


def answered(batches: bytes, answer: Any, **options: Any) -> tuple[str, list[tuple[bytes | None, bytes | None, int]]]:
    """The text where `answer(renderer)` gives what is asked for, and (key, value, offset) of what was asked."""
    text, asked = dump_text(deep=True, **options), []
    at, out = 0, b""
    while (status := text.render(batches, at, len(batches), 0)) in (render.NEEDS_TEXT, IS_FULL):
        at = text.position
        if status == render.NEEDS_TEXT:
            asked.append((text.key, text.value, text.record_offset))
            text.give(answer(text))
        out += text.text.take()
    assert status == NEEDS_BYTES
    return (out + text.text.take()).decode(), asked


@pytest.mark.parametrize("limit", [1, 1 << 30])
def test_the_caller_gives_the_text_of_keys_and_values(limit: int) -> None:
    records = [R(b"one", b"k"), R(None, None), R(b"", b"")]
    data = batch(records, base_offset=7) + batch([R(b"two")], base_offset=10)
    text, asked = answered(data, lambda at: b" <%d>" % at.record_offset, data=True, ask=True, limit=limit)
    plain = rendered(data, deep=True)
    lines = iter(range(7, 11))
    expected = [line + f" <{next(lines)}>" if line.startswith("|") else line for line in plain.splitlines()]
    assert text.splitlines() == expected
    assert asked == [(b"k", b"one", 7), (None, None, 8), (b"", b"", 9), (None, b"two", 10)]


def test_only_the_words_of_the_caller_stand_on_a_line_without_metadata() -> None:
    data = batch([R(b"one"), R(b"two")]) + batch([R(struct.pack(">hi", 0, 1), bytes(4))], attributes=48, base_offset=2)
    text, asked = answered(data, lambda at: at.value, data=True, ask=True, skip_metadata=True)
    assert [line for line in text.splitlines() if not line.startswith("base")] == ["one", "two", ""]
    assert len(asked) == 2


@pytest.mark.parametrize("kind", range(2, 7))
def test_the_words_of_kraft_records_are_the_callers(kind: int) -> None:
    record = R(b"body", struct.pack(">hh", 0, kind))
    text, asked = answered(batch([record], attributes=32), lambda at: b" yes" if at.is_control else b" no")
    assert text.endswith(" headerKeys: [] yes\n")
    assert asked == [(record.key, record.value, 0)]


def test_a_line_that_waits_for_text_is_given_it_first() -> None:
    data = batch([R(b"one")])
    text = dump_text(data=True, ask=True)
    with pytest.raises(ValueError, match="no line waits"):
        text.give(b"early")
    assert text.render(data, 0, len(data), 0) == render.NEEDS_TEXT
    with pytest.raises(ValueError, match="waits for its text"):
        text.render(data, 0, len(data), 0)
    text.give(b"")
    assert text.render(data, 0, len(data), 0) == NEEDS_BYTES
    assert (text.key, text.value) == (None, None)


@pytest.mark.parametrize("limit", [1, 1 << 30])
def test_records_of_a_compressed_batch_are_those_of_the_plain_one(limit: int) -> None:
    plain = batch([R(b"one", b"k"), R(b"two")], base_offset=3)
    squeezed = frame(
        gzip.compress(plain[61:]), count=2, last_delta=1, base_offset=3, attributes=1, base_timestamp=R().timestamp
    )
    data = squeezed + batch([R(b"three")], base_offset=5)
    text, at, out = dump_text(data=True, limit=limit), 0, b""
    while (status := text.render(data, at, len(data), 0)) == IS_FULL:
        at = text.position
        out += text.text.take()
    assert (status, text.position) == (NEEDS_BYTES, len(data))
    records = [R(b"one", b"k"), R(b"two")]
    lines = [reference_text.record_line(r, i, plain, data=True) for i, r in enumerate(records)]
    rest = reference_text.deep_text([R(b"three")], data[len(squeezed) :], len(squeezed))
    expected = reference_text.batch_line(squeezed, 0) + "".join(lines) + rest
    assert (out + text.text.take()).decode() == expected


def test_a_batch_of_no_records_is_not_looked_into() -> None:
    """The reference takes count 0 for an empty batch, whatever follows its header or is compressed."""
    for attributes in (0, 1):
        made = frame(b"left", count=0, last_delta=0, attributes=attributes)
        assert rendered(made, deep=True) == reference_text.batch_line(made, 0)


def test_offsets_that_do_not_follow_are_collected_from_minus_one_on() -> None:
    """DUMP-11."""
    data = batch([R(), R(delta=3)], base_offset=5) + batch([R()], base_offset=9) + batch([R()], base_offset=9)
    text = dump_text(deep=True)
    text.render(data, 0, len(data), 0)
    assert text.non_consecutive == [(-1, 5), (5, 8), (9, 9)]
    shallow = dump_text()
    shallow.render(data, 0, len(data), 0)
    assert shallow.non_consecutive == []


@given(
    st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 400), st.integers(1, 90)
)
def test_any_chunking_and_any_limit_give_the_same_text(groups: list[list[R]], limit: int, step: int) -> None:
    made = [batch(group, **in_range(group, {})) for group in groups]
    data = b"".join(made)
    whole = rendered(data, data=True)
    assert render_in_steps(dump_text(data=True, limit=limit), data, step, 0).decode() == whole


SMALL = batch([R(b"v1", b"k", 5, (("h", b"x"), ("n", None))), R("ä".encode(), None, 9)], base_sequence=3, producer_id=1)


def test_every_prefix_asks_for_more() -> None:
    """DUMP-10: what is no whole batch is left, and not printed."""
    for size in range(len(SMALL)):
        text = dump_text(data=True)
        assert text.render(SMALL[:size], 0, size, 0) == NEEDS_BYTES
        assert (text.position, len(text.text)) == (0, 0)
        assert text.needed == (18 if size < 18 else len(SMALL))


@pytest.mark.parametrize("sealed", [False, True])
def test_every_changed_byte_ends_in_a_status(sealed: bool) -> None:
    """No byte can make it read outside the buffer or hang: each change prints something, or stops with a status."""
    known = {v for k, v in vars(render).items() if k.isupper()} | set(range(1, 16))
    for at in range(len(SMALL)):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            damaged = bytearray(SMALL)
            damaged[at] ^= change
            made = seal(bytes(damaged)) if sealed else bytes(damaged)
            text = dump_text(data=True)
            assert text.render(made, 0, len(made), 0) in known or text.is_refused


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (b"\xff\xff\xff\xff\xff\xff", 1),
        (varint(30) + b"\0" * 9, 1),
        (varint(-1), 1),
        (varint(3) + b"\0\0\0", 1),
        (varint(6) + b"\0\0\0" + varint(5) + b"\0\0", 1),
        (varint(6) + b"\0\0\0\0" + varint(9) + b"\0", 1),
        (varint(6) + b"\0\0\0\0\0" + varint(-1), 1),
        (varint(6) + b"\0\0\0\0\0" + varint(5), 1),
        (varint(8) + b"\0\0\0\0\0" + varint(1) + varint(-1) + b"\0", 1),
        (varint(7) + b"\0\0\0\0\0\0\0", 1),
        (b"", 1),
        (b"", -1),
        (varint(6) + b"\0" * 6 + b"\0", 1),
        (varint(12) + b"\0\0\0" + sized(None) + sized(None) + varint(4) + b"\0\0\0\0\0\0", 1),
    ],
)
def test_malformed_records_stop_with_a_status_and_print_no_line(records: bytes, count: int) -> None:
    made = frame(records, count=count, last_delta=0)
    text = dump_text(data=True)
    assert text.render(made, 0, len(made), 0) in range(1, 16)
    assert text.text.take().decode() == reference_text.batch_line(made, 0)


def test_fewer_records_than_declared_stop_after_the_last() -> None:
    made = frame(varint(6) + b"\0" * 6, count=2, last_delta=1)
    text = dump_text(data=True)
    assert text.render(made, 0, len(made), 0) in range(1, 16)
    assert (
        text.text.take()
        .decode()
        .endswith("| offset: 0 CreateTime: -1 keySize: 0 valueSize: 0 sequence: -1 headerKeys: [] key:  payload: \n")
    )


def test_records_before_the_malformed_one_are_printed() -> None:
    good = batch([R(b"a"), R(b"b")])
    made = frame(good[61:] + varint(30) + b"\0", count=3, last_delta=2, base_timestamp=R().timestamp)
    text = dump_text(data=True)
    assert text.render(made, 0, len(made), 0) in range(1, 16)
    assert (text.record_number, text.record_position) == (2, len(good))
    assert text.text.take().decode().count("\n") == 3


def test_text_in_use_cannot_move() -> None:
    text = dump_text()
    with memoryview(text.text), pytest.raises(BufferError):
        text.render(b"", 0, 0, 0)
    with memoryview(text.text), pytest.raises(BufferError):
        text.text.clear()
    assert text.render(b"", 0, 0, 0) == NEEDS_BYTES


def test_two_threads_cannot_render_into_one_text() -> None:
    """The work is done without the GIL: the second thread is turned away, and neither sees torn text."""
    data = batch([R(b"x" * 1000)] * 200)
    text = dump_text(data=True, limit=1 << 30)
    turned_away: list[BufferError] = []
    rendered_batches: list[int] = []

    def work() -> None:
        for _ in range(200):
            try:
                rendered_batches.append(text.render(data, 0, len(data), 0))
            except BufferError as error:
                turned_away.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rendered_batches) + len(turned_away) == 400
    assert text.text.take().decode().count("\n") == 201 * len(rendered_batches)
