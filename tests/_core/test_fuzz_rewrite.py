"""Random damage for what admits and rewrites batches: it agrees with the decoder, or refuses; it never goes astray.

KAFKALOG_FUZZ multiplies the rounds; `ci/asan.sh` runs them on a build that notices every access outside a buffer.
"""

import os
import random

import pytest

from fuzz.leader import validate_and_assign_offsets
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.legacy import MessageSet
from kafkalog._core.batch.rewrite import message_run, rewrite
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.log.admit import check_rows, end_of_magic, first_to_change
from kafkalog._core.log.assign import assign_messages
from kafkalog.errors import KafkalogError
from kafkalog.records.compression import compress
from kafkalog.records.convert import convert
from kafkalog.records.validate import ValidationRules
from tests.builder import R, batch, seal

ROUNDS = 1500 * int(os.environ.get("KAFKALOG_FUZZ", "1"))
NASTY = [0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF]
T = 1_700_000_000_000


def blob(rng: random.Random) -> bytes | None:
    size = rng.choice([None, 0, 1, 5, 63, 64, 200])
    return None if size is None else rng.randbytes(size)


def some_rows(rng: random.Random) -> list[R]:
    times = [T, T + 5, -1, 0, 2**41, -7]
    return [
        R(blob(rng), blob(rng), rng.choice(times), [("h", blob(rng))] * rng.choice([0, 0, 2]))
        for _ in range(rng.choice([1, 2, 9]))
    ]


def some_set(rng: random.Random) -> bytes:
    """Batches of one format, or of several."""
    out = b""
    for _ in range(rng.choice([1, 1, 3])):
        magic, rows = rng.randrange(3), some_rows(rng)
        if magic == 2:
            out += batch(rows, base_offset=rng.choice([0, 0, 2**40]), attributes=rng.choice([0, 0, 8, 16, 32, 64]))
        else:
            messages = MessageSet(magic)
            for offset, row in enumerate(rows, rng.choice([0, 3])):
                messages.append(offset, row.timestamp, row.key, row.value)
            out += bytes(messages.build())
    return out


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes with up to three wounds, checksums as they were."""
    out = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 3])):
        if out:
            out[rng.randrange(len(out))] = rng.choice([*NASTY, rng.randrange(256)])
    return bytes(out[: rng.randrange(len(out) + 1)]) if rng.random() < 0.1 else bytes(out)


def check_agreement(data: bytes, table: BatchTable) -> None:
    """A batch that decodes is accepted, and has the same records after a rewrite; any other is neither."""
    for row, header in enumerate(table):
        if header.compression:
            continue
        table_of = decode(data, table, row, row + 1)
        looked = check_rows(data, table, row, row + 1, check_times=False)
        if header.magic == 2 or not table_of.status:
            assert (not looked.status) == (not table_of.status)
        made = rewrite(data, table, row, row + 1, magic=2, first_offset=10)
        if table_of.status:
            assert made.status
        elif not made.status and len(table_of):
            assert made.data is not None
            again = decode(made.data, scan(made.data))
            assert [(r.timestamp, r.key, r.value, r.headers) for r in again] == [
                (r.timestamp, r.key, r.value, r.headers) for r in table_of
            ]
            assert list(again.offsets) == list(range(10, 10 + len(table_of)))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_sets(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(ROUNDS // 4):
        data = damaged(rng, some_set(rng))
        table = scan(data)
        if not len(table):
            continue
        check_agreement(data, table)
        first = rng.randrange(len(table))
        assert first < end_of_magic(table, first) <= len(table)
        end = message_run(table, first, len(table), rng.choice([0, 100, 2**62]))
        assert first < end <= len(table)
        assert first <= first_to_change(data, table, first, need_keys=rng.random() < 0.5) <= len(table)
        for magic in (0, 1, 2):
            made = rewrite(
                data, table, first, end, magic=magic, relative=rng.random() < 0.3, drop_headers=rng.random() < 0.5,
                from_offset=rng.choice([None, 2, -(2**63)]), append_time=rng.choice([-1, T]),
                first_offset=rng.choice([None, 0, 2**63 - 3]),
            )  # fmt: skip
            assert (made.data is None) == (made.status != 0)
        start, records = rng.choice([0, 2**62, 2**63 - 2]), rng.choice([-1, 3, 2**63 - 1])
        try:
            assign_messages(bytearray(data), table, start, records=records)
        except ValueError:
            pass


@pytest.mark.parametrize("seed", range(2))
def test_damage_inside_what_is_compressed(seed: int) -> None:
    """Right checksums outside, anything inside: a typed error, or a batch that reads back."""
    rng = random.Random(seed)
    for _ in range(ROUNDS // 4):
        codec = rng.choice([1, 2, 3, 4])
        plain = batch(some_rows(rng))
        body = bytes(compress(codec, damaged(rng, plain[61:])))
        if rng.random() < 0.3:
            body = damaged(rng, body)
        head = bytearray(plain[:61])
        head[8:12] = (len(body) + 49).to_bytes(4, "big")
        head[22] |= codec
        data = seal(bytes(head) + body)
        try:
            result = validate_and_assign_offsets(data, 5, ValidationRules(rng.choice([None, 0, 2])), T)  # type: ignore[arg-type]
            assert scan(result.records).first_invalid == -1
        except KafkalogError:
            pass
        try:
            assert scan(convert(data, rng.choice([0, 1]), only_down=False)).first_invalid == -1
        except KafkalogError:
            pass
