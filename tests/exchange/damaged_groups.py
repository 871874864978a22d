"""A data directory with damage in the log of the groups."""

from pathlib import Path

import kafkalog
from kafkalog.server.groups.stored import commit_all


def spoilt_groups(data: Path) -> None:
    """A topic and a group whose newest offset is damaged."""
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1, {})
        dirs["orders", 0].append([b"one", b"two", b"three"])
        dirs.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
    commit_all(str(data), {"readers": {"orders": {0: 1}}})
    commit_all(str(data), {"readers": {"orders": {0: 2}}})
    (segment,) = (data / "__consumer_offsets-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-10] ^= 0xFF
    segment.write_bytes(content)
