"""Random damage, and random use: every reader of bytes gives what a plain reader gives, or refuses; none goes astray.

The same bytes on every run, made from a fixed seed. KAFKALOG_FUZZ multiplies the rounds; `ci/asan.sh` runs them on a
build that notices every access outside a buffer.
"""

import os
import random
import struct
from typing import Any

import crc32c
import pytest

from kafkalog._core.batch import encode, pick, scan
from kafkalog._core.batch.decode import RecordTable, decode
from kafkalog._core.batch.record import RecordIterator
from kafkalog._core.log import assign, index, plan, roll
from kafkalog._core.log.admit import check_rows
from kafkalog._core.text import ingest, render, template
from tests import builder
from tests.plain_reader import Read, read_batch, read_message
from tests.reference_text import wrapped
from tests.renderers import dump_text

TIMES = int(os.environ.get("KAFKALOG_FUZZ", "1"))
NASTY = [0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF]
FIELDS = [(0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"),
          (51, ">h"), (53, ">i"), (57, ">i")]  # fmt: skip
KINDS = [template.VALUE, template.KEY, template.OFFSET, template.TIMESTAMP, template.TIMESTAMP_TYPE,
         template.VALUE_SIZE, template.KEY_SIZE, template.VALUE_SIZE_32, template.HEADERS, template.VALUE_BASE64,
         template.KEY_BASE64, template.VALUE_HEX, template.KEY_HEX, template.JSON_VALUE, template.JSON_KEY,
         template.JSON_HEADERS]  # fmt: skip


def blob(rng: random.Random) -> bytes | None:
    size = rng.choice([None, 0, 1, 5, 30, 63, 64, 200])
    return None if size is None else rng.randbytes(size)


def some_batch(rng: random.Random) -> bytes:
    """A sound batch, or now and then a v1 message."""
    if rng.random() < 0.05:
        return builder.message_v1(rng.randrange(100), blob(rng), blob(rng))
    rows = [
        builder.R(
            blob(rng), blob(rng), rng.choice([-1, 5, 2**41, rng.randrange(2**42)]),
            [("h" * rng.randrange(3), blob(rng)) for _ in range(rng.choice([0, 0, 0, 1, 3]))],
        )
        for _ in range(rng.choice([1, 1, 2, 5, 20]))
    ]  # fmt: skip
    attributes = rng.choice([0, 0, 0, 0, 8, 16, 32, 64, 1])
    return builder.batch(rows, base_offset=rng.choice([0, 7, 2**40]), attributes=attributes)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes with up to four wounds."""
    out = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        at = rng.randrange(len(out)) if out else 0
        wound = rng.randrange(6)
        if not out:
            break
        if wound == 0:
            out[at] = rng.choice(NASTY)
        elif wound == 1:
            out[at : at + 5] = b"\xff\xff\xff\xff\x0f"[: len(out) - at]
        elif wound == 2:
            del out[at : at + rng.choice([1, 3, len(out)])]
        elif wound == 3:
            out[at:at] = rng.randbytes(rng.choice([1, 2, 9]))
        else:
            place, kind = rng.choice(FIELDS)
            bits = 8 * struct.calcsize(kind)
            value = rng.choice([0, -1, 1, 2**31 - 1, -(2**31), 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 61, 49, 14])
            if place + bits // 8 <= len(out):
                struct.pack_into(kind, out, place, wrapped(value, bits))
    if rng.random() < 0.7 and len(out) >= 61:
        if rng.random() < 0.8:
            struct.pack_into(">i", out, 8, len(out) - 12)
        struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


def chunk(rng: random.Random) -> bytes:
    """Some batches, some of them damaged, perhaps cut off."""
    data = b"".join(damaged(rng, some_batch(rng)) for _ in range(rng.choice([1, 1, 2, 5])))
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data


def check_scan(data: bytes, table: scan.BatchTable, base: int) -> None:
    """Rows lie end to end, and a checksum holds where it holds."""
    at = 0
    for header in table:
        assert header.position == at + base
        assert header.size == struct.unpack_from(">i", data, at + 8)[0] + 12
        if header.magic == 2:
            stored = struct.unpack_from(">I", data, at + 17)[0]
            assert header.is_valid == (header.size >= 61 and stored == crc32c.crc32c(data[at + 21 : at + header.size]))
        at += header.size
    assert (table.valid_bytes, table.stop_position) == (at, at + base)
    assert at <= len(data)


def wanted_records(data: bytes, table: scan.BatchTable, base: int) -> tuple[list[Read], bool]:
    """Return the plain reader's records in the batches of a table, up to the first damage."""
    found: list[Read] = []
    for header in table:
        if not 0 <= header.magic <= 2 or header.compression or (header.magic == 2 and header.size < 61):
            return found, False
        whole = data[header.position - base : header.position - base + header.size]
        records, sound = read_batch(whole) if header.magic == 2 else read_message(whole)
        found += records
        if not sound:
            return found, False
    return found, True


def check_decode(data: bytes, records: RecordTable, wanted: tuple[list[Read], bool]) -> None:
    """The table holds what the plain reader found, in every way to ask for it."""
    assert (len(records), records.status == 0) == (len(wanted[0]), wanted[1]), records.error_text
    assert list(zip(records.offsets, records.timestamps, strict=True)) == [r[:2] for r in wanted[0]]
    for row, (record, read) in enumerate(zip(records, wanted[0], strict=True)):
        assert (record.key, record.value, record.headers) == read[2:]
        assert (records.key(row), records.value(row), records.headers(row)) == read[2:]
        view = record.value_view
        assert (None if view is None else bytes(view)) == read.value
        assert record.timestamp_type in (-1, 0, 1)
    assert list(records.value_sizes) == [-1 if r.value is None else len(r.value) for r in wanted[0]]
    rising = [r.offset for r in RecordIterator([records, records], 3, 2**62)]
    assert rising == sorted(set(rising))
    assert all(3 <= offset < 2**62 for offset in rising)


def check_each_batch(data: bytes, table: scan.BatchTable, base: int) -> None:
    """The check before an append, the edits in place and the pickers agree with the plain reader."""
    for row, header in enumerate(table):
        assert table.header_fault(row) in range(6)
        readable = header.magic == 2 and not header.compression and header.size >= 61
        at = header.position - base
        records, sound = read_batch(data[at : at + header.size]) if readable else ([], False)
        check = check_rows(data, table, row, row + 1, base_position=base)
        if header.magic >= 2:
            assert (not check.status) == (readable and sound)
        if readable and header.is_valid and not header.is_control:
            for read in records[:3]:
                picked = pick.pick(data[at:], read.offset)
                if read.offset <= header.last_offset and picked is not None:
                    assert picked.offset == read.offset
    try:
        copy = bytearray(data)
        after = assign.assign(copy, table, 1000, 3, 77, base_position=base)
    except ValueError:
        return
    again = scan.scan(copy, base_position=base)
    assert again.base_offsets[0] == 1000 if table.count else True
    assert again.last_offset + 1 == after or not table.count
    assert all(header.max_timestamp == 77 and header.is_valid for header in again)


def render_all(rng: random.Random, data: bytes) -> None:
    """Both renderers come to an end, whatever the bytes and however they are handed in."""
    dump = dump_text(deep=rng.random() < 0.8, data=rng.random() < 0.5, skip_metadata=rng.random() < 0.2,
                           limit=rng.choice([0, 1, 1 << 18]))  # fmt: skip
    pieces = [(rng.choice(KINDS), rng.choice([b"", b"NULL", b"hex", b"base64"])) for _ in range(rng.randrange(1, 5))]
    consume = template.TemplateText(pieces, check_crc=rng.random() < 0.5, limit=rng.choice([0, 1 << 18]),
                                    max_records=rng.choice([-1, 2]))  # fmt: skip
    for text, full, rest in ((dump, render.IS_FULL, (0,)), (consume, template.IS_FULL, ())):
        start, steps = 0, 0
        while text.render(data, start, len(data), *rest) == full:
            steps += 1
            assert steps <= len(data)
            start = text.position
            text.text.clear()
        assert 0 <= text.position <= len(data)
        memoryview(text.text).release()


def walk_all(rng: random.Random, data: bytes) -> None:
    """The header walks and the look-ups inside one batch stay inside."""
    for target in (-(2**63), -1, 0, 9, 2**62, 2**63 - 1):
        for walk in (scan.find_offset, scan.find_max_timestamp):
            found = walk(data, target, rng.randrange(len(data) + 2))
            assert found.position == -1 or 0 <= found.position < len(data)
        pick.find_record_by_time(data, rng.randrange(-1, len(data) + 2), target, target)
        pick.pick_by_time(data, target, rng.choice([-1, 5]), target, 0)
        pick.pick(data, target)


@pytest.mark.parametrize("seed", range(8))
def test_any_bytes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50 * TIMES):
        data = chunk(rng)
        base = rng.choice([0, 0, 5, 2**62, -(2**62)])
        start = rng.randrange(len(data) + 1) if rng.random() < 0.1 else 0
        table = scan.scan(data, start, base_position=base, file_mode=rng.random() < 0.5)
        part = data[start:]
        base += start
        check_scan(part, table, base)
        check_decode(part, decode(part, table, base_position=base), wanted_records(part, table, base))
        check_each_batch(part, table, base)
        render_all(rng, part)
        walk_all(rng, part)


