"""A k-way merge of record batches by timestamp, in bounded memory and without a Python object for a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy
    import pyarrow
    from numpy.typing import NDArray

BUDGET_BYTES: Final = 64 << 20
"""Keys, values and headers that a merge holds, over all of its inputs."""
LEAST_BYTES: Final = 64 << 10
LEAST_ROWS: Final = 512


def piece_limits(inputs: int, batch_rows: int, batch_bytes: int) -> tuple[int, int]:
    """Return the most rows and bytes of a record batch of one input, so that all inputs keep to the budget.

    >>> piece_limits(2, 65_536, 8 << 20), piece_limits(1000, 65_536, 8 << 20)
    ((65536, 8388608), (1048, 67108))
    """
    share = max(1, inputs)
    most_rows = max(LEAST_ROWS, 16 * 65_536 // share)
    return min(batch_rows, most_rows), min(batch_bytes, max(LEAST_BYTES, BUDGET_BYTES // share))


def merged_by_time(
    inputs: Iterable[Iterable[pyarrow.RecordBatch]], time_column: str, batch_rows: int
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of all inputs by time, in record batches of at most `batch_rows`.

    Always the first row among the heads of the inputs comes next; of equal times that of the first input. So an input's
    own order is kept: a row that is older than the one before it follows that one at once.

    One record batch of each input is in memory. An error of an input is raised after all rows that come before it.
    """
    runs = [_Input(batches, time_column) for batches in inputs]
    open_runs = [run for run in runs if run.fill()]
    while open_runs:
        bound = min(open_runs, key=lambda run: run.last_time)  # the first of equal ones
        time = bound.last_time
        ready: list[tuple[pyarrow.RecordBatch, NDArray[numpy.int64]]] = []
        for run, is_before in _with_side(open_runs, bound):
            ready.append(run.take(time, through_equal=is_before))
        yield from _sorted_rows([one for one in ready if len(one[1])], batch_rows)
        open_runs = [run for run in open_runs if run.has_rows or run.fill()]


def _with_side(runs: list[_Input], bound: _Input) -> Iterator[tuple[_Input, bool]]:
    """Yield each input, and whether its rows at the time of the bound come before what `bound` may still read."""
    is_before = True
    for run in runs:
        yield run, is_before
        is_before = is_before and run is not bound


class _Input:
    """One input of a merge: its current record batch, with a time for each row that never falls."""

    __slots__ = ("_batch", "_batches", "_column", "_times", "_top")

    def __init__(self, batches: Iterable[pyarrow.RecordBatch], column: str) -> None:
        self._batches = iter(batches)
        self._column = column
        self._batch: pyarrow.RecordBatch | None = None
        self._times: NDArray[numpy.int64] | None = None
        self._top: int | None = None

    @property
    def has_rows(self) -> bool:
        """True while rows of the current record batch are left."""
        return self._batch is not None and self._batch.num_rows > 0

    @property
    def last_time(self) -> int:
        """Time of the last row of the current record batch; no later row of this input comes before it."""
        assert self._times is not None
        return int(self._times[-1])

    def fill(self) -> bool:
        """Read the next record batch that has rows; return False at the end."""
        import numpy
        import pyarrow

        for batch in self._batches:
            if not batch.num_rows:
                continue
            times = batch.column(self._column).cast(pyarrow.int64()).to_numpy(zero_copy_only=False)
            times = numpy.maximum.accumulate(times)
            if self._top is not None:
                times = numpy.maximum(times, self._top)
            self._batch, self._times, self._top = batch, times, int(times[-1])
            return True
        self._batch = self._times = None
        return False

    def take(self, time: int, *, through_equal: bool) -> tuple[pyarrow.RecordBatch, NDArray[numpy.int64]]:
        """Remove and return the rows before `time`, with those at it if asked for, and their times."""
        assert self._batch is not None and self._times is not None
        count = int(self._times.searchsorted(time, "right" if through_equal else "left"))
        taken = self._batch.slice(0, count), self._times[:count]
        self._batch, self._times = self._batch.slice(count), self._times[count:]
        return taken


def _sorted_rows(
    ready: list[tuple[pyarrow.RecordBatch, NDArray[numpy.int64]]], batch_rows: int
) -> Iterator[pyarrow.RecordBatch]:
    import numpy
    import pyarrow

    if len(ready) == 1:
        batch = ready[0][0]
        for start in range(0, batch.num_rows, batch_rows):
            yield batch.slice(start, batch_rows)
    elif ready:
        order = numpy.argsort(numpy.concatenate([times for _, times in ready]), kind="stable")
        rows = pyarrow.Table.from_batches([batch for batch, _ in ready]).combine_chunks()
        for start in range(0, len(order), batch_rows):
            yield from rows.take(pyarrow.array(order[start : start + batch_rows])).to_batches()
