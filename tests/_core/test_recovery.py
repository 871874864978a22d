"""The compiled pass of recovery: what scan, the plan of an append and the staging of producers say, batch by batch."""

import struct
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.log.plan import plan_append
from kafkalog._core.log.producer_checks import Producers
from kafkalog._core.log.recovery import (
    BAD_CRC,
    BAD_ORDER,
    BAD_RANGE,
    BAD_SIZE,
    END,
    LEAST_CHUNK,
    MORE,
    PARTIAL,
    RecoveryPass,
)
from kafkalog._core.log.roll import RollRules, SegmentTail
from tests import raw_batches
from tests.transactional import CONTROL, TRANSACTIONAL

FOREVER = 2**31 - 1


def walked(
    data: bytes, chunk: int = LEAST_CHUNK, base: int = 0, *, interval: int = 4096, slots: int = 100
) -> tuple[int, RecoveryPass]:
    """Why the pass over `data` stopped, and the pass."""
    found = RecoveryPass(base, len(data), interval, slots, slots)
    while True:
        piece = data[found.position : found.position + chunk]
        status = found.check(piece, 0, len(piece))
        if status != MORE:
            return status, found
        assert piece


def gathered(data: bytes, base: int, interval: int, slots: int) -> tuple[object, ...]:
    """Return the pass's expected result for sound batches, from the parts of an append: tail, entries, epochs."""
    table = scan(data, file_mode=True)
    tail = SegmentTail(offset_slots=slots, time_slots=slots - 1)
    offsets = times = b""
    epochs: list[tuple[int, int]] = []
    if len(table):
        plan = plan_append(table, 0, tail, RollRules(base, FOREVER, 2**62, 0, interval), 0, True, True)
        tail = plan.tail
        for last, position, timestamp, offset in plan.entries or ():
            offsets += struct.pack(">ii", last - base, position)
            times += struct.pack(">qi", timestamp, offset - base) if timestamp >= 0 else b""
    for one in table:
        if one.leader_epoch > (epochs[-1][0] if epochs else -1):
            epochs.append((one.leader_epoch, one.base_offset))
    if tail.max_timestamp > tail.last_time_entry:
        times += struct.pack(">qi", tail.max_timestamp, tail.offset_of_max_timestamp - base)
    return tail, offsets, times, epochs, len(table)


def as_tuple(found: RecoveryPass) -> tuple[object, ...]:
    return found.tail, found.offset_index, found.time_index, found.leader_epochs, found.batches


def known(producers: Producers) -> tuple[object, ...]:
    """All that is known of producers and transactions."""
    return (
        {p.producer_id: (p.entry(), p.batches) for p in producers}, producers.open_transactions,
        producers.first_unstable_offset,
    )  # fmt: skip


def replayed(producers: Producers, data: bytes) -> list[object]:
    """The transactions that end in `data`, which is taken over batch by batch as an append would be."""
    table = scan(data, file_mode=True)
    done: list[object] = []
    for row in range(len(table)):
        staged = producers.stage(table, row, row + 1, data)
        if staged is not None:
            done += producers.completions(staged)
            producers.commit(staged, 0)
    return done


