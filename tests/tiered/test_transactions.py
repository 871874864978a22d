"""Committed reads of a tiered topic: aborted records stay out, whichever copies hold their markers."""

import random
import shutil
from pathlib import Path

import pytest

import kafkalog
from tests import transactional
from tests.tiered_store import (
    FINISHED,
    Batch,
    Copy,
    PluginStore,
    make_id,
    write_events,
    write_log_start,
    write_partition,
)

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
EPOCH = 3


def random_log(rng: random.Random) -> transactional.Log:
    log = transactional.Log()
    for _ in range(rng.randint(20, 60)):
        kind = rng.choice(["plain", "data", "data", "data", "abort", "commit", "roll"])
        log.add((kind, rng.randint(1, 3), rng.randint(1, 4)))
    log.add(("roll", 0, 0))
    log.add(("plain", 0, 3))
    return log


def batches_of(parts: list[bytes]) -> list[Batch]:
    return [
        Batch(first := int.from_bytes(one[:8], "big"), first + 1 + int.from_bytes(one[23:27], "big"), EPOCH, one)
        for one in parts
    ]


@pytest.mark.parametrize("seed", range(40))
def test_committed_reads_of_random_transactions(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log = random_log(rng)
    data, store = tmp_path / "data", PluginStore(tmp_path / "store", chunk_bytes=300, compressed=True)
    log.write(tmp_path / "whole" / "orders-0")
    bases = sorted(log.segments)
    local = rng.choice(bases)
    partition = write_partition(data / "orders-0", [], [(EPOCH, 0)])
    for path in (tmp_path / "whole" / "orders-0").iterdir():
        if int(path.name[:20]) >= local:
            shutil.copy(path, partition)
    write_log_start(data, {"orders 0": 0})
    events = []
    for number, base in enumerate(bases):
        if base < local or rng.random() < 0.5:  # a broker copies before it deletes, so some are in both
            copy = Copy(make_id(number), batches_of(log.segments[base]))
            if not copy.batches:
                continue
            index = transactional.txn_index(log.indexes[base]) if log.indexes[base] else None
            store.put(copy, index, transactional.snapshot(log.snapshots[copy.stop]))
            events += [copy.started(), copy.update(FINISHED)]
        if base < local and number + 2 < len(bases) and rng.random() < 0.5:  # another leader's, of other bounds
            parts = batches_of(log.segments[base] + log.segments[bases[number + 1]])
            cut = rng.randint(1, len(parts))
            stop = parts[:cut][-1].stop
            entries = [entry for entry in log.indexes[base] + log.indexes[bases[number + 1]] if entry[2] < stop]
            copy = Copy(make_id(100 + number), parts[:cut])
            snapshot = transactional.snapshot(log.snapshots[stop]) if stop in log.snapshots else None
            store.put(copy, transactional.txn_index(entries) if entries else None, snapshot)
            events += [copy.started(), copy.update(FINISHED)]
    write_events(data, events)
    with kafkalog.open(partition, tiered=f"file://{tmp_path}/store") as whole:
        assert whole.start_offset == 0 and whole.end_offset == log.end
        found = [record.offset for record in whole.records(isolation="read_committed")]
        assert found == log.committed()
        start = rng.randint(0, log.end)
        found = [record.offset for record in whole.records(min(start, log.stable), isolation="read_committed")]
        assert found == log.committed(min(start, log.stable))
    assert kafkalog.verify(partition, tiered=f"file://{tmp_path}/store").ok


