"""Control records and batches: transaction markers, leader changes, and other control records of KRaft.

>>> from kafkalog import control
>>> batch = control.marker_batch(control.ControlType.COMMIT, 9, 1, 7, timestamp=1000)
>>> len(batch)
78

`batch.control` is the content of a control batch (`log.batches()` yields them, `log.records()` leaves them out),
`record.is_control` marks their records, and `control_record(key, value)` parses one. `marker_batch` and `kraft_batch`
build batches that equal Kafka's byte for byte; `marker_parts` and `control_parts` return key and value alone,
for a `RecordsBuilder` with `is_control=True`.
"""

from __future__ import annotations

from kafkalog.records.control import (
    ControlRecord,
    ControlType,
    control_parts,
    control_record,
    control_type,
    marker_parts,
)
from kafkalog.records.control_batch import kraft_batch, marker_batch

__all__ = [
    "ControlRecord", "ControlType", "control_parts", "control_record", "control_type", "kraft_batch", "marker_batch",
    "marker_parts",
]  # fmt: skip
