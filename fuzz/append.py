"""Appends of what was sent: what the compiled engine takes is what the long way takes, written as it would be."""

import atexit
import os
import shutil
import tempfile
from contextlib import nullcontext

from fuzz.leader import validate_and_assign_offsets
from kafkalog import hooks
from kafkalog.config.topic import LogConfig
from kafkalog.errors import KafkalogError
from kafkalog.records.validate import ValidationRules
from kafkalog.storage.log import UnifiedLog

SEALS = True
NOW = 1_700_000_000_000
MOST_BYTES = 1 << 20
PLACED = (slice(8, 12), slice(16, None))  # all but the base offset and the epoch


class Kept:
    """The logs that inputs go to: a plain one, and a compacted one of small segments with an index entry a batch."""

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        atexit.register(shutil.rmtree, self.root, ignore_errors=True)
        small = LogConfig(
            internal_segment_bytes=4096, segment_index_bytes=4096, index_interval_bytes=0, cleanup_policy="compact"
        )
        self.logs = [self.opened(f"t-{number}", config) for number, config in enumerate((LogConfig(), small))]
        self.twins = [self.opened(f"twin-{number}", LogConfig()) for number in range(2)]

    def opened(self, name: str, config: LogConfig) -> UnifiedLog:
        path = os.path.join(self.root, name)
        os.mkdir(path)
        return UnifiedLog.open(path, config)


KEPT: list[Kept] = []


def run(data: memoryview) -> None:
    """The three lowest bits of the offset choose: one batch for either log, a leader's batches, or a follower's."""
    if not KEPT:
        KEPT.append(Kept())
    choice = data[7] & 7 if len(data) > 7 else 0
    if choice < 4:
        run_batch(data, KEPT[0].logs[choice & 1])
    else:
        run_both_ways(bytes(data), KEPT[0].twins, is_copy=choice > 5)


def run_batch(data: memoryview, a_log: UnifiedLog) -> None:
    """An input that is refused, or no ready batch, leaves the log as it was."""
    raw, end, size = bytes(data), a_log.log_end_offset, a_log.size
    try:
        info = a_log.append_ready(data, any_base_offset=True, now_ms=NOW)
    except KafkalogError:
        info = None
    assert bytes(data) == raw
    if info is None or info.first_offset < end:  # sent before: it is not written again
        assert (a_log.log_end_offset, a_log.size) == (end, size)
        return
    check(a_log, raw, end)
    if a_log.size > MOST_BYTES:
        a_log.truncate_fully_and_start_at(0)


def run_both_ways(raw: bytes, twins: list[UnifiedLog], *, is_copy: bool) -> None:
    """The engine and the long path of an append with a listener do the same."""
    outcomes = []
    for a_log, way in zip(twins, (nullcontext(), hooks.on("append", lambda event: None)), strict=True):
        with way:
            try:
                info = a_log.append_as_follower(raw, 5) if is_copy else a_log.append_batches(bytearray(raw))
            except KafkalogError as error:
                outcomes.append((type(error), error.offset, error.position, a_log.log_end_offset, a_log.size))
            else:
                outcomes.append((info, a_log.log_end_offset, a_log.high_watermark, a_log.leader_epochs, a_log.size))
    assert outcomes[0] == outcomes[1], outcomes
    if twins[0].size > (0 if is_copy else MOST_BYTES):
        for a_log in twins:
            a_log.truncate_fully_and_start_at(0)


def check(a_log: UnifiedLog, raw: bytes, first_offset: int) -> None:
    """The log's last batch is `raw` at that offset, and a validator takes it."""
    found = a_log.read(first_offset, 0)
    written = bytes(found.records.read())
    assert len(written) == len(raw) and all(written[part] == raw[part] for part in PLACED)
    assert int.from_bytes(written[:8], "big") == first_offset and written[12:16] == bytes(4)
    rules = ValidationRules.of(a_log.config)
    validate_and_assign_offsets(bytearray(b"\0" * 8 + raw[8:]), 0, rules, NOW, from_client=True, magic=2)
