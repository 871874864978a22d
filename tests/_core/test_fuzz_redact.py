"""Random damage for what redacts batches: a status, or records that were there before with less in them.

KAFKALOG_FUZZ multiplies the rounds; `ci/asan.sh` runs them on a build that notices every access outside a buffer.
"""

import random
from array import array
from collections import Counter

import pytest

from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog._core.clean.redact_rows import EMPTY, TOMBSTONE, redact_row
from tests._core.test_fuzz_rewrite import ROUNDS, damaged, some_set
from tests.builder import R, batch


def test_damage_is_a_status_or_redacted_as_it_reads() -> None:
    for seed in range(ROUNDS):
        check_one(seed)


def check_one(seed: int) -> None:
    rng = random.Random(seed)
    data = damaged(rng, some_set(rng)) if rng.random() < 0.8 else some_set(rng)
    table = scan(data, check_crc=False)
    value, erases_key = rng.choice([EMPTY, TOMBSTONE]), rng.random() < 0.5
    for row in range(len(table)):
        nearby = {table.base_offset(row) + rng.randint(-1, 5) for _ in range(3)}
        offsets = sorted(offset for offset in nearby if -(2**63) <= offset < 2**63)
        done = redact_row(data, table, row, array("q", offsets), value=value, erases_key=erases_key)
        assert set(done.changed) <= set(done.found) <= set(offsets)
        if done.data is None:
            assert done.status or not done.changed
            continue
        assert done.changed and len(done.data) <= table.size(row)
        if table.magic(row) < 2:
            new = bytes(done.data)
            after = decode(new, scan(new, check_crc=False))
        else:
            position = table.position(row)
            new = bytes(data[position : position + 61]) + done.data
            new = new[:8] + (len(new) - 12).to_bytes(4, "big") + new[12:]
            after = decode(new, scan(new, check_crc=False))
        before = decode(data, table, row, row + 1)
        assert before.status == after.status == 0
        found = {record.offset: record for record in after}
        times = Counter(record.offset for record in before)
        for record in before:
            new_record = found.get(record.offset)
            if new_record is None or times[record.offset] > 1:
                continue  # an offset that stands twice
            assert new_record.timestamp == record.timestamp
            if record.offset not in done.changed:
                assert new_record == record


def test_a_damaged_batch_in_which_an_offset_stands_twice() -> None:
    """Findings of a longer run under the sanitizers."""
    check_one(3350)


def test_wrong_arguments_are_refused() -> None:
    data = batch([R(b"v", b"k")])
    table = scan(data)
    for wrong in ({"value": 2}, {"value": -1}):
        with pytest.raises(ValueError, match="for a value"):
            redact_row(data, table, 0, array("q", [0]), **wrong)
    with pytest.raises(ValueError, match="lies outside"):
        redact_row(data[:-1], table, 0, array("q", [0]), value=EMPTY)
    with pytest.raises(ValueError, match="bytes of offsets"):
        redact_row(data, table, 0, b"abc", value=EMPTY)
    with pytest.raises((IndexError, ValueError)):
        redact_row(data, table, 1, array("q", [0]), value=EMPTY)
