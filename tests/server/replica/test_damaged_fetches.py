"""A follower is sent damaged bytes: it refuses them, keeps what it has, and never goes on behind them."""

from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptRecord, KafkalogError, OffsetsOutOfOrder
from kafkalog.server.replica.following import AppendRecords
from kafkalog.server.replica.following_disk import FollowerTask, TaskResult, run_tasks
from kafkalog.server.replica.roles import Role
from tests.raw_batches import batch
from tests.server.replica.partitions import NODE, T0, run
from tests.storage.damage_cases import DAMAGE

NOW = 1_700_000_000_000


def sent(*bases: int) -> list[bytearray]:
    return [bytearray(batch(base, [(NOW, b"k", b"v")], epoch=7)) for base in bases]


def append_fetches(tmp_path: Path, *fetches: list[bytearray]) -> list[tuple[TaskResult, int]]:
    """Return the result of each fetch, and the log end after it."""
    found: list[tuple[TaskResult, int]] = []

    async def body(replicas: Any) -> None:
        partition = replicas.find(T0)
        partition.become_follower(Role(2, 7, 2, (NODE, 2), (2,)))
        for batches in fetches:
            plan = AppendRecords(memoryview(b"".join(batches)), -1, -1)
            (done,) = run_tasks([FollowerTask(T0, partition, plan, 7)], replicas.store.cutting)
            found.append((done, partition.log.log_end_offset))

    run(tmp_path, body)
    return found


@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if "large" not in kind])
@pytest.mark.parametrize("number", [0, 1])
def test_damage_between_sound_batches_is_refused(tmp_path: Path, number: int, kind: str) -> None:
    batches = sent(0, 1, 2)
    DAMAGE[kind](batches[number], 0)
    ((done, end),) = append_fetches(tmp_path, batches)
    assert isinstance(done.error, KafkalogError) and end == 0


@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if "large" in kind])
def test_a_batch_that_claims_more_than_was_sent_is_not_passed_over(tmp_path: Path, kind: str) -> None:
    batches = sent(0, 1, 2)
    DAMAGE[kind](batches[1], 0)
    (first, end), (second, same) = append_fetches(tmp_path, batches, batches[1:])
    assert (first.error, end, same) == (None, 1, 1), "a fetch that does not move is an error of the fetcher"
    assert second.position.end_offset == 1


def test_a_higher_base_offset_at_the_end_of_a_fetch_waits_for_the_next_batch(tmp_path: Path) -> None:
    batches = sent(0, 1, 2, 3)
    DAMAGE["base offset higher"](batches[2], 0)
    (_, end), (done, same) = append_fetches(tmp_path, batches[:3], batches[2:])
    assert isinstance(done.error, OffsetsOutOfOrder) and (end, same) == (2, 2)


def test_a_gap_that_compaction_left_is_followed(tmp_path: Path) -> None:
    batches = sent(0, 1, 9, 10, 30)
    (_, end), (_, then), (_, last) = append_fetches(tmp_path, batches[:3], batches[2:], batches[4:])
    assert (end, then, last) == (2, 11, 31)


def test_bytes_that_do_not_match_their_checksum_are_an_error(tmp_path: Path) -> None:
    batches = sent(0)
    DAMAGE["bytes"](batches[0], 0)
    ((done, end),) = append_fetches(tmp_path, batches)
    assert isinstance(done.error, CorruptRecord) and end == 0
