"""Tiered topics read whole: random histories of leaders and copies, against the log that the last leader has."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.errors import StorageError
from tests.tiered_store import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    Batch,
    Copy,
    KeyPair,
    OwnStore,
    PluginStore,
    custom_metadata,
    epochs_of,
    make_batch,
    make_id,
    values_of,
    write_events,
    write_log_start,
    write_partition,
)

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
KEYS = KeyPair()


class History(NamedTuple):
    """The last leader's log, and the logs of earlier leaders as they were before a truncation."""

    log: list[Batch]
    lost: list[list[Batch]]


def make_history(rng: random.Random) -> History:
    log: list[Batch] = []
    lost = []
    epoch = 0
    for _ in range(rng.randint(1, 4)):
        cut = rng.randint(0, min(6, len(log))) if rng.random() < 0.6 else 0
        if cut:
            lost.append(list(log))
            del log[len(log) - cut :]
        epoch += rng.randint(1, 3)
        for _ in range(rng.randint(3, 10)):
            log.append(make_batch(log[-1].stop if log else 0, rng.randint(1, 5), epoch, pad=rng.choice([0, 40, 300])))
    return History(log, lost)


def cut_segments(rng: random.Random, log: Sequence[Batch]) -> list[list[Batch]]:
    found = []
    at = 0
    while at < len(log):
        size = rng.randint(1, 6)
        found.append(list(log[at : at + size]))
        at += size
    return found


class Tiered(NamedTuple):
    """A copy and the state of its last event."""

    copy: Copy
    state: int

    def has(self, batch: Batch) -> bool:
        return batch in self.copy.batches


def make_copies(rng: random.Random, history: History) -> list[Tiered]:
    found = []
    for number in range(rng.randint(0, 2)):  # duplicates, by other segments' bounds
        found += cut_segments(rng, history.log[rng.randint(0, len(history.log) - 1) :][: 4 + number])
    for log in history.lost:
        found += [one for one in cut_segments(rng, log) if rng.random() < 0.8]
    found += [one for one in cut_segments(rng, history.log) if rng.random() < 0.95]
    rng.shuffle(found)
    states = [FINISHED] * 20 + [0, DELETE_STARTED, DELETE_FINISHED]
    return [Tiered(Copy(make_id(n), one), rng.choice(states)) for n, one in enumerate(found)]


def write_copies(rng: random.Random, copies: Sequence[Tiered], store: Any, custom: bytes | None) -> list[bytes]:
    """Put objects into the store, and return the events: in any order between segments."""
    events: list[list[bytes]] = []
    for one in copies:
        if one.state in (FINISHED, DELETE_STARTED) or rng.random() < 0.5:
            store.put(one.copy)
        steps = range(FINISHED, one.state + 1)
        events.append([one.copy.started(), *(one.copy.update(state, custom) for state in steps)])
    mixed = []
    while events:
        mine = rng.choice(events[:3])
        mixed.append(mine.pop(0))
        events = [one for one in events if one]
    return mixed


def covered(copies: Sequence[Tiered], batch: Batch) -> bool:
    return any(one.state == FINISHED and one.has(batch) for one in copies)


@pytest.mark.parametrize("kind", ["plain", "zstd", "encrypted", "both", "own"])
@pytest.mark.parametrize("seed", range(16))
def test_random_copies_are_read_as_the_last_leaders_log(tmp_path: Path, seed: int, kind: str) -> None:
    rng = random.Random(f"{seed} {kind}")
    history = make_history(rng)
    copies = make_copies(rng, history)
    local = rng.randint(0, len(history.log) - 1)
    log_start = rng.choice([None, rng.randint(0, history.log[local].first)])
    write_partition(tmp_path / "data" / "orders-0", cut_segments(rng, history.log[local:]), epochs_of(history.log))
    if log_start is not None:
        write_log_start(tmp_path / "data", {"orders 0": log_start})
    store: Any
    description = f"file://{tmp_path}/store"
    if kind == "own":
        store = OwnStore(tmp_path / "store")
    else:
        keys = KEYS if kind in ("encrypted", "both") else None
        size = rng.choice([100, 500, 10_000])
        store = PluginStore(tmp_path / "store", chunk_bytes=size, compressed=kind in ("zstd", "both"), keys=keys)
        KEYS.write(tmp_path / "key1.pem")
        (tmp_path / "tiered.json").write_text(f'{{"store": "{description}", "keys": {{"key1": "key1.pem"}}}}')
        description = str(tmp_path / "tiered.json")
    custom = None if kind == "own" or rng.random() < 0.5 else custom_metadata("")
    write_events(tmp_path / "data", write_copies(rng, copies, store, custom))

    tiered_part = history.log[:local]
    first = 0 if log_start is None else log_start
    needed = [one for one in tiered_part if one.stop > first]
    if log_start is None or deleted_before(copies, needed, first):
        while needed and not covered(copies, needed[0]):
            first = needed.pop(0).stop
    gap = next((max(one.first, first) for one in needed if not covered(copies, one)), None)
    expected = [(offset, value) for offset, value in values_of(history.log) if offset >= first]
    with kafkalog.open(tmp_path / "data" / "orders-0", tiered=description) as log:
        assert (log.start_offset, log.end_offset) == (first, history.log[-1].stop)
        check_reads(log, expected, gap)
        for one in rng.sample(history.log, min(5, len(history.log))):
            if one.first >= first and (covered(copies, one) or one in history.log[local:]):
                assert log[one.stop - 1].value == dict(expected)[one.stop - 1]
                if gap is None:
                    at = log.offset_for_time(1_700_000_000_000 + one.first)
                    assert at is not None and at.offset == one.first
    report = kafkalog.verify(tmp_path / "data" / "orders-0", deep=True, tiered=description)
    assert report.ok == (gap is None), "\n".join(report.lines())
    if gap is not None:
        assert any("no finished copy" in line for line in report.lines())


def deleted_before(copies: Sequence[Tiered], needed: Sequence[Batch], first: int) -> bool:
    """Return True if each missing offset at the start is in a copy that was deleted."""
    deleted = [one.copy for one in copies if one.state >= DELETE_STARTED]
    for batch in needed:
        if covered(copies, batch):
            return True
        for offset in range(max(batch.first, first), batch.stop):
            if not any(one.first <= offset < one.stop for one in deleted):
                return False
    return True


def check_reads(log: kafkalog.Log, expected: list[tuple[int, bytes]], gap: int | None) -> None:
    found = []
    if gap is None:
        assert [(record.offset, record.value) for record in log.records()] == expected
        return
    with pytest.raises(StorageError, match="no finished copy") as caught:
        for record in log.records():
            found.append((record.offset, record.value))
    assert caught.value.offset == gap
    assert found == [(offset, value) for offset, value in expected if offset < gap]
