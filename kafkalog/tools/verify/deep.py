"""Deep check: decode every record of every batch, whatever its format and codec, and compare it with its batch."""

from __future__ import annotations

from typing import Final

from kafkalog._core.batch.agree import BATCH_TIME, RECORD_OFFSET, record_fault
from kafkalog._core.batch.decode import STATUS_OK, RecordTable, decode
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog.errors import InvalidRecord, KafkalogError
from kafkalog.records.control import control_record
from kafkalog.records.format import CONTROL_BIT, MAGIC_V2
from kafkalog.records.tables import batch_table
from kafkalog.tools.verify.report import Findings, Severity
from kafkalog.util.fileio import File
from kafkalog.util.os_errors import os_errors

CHUNK_BYTES: Final = 1 << 20
_HINT: Final = "its checksum is right, so it was written this way, by the producer or by a broker that converted it"


class DeepCheck:
    """Decodes the records in ranges of an open `.log` file that hold only sound batches.

    The largest batch is held in memory with its decompressed content, up to the limit of `records.compression`.
    `records` is the number of decoded records.
    """

    def __init__(self, file: File, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self.records = 0

    def run(self, ranges: list[tuple[int, int]]) -> None:
        """Report every batch whose records do not decode or contradict it; StorageError if the system fails."""
        for start, end in ranges:
            position, want = start, CHUNK_BYTES
            while position < end:
                with os_errors("read", self._file.path, position):
                    data = self._file.pread(min(want, end - position), position)
                table = scan(data, check_crc=False, file_mode=True, base_position=position)
                if len(table):
                    self._check_table(data, table, position)
                    position, want = table.stop_position, CHUNK_BYTES
                elif len(data) < min(want, end - position):
                    return  # the file was truncated meanwhile
                else:
                    want = int.from_bytes(data[8:12], "big", signed=True) + 12
                    if want <= len(data):
                        return

    def _check_table(self, data: bytes, table: BatchTable, base_position: int) -> None:
        for row in range(len(table)):
            if table.attributes(row) & CONTROL_BIT and table.magic(row) == MAGIC_V2:
                self._check_control(data, table, row, base_position)
        if table.codec:
            for row in range(len(table)):
                self._check_batch(data, table, row, base_position)
            return
        row = 0
        while row < len(table):
            records = decode(data, table, row, base_position=base_position)
            self._compare(records, table, None)
            if records.status == STATUS_OK:
                return
            row = records.error_batch
            self._check_batch(data, table, row, base_position)
            row += 1

    def _check_control(self, data: bytes, table: BatchTable, row: int, base_position: int) -> None:
        """Report a control record that does not say what it ends: its transaction stays open for committed readers."""
        try:
            for record in batch_table(data, table, row, base_position=base_position, ordered=False):
                control_record(record.key, record.value)
        except InvalidRecord as error:
            what = f"a control record at position {table.position(row)} cannot be read: {error.message}"
            self._add("record", what, table.base_offset(row), table.position(row))
        except KafkalogError:
            return  # its records are reported by the check of each batch

    def _check_batch(self, data: bytes, table: BatchTable, row: int, base_position: int) -> None:
        if not 0 <= table.magic(row) <= 2:
            return  # reported by the pass over the headers
        try:
            records = batch_table(
                data, table, row, base_position=base_position, path=self._file.path, ordered=False
            )
        except KafkalogError as error:
            what = f"the records of the batch at position {table.position(row)} cannot be read: {error.message}"
            self._add("record", what, table.base_offset(row), error.position)
            return
        self._compare(records, table, row)

    def _compare(self, records: RecordTable, table: BatchTable, row: int | None) -> None:
        """Report batches whose records decode but contradict the header; `row` if all are of one batch."""
        at = 0
        self.records += len(records)
        while (fault := record_fault(records, at)) is not None:
            kind, record, number = fault
            number = number if row is None else row
            position, offset = table.position(number), records.offsets[record]
            first, last = table.base_offset(number), table.last_offset_of(number)
            if kind == BATCH_TIME:
                largest = table.max_timestamp_of(number)
                what = f"the batch states {largest} as its largest timestamp, but its records differ"
                self._findings.add(Severity.NOTE, "record-time", what, offset=first, position=position)
            elif kind == RECORD_OFFSET:
                self._add("record", f"offset {offset} follows the same or a higher one in its batch", offset, position)
            else:
                bounds = f"{first} to {last}" if table.magic(number) >= 2 else f"which ends at {last}"
                self._add("record", f"offset {offset} is outside its batch, {bounds}", offset, position)
            if row is not None:
                return
            at = _next_batch(records, record)

    def _add(self, kind: str, what: str, offset: int, position: int | None) -> None:
        self._findings.add(Severity.DAMAGE, kind, what, offset=offset, position=position, hint=_HINT)


def _next_batch(records: RecordTable, record: int) -> int:
    """Return the first record of the batch after that of `record`."""
    batch = records.batch_of(record)
    while record < len(records) and records.batch_of(record) == batch:
        record += 1
    return record
