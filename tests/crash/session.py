"""A session of random operations on one log: each is a plain value, so that a checker elsewhere can follow it.

    session = Session(path, seed)      opens the log
    session.step()                     draws one operation and does it
    apply(model, operation, answer)    the log's content after it, for readers of the report
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from kafkalog.log.log import Log
from kafkalog.log.open_writable import open_for_append
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.util.fileio import OS, FileSystem
from tests.crash.model import Batch, Model, producers
from tests.mock_time import MockClock

NOW = 1_700_000_000_000
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, (100, 101), (200, 201, 202)

Operation = dict[str, Any]
"""`do` names it; `n` is its number in the session; the rest are its arguments. JSON can carry it."""

WEIGHTS = {
    "append": 20, "produce": 14, "transact": 16, "end": 12, "again": 3, "group": 8, "follow": 5, "lead": 3,
    "roll": 6, "flush": 8, "truncate": 5, "delete": 4, "retain": 4, "reopen": 4, "restart": 1,
}  # fmt: skip


def settings_of(seed: int) -> dict[str, Any]:
    """Topic settings that bring rolls, full indexes and retention into a short session."""
    rng = Random(f"settings {seed}")
    return {
        "internal_segment_bytes": rng.choice([800, 1200, 2500, 9000]),
        "index_interval_bytes": rng.choice([0, 150, 600]),
        "segment_index_bytes": rng.choice([36, 120, 1200]),
        "retention_bytes": rng.choice([0, 1500, 4000]),
        "retention_ms": -1,
        "preallocate": rng.random() < 0.2,
    }


def batch_of(base: int, operation: Operation, sizes: list[int], part: int = 0) -> Batch:
    """Return the batch that an operation appends at `base`: records of these value sizes, each with its number."""
    producer, epoch, sequence = operation.get("producer", (PLAIN, -1, -1))
    in_txn = operation["do"] == "transact"
    builder = RecordsBuilder(
        base,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=in_txn,
        leader_epoch=operation["epoch"],
    )
    for i, size in enumerate(sizes):
        value = b"%d.%d.%d|" % (operation["n"], part, i)
        builder.append(NOW + operation["n"], b"k%d" % i, value.ljust(size, b"."))
    data = bytes(builder.build())
    return Batch(base, base + len(sizes) - 1, data, "data", producer, epoch, sequence, in_txn, operation["epoch"])


def marker_of(base: int, operation: Operation) -> Batch:
    """The marker that an operation appends at `base`."""
    producer, epoch, kind = *operation["producer"], operation["kind"]
    control = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
    data = marker_batch(
        control, producer, epoch, 0, timestamp=NOW + operation["n"], base_offset=base, leader_epoch=operation["epoch"]
    )
    return Batch(base, base, bytes(data), kind, producer, epoch, -1, True, operation["epoch"])


def batches_of(model: Model, operation: Operation) -> tuple[Batch, ...]:
    """Return the batches that an operation appends to such a log; none if it is no append."""
    do, end = operation["do"], model.end
    if do in ("append", "produce", "transact"):
        return (batch_of(end, operation, operation["sizes"]),)
    if do == "follow":
        return (batch_of(end + operation["gap"], operation, operation["sizes"]),)
    if do == "end":
        return (marker_of(end, operation),)
    made: list[Batch] = []
    for part, sizes in enumerate(operation["parts"] if do == "group" else ()):
        made.append(batch_of(end, operation, sizes, part))
        end = made[-1].last + 1
    return tuple(made)


def apply(model: Model, operation: Operation, answer: tuple[int, int] | None = None) -> Model:
    """The log after an operation; `answer` is (start, end) as the log gave them, where only it can know."""
    do = operation["do"]
    if do == "lead":
        return replace(model, leader_epoch=operation["epoch"])
    if do == "truncate":
        return model.truncated(operation["offset"])
    if do == "delete":
        return model.started_at(operation["offset"])
    if do == "restart":
        return replace(model, start=operation["offset"], end=operation["offset"], batches=())
    if do in ("retain", "reopen"):
        if answer is None:
            return model
        start, end = answer
        assert start == model.start if do == "reopen" else model.start <= start <= model.end, (operation, answer)
        assert model.data_end <= end <= model.end, (operation, answer)
        return replace(model, start=start, end=end)
    return model.appended(batches_of(model, operation))


class Session:
    """A log that random operations are done on. `report(what, operation, answer)` hears of "begin" and "done"."""

    def __init__(
        self, path: Path, seed: int, *, fs: FileSystem = OS, report: Callable[..., object] = lambda *_: None
    ) -> None:
        self.path = path
        self.settings = settings_of(seed)
        self.model = Model()
        self.rng = Random(seed)
        self.number = 0
        self.sync = False
        self._fs = fs
        self._report = report
        self._clock = MockClock(NOW)
        self._open({})

    def _open(self, settings: dict[str, Any]) -> None:
        opened = open_for_append(
            self.path, settings or self.settings, sync=self.sync, fs=self._fs, clock=self._clock
        )
        self.log = Log(opened.log, opened)
        self.opened = opened
        opened.log.leader_epoch = self.model.leader_epoch

    def step(self, do: str | None = None, **given: Any) -> Operation:
        """Does one operation, `do` or a random one, and returns it."""
        operation = {**self.draw(do), **given}
        self.run(operation)
        return operation

    def run(self, operation: Operation) -> None:
        """Runs an operation and returns the log's answer; the model is updated to match."""
        self._report("begin", operation, None)
        getattr(self, f"_{operation['do']}", self._append)(operation)
        answer = (self.opened.log.log_start_offset, self.opened.log.log_end_offset)
        self.model = apply(self.model, operation, answer)
        assert answer == (self.model.start, self.model.end), (operation, answer, self.model)
        self._report("done", operation, answer)

    def close(self) -> None:
        """Closes the log."""
        self.log.close()

    # Drawing

    def can(self, do: str) -> bool:
        """True where such an operation makes sense now."""
        return self._arguments(do) is not None

    def draw(self, do: str | None = None) -> Operation:
        """An operation that makes sense now."""
        while True:
            name = do or self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            arguments = self._arguments(name)
            if arguments is not None:
                break
            assert do is None, f"{do} makes no sense now"
        self.number += 1
        return {"do": name, "n": self.number, "epoch": self.model.leader_epoch, **arguments}

    def _sizes(self) -> list[int]:
        return [self.rng.choice([12, 12, 40, 150]) for _ in range(self.rng.randint(1, 4))]

    def _arguments(self, do: str) -> dict[str, Any] | None:
        rng, model = self.rng, self.model
        known = producers(model.visible())
        if do == "append":
            return {"sizes": self._sizes()}
        if do in ("produce", "transact"):
            producer = rng.choice(TRANSACTIONAL if do == "transact" else IDEMPOTENT)
            return {"sizes": self._sizes(), "producer": self._turn(producer)}
        if do == "end":
            pending = [p for p, state in known.items() if state.txn_first_offset >= 0]
            if not pending:
                return None
            producer = rng.choice(pending)
            return {"producer": [producer, known[producer].epoch], "kind": rng.choice(["commit", "abort"])}
        if do == "group":
            return {"parts": [self._sizes() for _ in range(rng.randint(2, 5))]}
        if do == "follow":
            return {"sizes": self._sizes(), "gap": rng.choice([0, 0, 3])}
        if do == "lead":
            return {"epoch": model.leader_epoch + 1}
        if do == "truncate":
            return {"offset": rng.randint(max(model.start, model.end - 12), model.end)}
        if do == "delete":
            return {"offset": rng.randint(model.start, max(model.start, model.data_end))}
        if do == "restart":
            return {"offset": model.end + rng.randint(0, 5)}
        if do == "reopen":
            return {"sync": rng.random() < 0.3}
        if do == "again":
            last = model.visible()[-1:]
            return {"of": last[0].base} if last and last[0].kind == "data" and last[0].producer_id >= 0 else None
        return {}

    def _turn(self, producer: int) -> list[int]:
        """The producer's next epoch and sequence, as the log has them."""
        state = next((p for p in self.opened.log.producers if p.producer_id == producer), None)
        if state is None:
            return [producer, 0, 0]
        if state.current_txn_first_offset < 0 and self.rng.random() < 0.1:
            return [producer, state.producer_epoch + 1, 0]
        return [producer, state.producer_epoch, state.last_sequence + 1]

    # Doing

    def _append(self, operation: Operation) -> None:
        made = batches_of(self.model, operation)
        data = bytearray().join(batch.data for batch in made)
        info = self.log.append_bytes(data)
        assert (info.first_offset, info.last_offset) == (made[0].base, made[-1].last), (operation, info)

    def _follow(self, operation: Operation) -> None:
        self.log.replicate(batches_of(self.model, operation)[0].data)

    def _end(self, operation: Operation) -> None:
        self.opened.append_as_leader(bytearray(batches_of(self.model, operation)[0].data), origin="coordinator")

    def _again(self, operation: Operation) -> None:
        batch = self.model.batches[-1]
        info = self.log.append_bytes(bytearray(batch.data))
        assert (info.first_offset, info.last_offset) == (batch.base, batch.last), (operation, info)

    def _lead(self, operation: Operation) -> None:
        self.opened.log.leader_epoch = operation["epoch"]

    def _roll(self, operation: Operation) -> None:
        self.log.roll()

    def _flush(self, operation: Operation) -> None:
        self.log.flush()

    def _truncate(self, operation: Operation) -> None:
        self.log.truncate_to(operation["offset"])

    def _delete(self, operation: Operation) -> None:
        self.log.delete_before(operation["offset"])

    def _retain(self, operation: Operation) -> None:
        self.opened.log.delete_old_segments()

    def _restart(self, operation: Operation) -> None:
        self.log.truncate_fully_and_start_at(operation["offset"])

    def _reopen(self, operation: Operation) -> None:
        self.log.close()
        self.sync = operation["sync"]
        self._open({})