def test_a_table_from_another_buffer() -> None:
    """Rows name places; the buffer they are used with may be any other. Nothing outside it is touched."""
    rng = random.Random(1)
    for _ in range(100 * TIMES):
        table = scan.scan(chunk(rng), base_position=rng.choice([0, 0, 3, 2**63 - 1, -(2**63)]))
        other = bytearray(chunk(rng))
        first = rng.choice([0, -1, 1, 2**40])
        base = rng.choice([0, 0, -(2**63), 2**63 - 1, 3])
        calls: list[Any] = [
            lambda: list(decode(other, table, base_position=base)),  # noqa: B023
            lambda: decode(other, table, first, rng.randrange(-1, 9)),  # noqa: B023
            lambda: assign.assign(other, table, 5, first=first, base_position=base),  # noqa: B023
            lambda: check_rows(other, table, first, base_position=base),  # noqa: B023
            lambda: assign.stamp_batch(other, table, first, append_time_type=True, timestamp=3),  # noqa: B023
            lambda: plan.plan_append(table, first, roll.SegmentTail(), RULES, 0, True, True),  # noqa: B023
            lambda: plan.offsets_rise(table, first),  # noqa: B023
            lambda: plan.first_without_epoch(table, first),  # noqa: B023
        ]
        for call in calls:
            try:
                call()
            except (ValueError, IndexError):
                pass


