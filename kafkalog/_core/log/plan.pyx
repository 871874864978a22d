"""The plan of an append, made from values alone: which batches go out in one write, and which index entries.

One call plans one write; nothing here touches a file. The rules are the reference's: SEG-3 to SEG-5 of the
checklist, format.md section 7 for the index entries; `roll.pyx` has those of a roll.
"""
cimport cython

from kafkalog._core.bytes.wrap cimport added, subtracted
from kafkalog._core.log.assign cimport assign_rows
from kafkalog._core.log.roll cimport KEEP, ROLL_OFFSET, RollRules, SegmentTail, roll_reason
from kafkalog._core.log.values cimport LogAppendInfo, make_append_info


@cython.final
cdef class AppendPlan:
    """One write: rows [`start_row`, `stop_row`), bytes [`start_byte`, `stop_byte`) of the buffer, and the tail after it.

    With `roll_reason` other than NO_ROLL nothing is planned: the segment has to be rolled first. `entries` is None or
    a list of (last offset, position, timestamp or -1, its offset), the index entries that the write brings; a
    timestamp of -1 means that the time index gets none.
    """

    @property
    def size(self) -> int:
        """Bytes to write."""
        return subtracted(self.stop_byte, self.start_byte)

    def __repr__(self):
        if self.roll_reason:
            return f"<AppendPlan roll first, reason {self.roll_reason}>"
        return (
            f"<AppendPlan bytes [{self.start_byte}, {self.stop_byte}) offsets {self.first_offset}-{self.last_offset}, "
            f"{len(self.entries) if self.entries is not None else 0} index entries>"
        )


cdef int add_row(SegmentTail tail, RollRules rules, AppendPlan plan, const BatchRow* batch) except -1:
    """Moves the tail over one batch and notes the index entries that it brings."""
    cdef int64_t timestamp = -1
    cdef int64_t position = tail.size
    if pass_batch(tail, rules.index_interval_bytes, batch, &timestamp):
        if plan.entries is None:
            plan.entries = []
        plan.entries.append((batch.last_offset, position, timestamp, tail.offset_of_max_timestamp))
    return 0


def plan_append(
    BatchTable table not None,
    Py_ssize_t row,
    SegmentTail tail not None,
    RollRules rules not None,
    int64_t now,
    bint whole,
    bint fresh,
) -> AppendPlan:
    """Return the plan of the next write, from batch `row` of `table` on, whose offsets and times are final.

    `now` is the wall clock in ms. `whole` takes all batches as one append with one decision to roll, otherwise each
    batch is an append of its own and the write ends before the first one that needs a new segment. `fresh` says that
    the segment was just rolled for these batches: the first is then written whatever the limits say. A batch whose
    offset does not fit its segment even then gives ROLL_FOR_OFFSET again.
    """
    return planned(table, row, tail, rules, now, whole, fresh)


cdef AppendPlan planned(
    BatchTable table, Py_ssize_t row, SegmentTail tail, RollRules rules, int64_t now, bint whole, bint fresh
):
    cdef AppendPlan plan = AppendPlan.__new__(AppendPlan)
    cdef SegmentTail after = tail.copy()
    cdef BatchRow* batch
    cdef Py_ssize_t i
    cdef int reason
    if row < 0:
        raise IndexError(f"row {row} of a table of {table.count} batches")
    batch = table.row_at(row)
    plan.max_timestamp = plan.offset_of_max_timestamp = -1
    plan.last_leader_epoch = -1
    plan.start_byte = plan.stop_byte = batch.position
    plan.first_offset = batch.base_offset
    plan.start_row = plan.stop_row = row
    if whole:
        reason = roll_reason(tail, rules, table.valid_bytes, table.max_timestamp, table.last_offset, now)
        if reason != KEEP and not (fresh and reason != ROLL_OFFSET):
            plan.roll_reason = reason
            return plan
    for i in range(row, table.count):
        batch = &table.rows[i]
        if not whole:
            reason = roll_reason(after, rules, batch.size, batch.max_timestamp, batch.last_offset, now)
            if reason != KEEP and not (fresh and i == row and reason != ROLL_OFFSET):
                if i == row:
                    plan.roll_reason = reason
                break
        add_row(after, rules, plan, batch)
        if batch.max_timestamp > plan.max_timestamp:
            plan.max_timestamp = batch.max_timestamp
            plan.offset_of_max_timestamp = batch.last_offset
        plan.last_offset = batch.last_offset
        if batch.leader_epoch > plan.last_leader_epoch:
            plan.last_leader_epoch = batch.leader_epoch
        plan.stop_byte = added(batch.position, batch.size)
        plan.stop_row = i + 1
    plan.tail = after
    return plan


def place_append(
    buf,
    BatchTable table not None,
    int64_t first_offset,
    int32_t leader_epoch,
    int64_t append_time,
    SegmentTail tail not None,
    RollRules rules not None,
    int64_t now,
) -> AppendPlan:
    """The plan of a leader's append, the batches of which get their offsets, epoch and time in `buf`: `assign`, then
    `plan_append` of all of them."""
    assign_rows(buf, table, 0, table.count, first_offset, leader_epoch, append_time, 0)
    return planned(table, 0, tail, rules, now, True, False)


def append_info(
    BatchTable table not None, int64_t first_offset, int32_t last_leader_epoch, int64_t append_time,
    int64_t log_start_offset, BatchTable source=None,
) -> LogAppendInfo:
    """The result of an append of all batches of `table`, which have their final offsets and times.

    `first_offset` is -1 where it is not known; a client's batches carried no `last_leader_epoch` (-1). `source` is
    the table of what was handed in, where that is not what was written.
    """
    if source is None:
        source = table
    return make_append_info(
        first_offset, table.last_offset, last_leader_epoch, table.max_timestamp, table.offset_of_max_timestamp,
        append_time, log_start_offset, source.codec, table.codec, source.count, source.valid_bytes, table.monotonic,
    )


def rows_up_to_epoch(BatchTable table not None, int32_t leader_epoch) -> int:
    """Return the number of batches before the first with an epoch above `leader_epoch`: a follower takes these (LOG-81)."""
    cdef Py_ssize_t i
    for i in range(table.count):
        if table.rows[i].leader_epoch > leader_epoch:
            return i
    return table.count


def offsets_rise(BatchTable table not None, Py_ssize_t rows) -> bool:
    """True when each of the first `rows` batches begins and ends above the one before it (LOG-4)."""
    cdef Py_ssize_t i
    for i in range(min(rows, table.count)):
        if table.rows[i].last_offset < table.rows[i].base_offset:
            return False
        if i > 0 and table.rows[i].base_offset <= table.rows[i - 1].last_offset:
            return False
    return True


def first_without_epoch(BatchTable table not None, Py_ssize_t rows) -> int:
    """The first of the first `rows` batches that is v2 and has no leader epoch, or -1."""
    cdef Py_ssize_t i
    for i in range(min(rows, table.count)):
        if table.rows[i].magic >= 2 and table.rows[i].leader_epoch < 0:
            return i
    return -1


def first_old_format(BatchTable table not None, Py_ssize_t rows) -> int:
    """The first of the first `rows` batches whose format is older than v2, or -1."""
    cdef Py_ssize_t i
    for i in range(min(rows, table.count)):
        if table.rows[i].magic < 2:
            return i
    return -1
