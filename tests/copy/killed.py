"""The process whose copies are killed: it forks one for each kill, so that none has to start an interpreter.

    python -m tests.copy.killed DATA TARGET steps|moments [KILLS]

With "steps" the n-th copy kills itself at the n-th call or return of a step; with "moments" copies are killed at random
moments, until `KILLS` were (16). The source grows before every copy. It prints the number of copies that were killed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import kafkalog
import kafkalog.copy.cluster_partition
import kafkalog.copy.cluster_target
import kafkalog.server.wire.definitions
from kafkalog.copy import copy_topics
from kafkalog.server.groups.stored import commit_all
from tests.builder import R, batch
from tests.kills import die_at, forked

SETTINGS = {"retention.ms": -1, "segment.bytes": 1 << 20}
STEPS = {
    "kafkalog/copy/": {
        "create", "_append", "flush", "_send_all", "_request", "_commit", "commit", "commit_offsets", "write_each",
    },
}  # fmt: skip


def append(data: Path, number: int) -> None:
    """More records, at consecutive offsets in `plain` and with gaps in `gaps`, and a group that follows them."""
    shapes = random.Random(number)
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if "plain" not in dirs.topics:
            dirs.create_topic("plain", 2, SETTINGS)
            dirs.create_topic("gaps", 1, SETTINGS)
            dirs.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
        for log in (*dirs.logs("plain"), *dirs.logs("gaps")):
            for _ in range(7):
                count = shapes.randint(1, 5)
                rows = [R(b"%d %d" % (number, n), b"k%d" % n, timestamp=5_000 + number) for n in range(count)]
                base = log.end_offset + (shapes.randint(0, 3) if log.topic == "gaps" else 0)
                log.replicate(batch(rows, base_offset=base, leader_epoch=0))
        ends = {topic: {log.partition: log.end_offset - 2 for log in dirs.logs(topic)} for topic in ("plain", "gaps")}
    commit_all(str(data), {"readers": ends})


def main(data: Path, target: str, how: str, kills: int = 16) -> None:
    def copy() -> None:
        copy_topics(str(data), target, ["plain", "gaps"], apply=True)

    killed = turn = status = 0
    kafkalog.copy.cluster_partition.MARKER_BYTES = 500  # type: ignore[misc]
    stride = 19 if target.startswith("kafka:") else 1
    moments, longest_s = random.Random(11), 0.3
    while killed < kills if how == "moments" else not turn or status:
        assert os.waitpid(forked(lambda: append(data, turn)), 0)[1] == 0  # noqa: B023

        def at_step() -> None:
            sys.setprofile(die_at(turn * stride, STEPS))  # noqa: B023
            copy()

        child = forked(at_step if how == "steps" else copy)
        if how == "moments":
            time.sleep(moments.uniform(0, longest_s))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        turn += 1
        killed += status == signal.SIGKILL
        longest_s *= 1.1 if status else 0.6  # a copy takes longer on a busy machine
        assert status in (0, signal.SIGKILL), status
    assert os.waitpid(forked(copy), 0)[1] == 0
    print(killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:]))
