"""Random damage for what filters batches: sound bytes and true counters, or a status; it never goes astray.

KAFKALOG_FUZZ multiplies the rounds; `ci/asan.sh` runs them on a build that notices every access outside a buffer.
"""

import random

import pytest

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.clean.clean_rules import Retention
from kafkalog._core.clean.cleaned_txns import CleanedTxns
from kafkalog._core.clean.last_records import LastRecords
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.clean.rewrite_kept import STEP_DONE, RecordFilter
from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.records.compression import compress
from kafkalog.records.filter import filter_to
from tests._core.test_fuzz_rewrite import ROUNDS, damaged, some_set
from tests.builder import R, batch, seal


def some_rules(rng: random.Random, data: bytes) -> Retention:
    """A map that knows of some of the keys, and producers and transactions that damage may well name."""
    offset_map = SkimpyOffsetMap(24 * 64)
    table = scan(data)
    for row in range(len(table)):
        records = decode(data, table, row, row + 1)
        for record in [] if records.status else records:
            if record.key is not None and rng.random() < 0.7:
                offset_map.put(record.key, max(record.offset + rng.choice([-1, 0, 0, 1]), 0))
    offset_map.update_latest_offset(rng.choice([-1, 3, 2**40 + 4, 2**62]))
    txns = CleanedTxns()
    txns.add_aborted([(0, rng.choice([-1, 0, 255]), 0, 5, 6)] * rng.choice([0, 1, 2]))
    rules = Retention(
        offset_map,
        txns,
        now_ms=rng.choice([0, 2**41, 2**63 - 1]),
        delete_retention_ms=rng.choice([0, 2**40, 2**63 - 1]),
        upper_bound_offset=rng.choice([-1, 0, 4, 2**40 + 3]),
    )
    rules.begin_segment(rng.random() < 0.5, LastRecords([(p, rng.choice([-1, 0, 3]), -1) for p in (-1, 0, 255)]))
    return rules


def check_result(data: bytes, table: BatchTable, done: RecordFilter) -> None:
    """Whole batches with right checksums, none longer than its parts, and records that were there before."""
    out = done.finish()
    if out.obj is data:
        return
    found = scan(out)
    assert found.valid_bytes == len(out) == done.bytes_retained
    assert done.bytes_read == table.valid_bytes
    assert done.messages_retained <= done.messages_read
    for row in range(len(found)):
        records = decode(out, found, row, row + 1)
        assert not records.status or table.first_invalid >= 0


@pytest.mark.parametrize("seed", range(4))
def test_filter_of_damaged_batches(seed: int) -> None:
    """CLN-28: damage is reported, with its row."""
    rng = random.Random(seed)
    finished = 0
    for _ in range(ROUNDS // 2):
        sound = some_set(rng)
        data = damaged(rng, sound)
        table = scan(data)
        done = RecordFilter(some_rules(rng, sound), data, table)
        done.begin_run(data, table, 0, 0, len(table))
        status = done.step()
        if status == STEP_DONE:
            finished += 1
            check_result(data, table, done)
        else:
            assert 0 <= done.error_row < len(table)
            with pytest.raises(ValueError):
                done.finish()
    assert finished > ROUNDS // 10


@pytest.mark.parametrize("seed", range(2))
def test_filter_of_compressed_batches_with_right_checksums(seed: int) -> None:
    """CLN-28, CLN-44: damage inside what a codec gives, behind a checksum that is right."""
    rng = random.Random(seed)
    finished = 0
    for _ in range(ROUNDS // 10):
        rows = [R(b"v" * rng.randrange(9), rng.choice([None, b"a", b"b"])) for _ in range(rng.randrange(1, 9))]
        plain = batch(rows, base_offset=rng.randrange(9))
        codec = rng.randrange(5)
        records = damaged(rng, plain[61:]) if rng.random() < 0.5 else plain[61:]
        payload = bytes(compress(codec, records))
        payload = damaged(rng, payload) if rng.random() < 0.3 else payload
        data = bytearray(plain[:61] + payload)
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[22] |= codec
        data = bytearray(seal(bytes(data)))
        try:
            result = filter_to(data, some_rules(rng, plain), is_checked=False)
        except KafkalogError as error:
            assert isinstance(error, IllegalArgument) or error.position is not None
            continue
        finished += 1
        again = scan(result.data)
        assert again.first_invalid < 0 and again.valid_bytes == result.bytes_retained
        assert result.messages_read <= len(rows)
    assert finished > ROUNDS // 30


def test_a_row_that_is_not_in_the_bytes_is_refused() -> None:
    data = batch([R(b"v", b"k")]) * 2
    table = scan(data)
    rules = some_rules(random.Random(0), data)
    with pytest.raises(ValueError, match="lies outside|rows"):
        done = RecordFilter(rules, data[:80], table)
        done.begin_run(data, table, 0, 0, 2)
        done.step()
    with pytest.raises(ValueError, match="rows 0 to 3"):
        RecordFilter(rules, data, table).begin_run(data, table, 0, 0, 3)
    with pytest.raises(ValueError, match="rows 0 to 2"):
        RecordFilter(rules, data, table).begin_run(data, table, 1, 0, 2)


def test_steps_out_of_order_are_refused() -> None:
    data = batch([R(b"v", b"k")] * 2)
    codec = bytearray(data[:61] + bytes(compress(1, data[61:])))
    codec[8:12] = (len(codec) - 12).to_bytes(4, "big")
    codec[22] |= 1
    table = scan(seal(bytes(codec)))
    rules = some_rules(random.Random(0), data)
    fresh = RecordFilter(rules, codec, table)
    for call in (fresh.step, fresh.seal):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):
        RecordFilter(rules, codec, BatchTable()).begin_run(data, scan(data), 0, 0, 1)


def test_two_chunks_do_not_share_one_retention() -> None:
    """The choices for one would be taken for those of the other."""
    rows = [R(b"v", b"k")] * 2
    plain = batch(rows)
    payload = bytes(compress(1, plain[61:]))
    packed = bytearray(plain[:61] + payload)
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    packed[22] |= 1
    chunk = seal(bytes(packed))
    offset_map = SkimpyOffsetMap(24 * 64)
    offset_map.put(b"k", 1)
    rules = Retention(offset_map, CleanedTxns(), now_ms=0, delete_retention_ms=0, upper_bound_offset=-1)
    one, other = (RecordFilter(rules, chunk * 2, scan(chunk * 2)) for _ in range(2))
    table = scan(plain * 2)
    one.begin_run(plain * 2, table, 0, 0, 2)
    other.begin_run(plain * 2, table, 0, 0, 2)
    assert one.step() != STEP_DONE
    assert other.step() != STEP_DONE
    one.store.append(payload)
    one.seal()
    with pytest.raises(ValueError, match="meanwhile"):
        one.step()
