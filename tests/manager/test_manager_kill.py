"""A process that creates, writes, moves and deletes partitions is killed: every change it acknowledged lasts."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.errors import IllegalState
from kafkalog.manager.log_manager import LogManager
from kafkalog.types import TopicPartition
from tests.manager.managers import list_names

ROOT = Path(__file__).parent.parent.parent
KILLS = 5
CHILD = """
import random, sys
from kafkalog.config.broker import BrokerConfig
from kafkalog.manager.log_manager import LogManager
from kafkalog.types import TopicPartition
from tests.storage.logs import run

rng = random.Random(int(sys.argv[3]))
manager = LogManager.open(sys.argv[1:3], BrokerConfig(log_segment_delete_delay_ms=1))

def tell(*what):
    print(*what, flush=True)

while True:
    key = TopicPartition("t", rng.randrange(4))
    log = manager.get(key)
    step = rng.random()
    if log is None:
        manager.get_or_create(key, settings={"internal.segment.bytes": 500})
        tell("made", key.partition, 0)
    elif step < 0.7:
        log.append_batches(bytearray(run(0, rng.randrange(1, 5))))
        log.flush()
        tell("flushed", key.partition, log.log_end_offset)
    elif step < 0.8:
        tell("deleting", key.partition, 0)
        manager.delete(key)
        tell("deleted", key.partition, 0)
        manager.delete_logs()
    else:
        other = next(one for one in manager.directories if one is not manager.directory_of(log))
        if manager.get(key, is_future=True) is not None:
            manager.delete(key, is_future=True)
        future = manager.get_or_create(key, is_future=True, directory=other.path)
        at = 0
        while at < log.log_end_offset:
            data = bytearray(log.read(at, 1 << 20).records.read())
            future.append_as_follower(data, 0)
            at = future.log_end_offset
        manager.replace_with_future(key)
        tell("moved", key.partition, log.log_end_offset)
"""


def run_until_killed(lines: int, a: Path, b: Path, seed: int) -> list[list[str]]:
    """Return the child's reports before it was killed, some lines into its work."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(a), str(b), str(seed)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        lines_read = [line.split() for _, line in zip(range(lines), child.stdout, strict=False)]  # takes no line more
        child.send_signal(signal.SIGKILL)
        rest = [line.split() for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert len(lines_read) == lines, "the child ended by itself"
    return lines_read + rest


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_process_leaves_what_it_was_told_is_done(tmp_path: Path, seed: int) -> None:
    """MGR-9, MGR-10, LOAD-30: flushed offsets, moves and deletes; what a delete began may be done or not."""
    a, b = tmp_path / "a", tmp_path / "b"
    lines_read = run_until_killed(random.Random(seed).randrange(20, 120), a, b, seed)
    ends: dict[int, int] = {}
    unsure: set[int] = set()
    for what, number, end in lines_read:
        ends[int(number)] = int(end)
        unsure.discard(int(number))
        if what == "deleting":
            unsure.add(int(number))
        elif what == "deleted":
            del ends[int(number)]
    try:
        manager = LogManager.open([a, b])
    except IllegalState:  # killed between the two renames of a move: both copies are there, and whole
        twice = [name for name in list_names(a) & list_names(b) if name.startswith("t-")]
        assert len(twice) == 1
        (b / twice[0]).rename(tmp_path / twice[0])
        manager = LogManager.open([a, b])
    with manager:
        for number, end in ends.items():
            log = manager.get(TopicPartition("t", number))
            if log is None:
                assert number in unsure
            else:
                assert log.log_end_offset >= end
                offset = log.log_start_offset
                while offset < log.log_end_offset:
                    offset = max(batch.next_offset for batch in log.read(offset, 1 << 20).records.batches())
        gone = set(range(4)) - ends.keys()
        made_again = {key.partition for key in manager.logs if key.partition in gone}
        assert all(manager.logs[TopicPartition("t", number)].log_end_offset <= 4 for number in made_again)
