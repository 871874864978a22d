"""max.decompressed.message.bytes: the largest record that may come out of a compressed batch.

A broker applies the limit wherever it decompresses records: in produced batches, in a clean, in a look-up by time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.log.admit import STATUS_RECORD_SIZE, check_rows
from kafkalog.config.topic import LogConfig, key_for
from kafkalog.errors import InvalidRecord
from kafkalog.records.format import CODEC_MASK, MAGIC_V2
from kafkalog.records.plain_runs import plain_row

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SETTING = "max.decompressed.message.bytes"
_LARGEST = key_for(_SETTING).default


def limit_of(config: LogConfig) -> int | None:
    """Return the limit in bytes, or None if a topic has the default, which no record can exceed."""
    limit = config.max_decompressed_message_bytes
    return None if limit == _LARGEST else limit


def check_unpacked(
    data: Buffer,
    table: BatchTable,
    most_bytes: int,
    base_position: int,
    path: str,
    *,
    last_offset: int | None = None,
) -> None:
    """Raise InvalidRecord if a compressed v2 batch of the table has a record of more than `most_bytes`.

    `base_position` is the position of `data` in the file `path`; `last_offset` is the offset of the last record that
    counts. Errors of damaged batches as for `plain_row`.
    """
    for row in range(len(table)):
        if table.magic(row) < MAGIC_V2 or not table.attributes(row) & CODEC_MASK:
            continue
        records, plain = plain_row(data, table, row, base_position=base_position, path=path)
        check = check_rows(records, plain, check_times=False, most_bytes=most_bytes)
        offset = table.base_offset(row) + check.record
        if check.status == STATUS_RECORD_SIZE and (last_offset is None or offset <= last_offset):
            raise InvalidRecord(
                f"record {check.record} of the batch has more than {most_bytes} bytes, decompressed",
                path=path, offset=table.base_offset(row), position=table.position(row), hint=f"raise {_SETTING}",
            )  # fmt: skip
