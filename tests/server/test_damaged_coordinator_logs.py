"""Logs of the coordinators with damage in the middle: what they say is refused as a whole, never taken in part."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.errors import CorruptRecord
from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.groups.records import offset_record
from kafkalog.server.groups.replay import replay_log
from kafkalog.server.groups.values import CommittedOffset
from kafkalog.server.txns.records import read_transactions, transactions_batch
from kafkalog.server.txns.transaction import Transaction
from kafkalog.storage.log import UnifiedLog
from tests.storage.damage_cases import DAMAGE, damage
from tests.storage.logs import log

SETTINGS = {"internal_segment_bytes": 1200, "segment_index_bytes": 1 << 16, "cleanup_policy": "compact"}
BATCHES = 25


def group_batch(number: int) -> bytes:
    builder = RecordsBuilder()
    builder.append(5, *offset_record("g", "t", number, CommittedOffset(number, -1, "", 5))[:2])
    return bytes(builder.build())


def transaction_batch(number: int) -> bytes:
    return bytes(transactions_batch([(f"id-{number}", Transaction(f"id-{number}", number, 0, 9))], 5).data)


def known_groups(one: UnifiedLog) -> int:
    return len(replay_log(one).offsets.all_of("g"))


def known_transactions(one: UnifiedLog) -> int:
    return len(read_transactions(one).transactions)


CASES: list[tuple[Callable[[int], bytes], Callable[[UnifiedLog], int]]] = [
    (group_batch, known_groups),
    (transaction_batch, known_transactions),
]


@pytest.mark.parametrize(("made", "known"), CASES, ids=["groups", "transactions"])
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("which", [0, 1, -1])
def test_damage_in_the_middle_of_a_segment_is_an_error(
    tmp_path: Path, made: Callable[[int], bytes], known: Callable[[UnifiedLog], int], which: int, kind: str
) -> None:
    a_log = log(tmp_path, **SETTINGS)
    for number in range(BATCHES):
        a_log.append_as_leader(bytearray(made(number)), origin="coordinator")
    assert known(a_log) == BATCHES and len(a_log.segments) > 2
    path = sorted((tmp_path / "topic-0").glob("*.log"))[which]
    position = damage(path, 2, kind)
    with pytest.raises(CorruptRecord) as caught:
        known(a_log)
    assert (caught.value.path, caught.value.position) == (str(path), position)
    a_log.close()
