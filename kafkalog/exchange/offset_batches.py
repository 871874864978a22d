"""Rows with offsets as v2 batches with those offsets: a batch ends where an offset is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import pack_into
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog.landing.targets import StagedFor, no_time, place_all
from kafkalog.records.format import TIMESTAMP_TYPE_BIT
from kafkalog.records.placer import Placer

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import NDArray
    from typing_extensions import Buffer

BATCH_BYTES: Final = 128 << 10
LOG_APPEND_TIME: Final = 1
_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21


def batches_with_offsets(tables: Iterable[pyarrow.Table], name: str, topic: StagedFor) -> Iterator[Buffer]:
    """Yield the rows of Arrow tables as v2 batches in buffers.

    Columns are offset and value; key, timestamp in ms, headers and timestampType are optional. Offsets increase over
    all tables. The leader epoch is 0. Records of type LogAppendTime share batches with those of the same timestamp and
    keep the type; records of format v0 become CreateTime, as when Kafka converts them.
    """
    target = topic.as_copied()
    placer = Placer(lambda _: target, topic=name, columns={"partition": None}, batch_bytes=BATCH_BYTES, now_ms=no_time)
    before = 0
    for table in tables:
        offsets = table["offset"].to_numpy()
        types = table["timestampType"].to_numpy() if "timestampType" in table.schema.names else None
        times = table["timestamp"].to_numpy() if "timestamp" in table.schema.names else None
        rows = table.select([one for one in ("value", "key", "timestamp", "headers") if one in table.schema.names])
        for first, stop in batch_runs(offsets, types, times):
            appended = types is not None and types[first] == LOG_APPEND_TIME
            shift = int(offsets[first]) - before
            for placed in place_all(placer, [rows.slice(first, stop - first)]):
                shift_offsets(placed.batches, shift, appended)
                yield placed.batches
            before += stop - first


def batch_runs(
    offsets: NDArray[np.int64], types: NDArray[np.integer] | None, times: NDArray[np.int64] | None
) -> Iterator[tuple[int, int]]:
    """Return the rows [first, stop) that fit in one batch: consecutive offsets and one timestamp type.

    Rows with LogAppendTime must also have the same timestamp.
    """
    breaks = np.diff(offsets) != 1
    if types is not None:
        breaks |= np.diff(types) != 0
        if times is not None:
            breaks |= (np.diff(times) != 0) & (types[1:] == LOG_APPEND_TIME)
    places = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(offsets)]
    return ((first, stop) for first, stop in zip(places, places[1:], strict=False) if first < stop)



def shift_offsets(batches: Buffer, shift: int, append_time: bool) -> None:
    """Add `shift` to the base offsets of v2 batches in a writable buffer, and set their timestamp type."""
    table = scan(batches, check_crc=False)
    view = memoryview(batches).cast("B")
    for row in range(table.count):
        at, size = table.position(row), table.size(row)
        pack_into(">q", view, at, table.base_offset(row) + shift)
        pack_into(">i", view, at + _EPOCH_AT, 0)
        if append_time:
            view[at + _ATTRIBUTES_AT + 1] |= TIMESTAMP_TYPE_BIT
            pack_into(">I", view, at + _CRC_AT, crc32c(view[at + _ATTRIBUTES_AT : at + size]))