RULES = roll.RollRules(0, 1 << 30, 1 << 40, 0, 100)


def test_index_bytes() -> None:
    """Searches of entries that are in no order end, inside what there is."""
    rng = random.Random(2)
    for _ in range(30 * TIMES):
        data = rng.randbytes(rng.choice([0, 7, 8, 12, 96, 12000, 30000]))
        for kind, size in ((index.OffsetEntries, 8), (index.TimeEntries, 12)):
            count = rng.randrange(len(data) // size + 1)
            entries = kind(data, rng.choice([0, 2**63 - 1]), count)
            targets = [rng.choice([-(2**63), 2**63 - 1, rng.randrange(2**62)]) for _ in range(300)]
            found = entries.lookup_many(targets)
            assert len(found[0]) == len(found[1]) == 300
            for target in targets[:20]:
                entries.lookup(target)
                assert 0 <= entries.count_below(target) <= count
        assert 0 <= index.growing_offset_entries(data) <= len(data) // 8
        assert 0 <= index.growing_time_entries(data) <= len(data) // 12


def test_builder_calls() -> None:
    """Whatever is appended comes out again, in sound batches of legal size."""
    rng = random.Random(3)
    for _ in range(60 * TIMES):
        limit = rng.choice([61, 100, 1000, 1 << 20])
        made = encode.BatchBuilder(limit, delete_horizon_ms=rng.choice([None, None, 9]))
        taken = []
        for _ in range(rng.randrange(30)):
            row = (blob(rng), blob(rng), rng.choice([-1, 0, 2**62, -(2**63)]), (("n", blob(rng)),) * rng.randrange(3))
            if made.append(*row, offset_delta=rng.choice([-1, -1, made.last_delta + 3])):
                taken.append(row)
        data = made.build()
        table = scan.scan(data)
        assert (table.count, table.first_invalid) == (1 if taken else 0, -1)
        assert len(data) <= limit or len(taken) == 1
        got = [(r.value, r.key, r.timestamp, r.headers) for r in decode(data, table)]
        assert got == taken


def test_text_in_pieces() -> None:
    """Every line comes out once, with its key, whatever the pieces, delimiters and partitions."""
    rng = random.Random(4)
    for _ in range(40 * TIMES):
        lanes = rng.choice([1, 2, 7])
        end = rng.choice([b"\n", b"--", b"aab"])
        encoder = ingest.LineEncoder(
            lanes, batch_bytes=rng.choice([61, 150, 5000]), chunk_bytes=rng.choice([0, 100, 1 << 20]), delimiter=end,
            key_delimiter=rng.choice([None, b":", b"::"]), null=rng.choice([None, b"", b"N"]),
        )  # fmt: skip
        lines = [rng.choice([b"a:b", b"N", b"", b"::", b"z" * rng.randrange(300)]) for _ in range(rng.randrange(60))]
        rest, taken = b"", [bytearray() for _ in range(lanes)]
        for line in lines:
            rest += line + end
            cut = rng.randrange(len(rest) + 1)
            rest = rest[encoder.feed(rest, cut, 1) :]
            lane = rng.randrange(lanes)
            taken[lane] += encoder.take(lane)
        encoder.feed(rest, len(rest), 1, final=True)
        encoder.seal()
        total = 0
        for lane in range(lanes):
            data = taken[lane] + encoder.take(lane)
            table = scan.scan(data)
            records = decode(data, table)
            assert (table.first_invalid, table.valid_bytes, records.status) == (-1, len(data), 0)
            assert len(records) == encoder.records(lane)
            total += len(records)
        assert total == len(lines)
