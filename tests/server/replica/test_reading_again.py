"""A waiting fetch reads again only what changed: what it keeps equals a second read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog.config.topic import LogConfig
from kafkalog.control import ControlType
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import FetchParams, FetchPartition, FetchResult
from kafkalog.server.replica.roles import Role
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.server.replica.partitions import NODE, make_batch, make_marker, make_producer_batch

KEY = TopicPartition("t", 0)
FOLLOWER = 2
STEPS = ("append", "open transaction", "end transaction", "follower", "epoch", "isr", "cut", "delete", "nothing")
READERS = (
    FetchParams(500, 1, 1 << 20, "high_watermark"), FetchParams(500, 1, 1 << 20, "committed"),
    FetchParams(500, 1, 1 << 20, "log_end", FOLLOWER),
)  # fmt: skip


def describe_result(result: FetchResult) -> list[Any]:
    """All that a result says, its records by their bytes."""
    records = None if result.records is None else bytes(result.records.read())
    return [getattr(result, name) for name in FetchResult.__slots__ if name not in ("records", "place")] + [
        result.place.message_offset, records,
    ]  # fmt: skip


def step(partition: Partition, name: str) -> None:
    log, role = partition.log, partition.role
    match name:
        case "append":
            log.append_as_leader(bytearray(make_batch()), leader_epoch=role.leader_epoch)
        case "open transaction":
            sequence = max((one.last_sequence for one in log.producers), default=-1) + 1
            records = make_producer_batch(7, sequence, transactional=True)
            log.append_as_leader(bytearray(records), leader_epoch=role.leader_epoch)
        case "end transaction":
            log.append_as_leader(
                bytearray(make_marker(7, ControlType.ABORT)), leader_epoch=role.leader_epoch,
                origin="coordinator",
            )  # fmt: skip
        case "follower":
            log.update_high_watermark(log.log_end_offset)
        case "epoch":
            log.update_high_watermark(0)
            partition.become_leader(role._replace(leader_epoch=role.leader_epoch + 1))
        case "isr":
            partition.role = role._replace(isr=(NODE,) if FOLLOWER in role.isr else (NODE, FOLLOWER))
        case "cut":
            begin = log.leader_epochs[-1][1]  # a leader cuts nothing from before its epoch
            log.truncate_to(max(log.high_watermark, log.log_end_offset - 1, begin), keeps_begin=True)
        case "delete":
            partition.delete_records(log.high_watermark)
        case _:
            pass


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=8), reader=st.sampled_from(READERS),
    behind=st.integers(0, 1),
)  # fmt: skip
@example(steps=["append", "epoch", "cut", "append"], reader=READERS[2], behind=0)
def test_what_stands_is_what_reading_again_would_give(steps: list[str], reader: FetchParams, behind: int) -> None:
    """FLOW-12, FLOW-13."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / str(KEY)
        path.mkdir()
        log = UnifiedLog.open(path, LogConfig(), high_watermark_follows_end=False)
        partition = Partition(KEY, log, NODE, lambda: 0)
        partition.become_leader(Role(NODE, 0, 0, (NODE, FOLLOWER), (NODE, FOLLOWER)))
        try:
            for one in steps:
                state = log.state
                end = {"log_end": state.log_end_offset, "committed": state.last_stable_offset}
                offset = max(state.log_start_offset, end.get(reader.isolation, state.high_watermark) - behind)
                epoch = partition.role.leader_epoch
                last_epoch = epoch if reader.is_from_follower else -1
                asked = FetchPartition(KEY, offset, 1 << 20, None, epoch, last_epoch)
                before = partition.read(reader, asked, 1 << 20, True)
                step(partition, one)
                if one == "epoch":  # the answer is an error then
                    assert not partition.reads_as(before)
                elif partition.reads_as(before):
                    assert describe_result(partition.read(reader, asked, 1 << 20, True)) == describe_result(before)
                elif one == "nothing":
                    assert before.size or behind  # what had all stands as long as nothing happens
        finally:
            log.close()