def made(
    offset: int, rows: list[tuple[int, bytes | None, bytes]], *, attributes: int = 0, epoch: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """One batch; without rows it is one that compaction emptied. `producer` is (id, epoch, first sequence)."""
    first = rows[0][0] if rows else -1
    payload = b"".join(raw_batches.record(n, t, k, v, first) for n, (t, k, v) in enumerate(rows))
    largest = max((t for t, _, _ in rows), default=-1)
    head = struct.pack(">hiqqqhii", attributes, max(len(rows), 1) - 1, first, largest, *producer, len(rows))
    return raw_batches.framed(offset, head + payload, epoch=epoch)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches of a few producers with gaps in their offsets: data, transactions, markers, one that is long."""
    offset, parts = draw(st.integers(0, 50)), []
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["plain", "plain", "data", "txn", "txn", "abort", "commit", "empty", "long"]))
        epoch, time = draw(st.integers(-1, 4)), draw(st.sampled_from([-1, 5, 1000, 1001, 2000]))
        who = (draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.sampled_from([0, 1, 7, FOREVER])))
        size = draw(st.sampled_from([1, 30, 3000]))
        rows: list[tuple[int, bytes | None, bytes]]
        rows = [(time + n, None, b"x" * size) for n in range(draw(st.integers(1, 3)))]
        if kind == "plain":
            one = made(offset, rows, epoch=epoch)
        elif kind == "long":
            one = made(offset, [(time, b"k", b"y" * 90_000)], epoch=epoch)
        elif kind in ("data", "txn"):
            one = made(offset, rows, attributes=TRANSACTIONAL * (kind == "txn"), epoch=epoch, producer=who)
        else:
            code = 0 if kind == "abort" else draw(st.sampled_from([1, 1, 1, 2]))
            key = struct.pack(">hh", draw(st.sampled_from([0, 0, 0, 1, -1])), code)
            rows = [] if kind == "empty" else [(time, key, struct.pack(">hi", 0, draw(st.integers(0, 3))))]
            one = made(offset, rows, attributes=CONTROL, epoch=epoch, producer=(*who[:2], -1))
        parts.append(one)
        offset += max(1, len(rows)) + draw(st.sampled_from([0, 0, 1, 9]))
    return parts


@settings(max_examples=300, deadline=None)
@given(parts=logs(), data=st.data())
def test_it_says_what_appends_would_have(parts: list[bytes], data: st.DataObject) -> None:
    """SEG-22, SEG-24, SEG-25: index entries, epochs and producers; also where a log is taken in two stretches."""
    whole = b"".join(parts)
    interval, slots = data.draw(st.sampled_from([0, 100, 4096])), data.draw(st.sampled_from([1, 2, 3, 100]))
    status, found = walked(whole, interval=interval, slots=slots)
    assert status == END
    assert as_tuple(found) == gathered(whole, 0, interval, slots)
    ours, theirs = Producers(), Producers()
    at = data.draw(st.integers(0, len(parts)))
    completed: list[object] = []
    for stretch in (parts[:at], parts[at:]):
        base = int.from_bytes(stretch[0][:8], "big") if stretch else 0
        completed += ours.take_over(walked(b"".join(stretch), base=base)[1].producers)
    assert completed == replayed(theirs, whole)
    assert known(ours) == known(theirs)


@settings(max_examples=200, deadline=None)
@given(parts=logs(), data=st.data())
def test_it_stops_at_the_first_batch_that_is_not_sound(parts: list[bytes], data: st.DataObject) -> None:
    """SEG-21: any bit behind the batch's size, any batch; what lies before it is as if nothing followed."""
    if not parts:
        return
    row = data.draw(st.integers(0, len(parts) - 1))
    broken = bytearray(parts[row])
    broken[data.draw(st.integers(21, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    sound = b"".join(parts[:row])
    status, found = walked(sound + bytes(broken) + b"".join(parts[row + 1 :]))
    assert status == BAD_CRC
    assert (found.tail.size, as_tuple(found)) == (len(sound), as_tuple(walked(sound)[1]))
    assert found.producers.producer_ids == walked(sound)[1].producers.producer_ids


@settings(max_examples=100, deadline=None)
@given(parts=logs(), data=st.data())
def test_chunks_do_not_matter(parts: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(parts) + raw_batches.batch(10**6, [b"z" * 200_000], epoch=9))
    cut = data.draw(st.integers(0, len(whole)))
    del whole[cut:]
    chunk = data.draw(st.integers(LEAST_CHUNK, 3 * LEAST_CHUNK))
    once, often = walked(bytes(whole), len(whole) + 1), walked(bytes(whole), chunk)
    assert (once[0], as_tuple(once[1])) == (often[0], as_tuple(often[1]))


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (raw_batches.batch(2, [b"x"] * 3), END),
        (raw_batches.batch(0, [b"x"]), BAD_ORDER),
        (raw_batches.batch(2, [b"x"])[:40], PARTIAL),
        (raw_batches.batch(2, [b"x"])[:16], PARTIAL),
        (bytes(100), BAD_SIZE),
        (raw_batches.batch(2**31 - 1, [b"x"]), END),
        (raw_batches.batch(2**31, [b"x"]), BAD_RANGE),
    ],
)
def test_why_it_stops(second: bytes, status: int) -> None:
    """SEG-23, SEG-26: an offset that does not fit is named, whatever else is damaged is an end."""
    first = raw_batches.batch(0, [b"x", b"y"])
    found = walked(first + second)
    assert found[0] == status
    assert found[1].tail.size == len(first) + (len(second) if status == END else 0)
    assert found[1].bad_offset == (2**31 if status == BAD_RANGE else -1)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=600), base=st.sampled_from([0, 5, 2**62]))
def test_any_bytes_come_to_an_end(content: bytes, base: int) -> None:
    status, found = walked(content, base=base)
    assert status != MORE and found.tail.size <= found.position <= len(content)


def test_a_marker_in_a_batch_of_any_size_up_to_its_limit() -> None:
    """Batches beyond the chunk are read again whole; no coordinator writes longer ones."""
    data = made(0, [(5, None, b"v")], attributes=TRANSACTIONAL, producer=(1, 0, 0))
    ended = []
    for size in (10, 60_000, 70_000):
        row = (5, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 7) + bytes(size))
        marker = made(1, [row], attributes=CONTROL, producer=(1, 0, -1))
        producers = Producers()
        producers.take_over(walked(data + marker)[1].producers)
        ended.append(not producers.open_transactions)
    assert ended == [True, True, False]


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.check(b"abc", 0, 4),
        lambda p: p.check(b"abc", -1, 1),
        lambda p: p.check(b"abc", 1, -1),
        lambda p: p.check(b"abc", 4, 0),
    ],
)
def test_a_chunk_that_the_buffer_does_not_hold(call: Callable[[RecoveryPass], int]) -> None:
    with pytest.raises(ValueError, match="of a buffer of 3"):
        call(RecoveryPass(0, 100, 4096, 10, 10))


def test_two_threads_do_not_share_a_pass() -> None:
    """The second one is refused, or comes after the first: never both at once."""
    data = b"".join(raw_batches.batch(n, [b"x" * 100]) for n in range(2000))
    found = RecoveryPass(0, len(data), 4096, 100, 100)
    outcomes: list[object] = []

    def run() -> None:
        try:
            for _ in range(200):
                outcomes.append(found.check(data, found.position, len(data) - found.position))
                assert len(found.leader_epochs) <= 1 and len(found.offset_index) % 8 == 0
        except RuntimeError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.batches == 2000 and END in outcomes


def test_many_producers() -> None:
    """The table of producers grows; ids of any size, each known once."""
    ids = [(n * 2**40 + n) % 2**63 for n in range(3000)]
    data = b"".join(made(n, [(5, None, b"v")], producer=(ids[n % 3000], 0, n // 3000)) for n in range(6000))
    found = walked(data)[1]
    assert found.producers.producer_ids == ids
    producers = Producers()
    assert producers.take_over(found.producers) == []
    assert known(producers)[0] == known(_replayed(data))[0]


def test_many_transactions_that_end_in_the_order_in_which_they_began() -> None:
    """Each end asks for the oldest that is open: it is found at once, however many ended before."""
    count = 100_000
    content = bytearray()
    commit = (5, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7))
    data = made(0, [(5, None, b"v")], attributes=TRANSACTIONAL, producer=(0, 0, 0))
    for is_marker, batch in enumerate((data, made(0, [commit], attributes=CONTROL, producer=(0, 0, -1)))):
        one = bytearray(batch)
        for n in range(count):
            struct.pack_into(">q", one, 0, n + count * is_marker)
            struct.pack_into(">q", one, 43, n)
            struct.pack_into(">I", one, 17, crc32c(memoryview(one)[21:]))
            content += one
    found = RecoveryPass(0, len(content), 4096, 10, 10)
    assert found.check(content, 0, len(content)) == END
    done = Producers().take_over(found.producers)
    assert [(txn.producer_id, stable) for txn, stable in done[:2]] == [(0, 1), (1, 2)]
    assert (done[-1][0].producer_id, done[-1][1]) == (count - 1, 2 * count) and len(done) == count


def _replayed(data: bytes) -> Producers:
    producers = Producers()
    replayed(producers, data)
    return producers
