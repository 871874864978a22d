"""Appends in one call: of one batch that a leader takes from a client as it is, or of a run of checked batches.

They are placed and written, and the new state made. Everything here either does all of that or changes nothing and
says so: what a batch is refused for, converted to or rolled for is found out elsewhere, by the same rules.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport BatchRow, header_fault_of, peek_batch, read_v2_row
from kafkalog._core.batch.layout cimport CODEC_MASK, CONTROL_BIT, TRANSACTIONAL_BIT, V2_RECORDS_AT
from kafkalog._core.batch.ready_batch cimport ReadyBatch
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.log.admit cimport NOT_REFUSED, LeaderLimits, Rules, refusal_of, takes_batch
from kafkalog._core.log.assign cimport assign_one, assign_rows
from kafkalog._core.log.log_fields cimport LogFields
from kafkalog._core.log.plan cimport AppendPlan, pass_batch, planned
from kafkalog._core.log.producer_checks cimport CLIENT, REPLICATION, Producers
from kafkalog._core.log.producer_state cimport ProducerState
from kafkalog._core.log.roll cimport KEEP, SegmentTail, roll_reason
from kafkalog._core.log.slots cimport Slot, slot_get, slot_set
from kafkalog._core.log.staged cimport Staged
from kafkalog._core.log.state cimport LogState
from kafkalog._core.log.values cimport LogAppendInfo, make_append_info

from os import pwrite as system_pwrite

from kafkalog._core.log.index_append import write_indexed

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    Py_ssize_t pwritev(int fd, const iovec* parts, int count, int64_t position)

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pwrite(int fd, const void* data, size_t size, int64_t position)

cdef Slot TAIL, IS_FRESH, SIZE, FD, PWRITE, PRODUCERS, MAP_END_OFFSET
TAIL.name, IS_FRESH.name, SIZE.name, FD.name, PWRITE.name = b"tail", b"_is_fresh", b"size", b"_fd", b"_pwrite"
PRODUCERS.name, MAP_END_OFFSET.name = b"producers", b"map_end_offset"
cdef int64_t LAST_OFFSET = 0x7FFFFFFFFFFFFFFF
cdef enum:
    MAX_FILE_SIZE = 0x7FFFFFFF
    SMALL_BYTES = 2048


cdef ReadyBatch take_ready(buf, LeaderLimits limits, int64_t now, bint any_base_offset, BatchTable table):
    """The batch that `buf` is, where a leader takes it from a client as it is at the time `now` (ms); else None.

    That is one sound, uncompressed v2 batch of no transaction, nothing behind it, whose times count. `table`, if given,
    is its scan. A ReadyBatch that was built here is not looked into again. None says nothing else: what is wrong with
    it, if anything, is found out elsewhere.
    """
    cdef ReadyBatch batch
    cdef int64_t size = 0
    cdef int magic = 0
    cdef const uint8_t* p
    if type(buf) is ReadyBatch:
        batch = buf
        return batch if takes_built(limits, batch, now) else None
    if not limits.check_times or not PyObject_CheckBuffer(buf):
        return None
    batch = ReadyBatch.__new__(ReadyBatch)
    try:
        PyObject_GetBuffer(buf, &batch.view, PyBUF_SIMPLE)
    except BufferError:                 # bytes that do not lie side by side
        return None
    batch.is_held = True
    p = <const uint8_t*>batch.view.buf
    if peek_batch(p, batch.view.len, False, &size, &magic) != -1 or size != batch.view.len:
        return None
    if magic != 2 or size < V2_RECORDS_AT:
        return None
    if table is None or table.count != 1 or table.rows[0].valid != 1 or table.rows[0].size != size:
        read_v2_row(p, size, False, &batch.row)
        batch.row.size = size
    else:
        batch.row = table.rows[0]
    batch.row.position = 0
    if batch.row.attributes & (CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT):
        return None
    return batch if takes_batch(limits, p, &batch.row, now, any_base_offset) else None


cdef bint takes_built(LeaderLimits limits, ReadyBatch batch, int64_t now):
    """True where a leader takes a batch that was built here, by its header and the times of its records."""
    cdef Rules rules
    limits.bounds(now, &rules)
    if not batch.is_built or batch.row.attributes or not limits.writes_as_is or not rules.times:
        return False
    if rules.keys and not batch.has_keys:
        return False
    return (
        batch.row.size <= limits.segment_size and batch.oldest >= rules.oldest and batch.newest <= rules.newest
        and refusal_of(&batch.row, True, False, False, -1, limits.max_message_bytes) == NOT_REFUSED
        and not header_fault_of(&batch.row)
    )


@cython.final
cdef class AppendEngine:
    """Appends to a log, each in one call.

    `core` is the log's; hooks for "append" in `hooks` are called for each append. An append of several steps is left to
    `write(batch, leader_epoch, now)`; `flush_if_due()` follows an append where the log counts records to the next
    flush. Threads: any; the core's lock is taken.
    """
    cdef LogFields core
    cdef dict hooks
    cdef object write
    cdef object flush_if_due
    cdef object segment                 # the active one, when an append last looked at it
    cdef object records
    cdef const uint8_t* head            # what `put_noted` puts
    cdef const uint8_t* data
    cdef int64_t size

    def __init__(self, LogFields core not None, dict hooks not None, write, flush_if_due):
        self.core = core
        self.hooks = hooks
        self.write = write
        self.flush_if_due = flush_if_due

    def append_ready(
        self, buffer, *, leader_epoch=None, BatchTable table=None, bint any_base_offset=False, now_ms=None
    ) -> LogAppendInfo | None:
        """Return what was appended: a client's batch that a leader takes as it is; None where `buffer` is no such one.

        After None `append_as_leader`, with the same arguments, does or says what else there is. `buffer` stays as it
        is, unless it is a ReadyBatch. `now_ms` is the time, where it was read just now. Errors as there.
        """
        cdef LogFields core = self.core
        cdef LeaderLimits limits
        cdef int32_t epoch
        cdef int64_t now
        cdef ReadyBatch batch
        if "append" in self.hooks:
            return None
        limits = None if core is None else core.current_limits()
        if limits is None or core.lock is None:
            raise TypeError("an engine without a log")
        epoch = core.leader_epoch if leader_epoch is None else leader_epoch
        now = core.milliseconds() if now_ms is None else now_ms
        batch = take_ready(buffer, limits, now, any_base_offset, table)
        if batch is None:
            return None
        try:
            core.lock.take()            # no signal handler runs before the release, unless a segment's own code is run
            try:
                info = self.append_locked(batch, epoch, now)
            finally:
                core.lock.give_back()
        finally:
            if core.after_unlock:
                core.run_after_append()
        if info is None:
            return self.write(batch, epoch, now)
        if core.flush_messages:
            self.flush_if_due()
        return info

    def append_run(
        self, buffer, BatchTable table not None, int64_t now, *, bint keeps_offsets, int32_t leader_epoch=-1,
        int64_t append_time=-1,
    ) -> LogState | None:
        """Return the state before the append of all batches of `table`, which were checked; None with nothing changed.

        With `keeps_offsets` they are one append of a follower, else appends of a leader, which get offsets, epoch and,
        from 0 on, time (ms) in `buffer`. None where that takes more than one write: see `tail_locked`; an old format,
        offsets below the log end, transactions, and what a producer's rules refuse are among it. ValueError, with
        nothing written, as `assign`. What is due after an append is left to the caller.
        """
        cdef LogFields core = self.core
        if "append" in self.hooks or table.count == 0:
            return None
        if core is None or core.lock is None:
            raise TypeError("an engine without a log")
        core.lock.take()                # no signal handler runs before the release, unless a segment's own code is run
        try:
            if keeps_offsets:
                return self.append_kept_locked(buffer, table, now)
            return self.append_placed_locked(buffer, table, now, leader_epoch, append_time)
        finally:
            core.lock.give_back()

    cdef LogState append_kept_locked(self, object buffer, BatchTable table, int64_t now):
        cdef SegmentTail tail = self.tail_locked(table.last_leader_epoch)
        cdef Py_ssize_t i
        if tail is None or table.first_offset < self.core._state.log_end_offset or table.last_offset == LAST_OFFSET:
            return None
        for i in range(table.count):
            if table.rows[i].magic < 2:
                return None
        plan = planned(table, 0, tail, self.core.rules, now, True, False)
        return self.write_run_locked(buffer, table, plan, REPLICATION)

    cdef LogState append_placed_locked(
        self, object buffer, BatchTable table, int64_t now, int32_t leader_epoch, int64_t append_time
    ):
        cdef SegmentTail tail = self.tail_locked(leader_epoch)
        if tail is None:
            return None
        assign_rows(buffer, table, 0, table.count, self.core._state.log_end_offset, leader_epoch, append_time, 0)
        plan = planned(table, 0, tail, self.core.rules, now, False, False)
        return self.write_run_locked(buffer, table, plan, CLIENT)

    cdef LogState write_run_locked(self, object buffer, BatchTable table, AppendPlan plan, int origin):
        """The state before the write that `plan` is about; None where it is not of all batches, or of transactions."""
        cdef LogFields core = self.core
        cdef LogState state = core._state
        cdef LogState after
        cdef Producers producers
        cdef Staged staged = None
        cdef Py_buffer view
        if plan.roll_reason != KEEP or plan.stop_row != table.count:
            return None
        if table.has_producers:
            producers = <Producers?>slot_get(core.producers, &PRODUCERS)
            staged = producers.stage(table, 0, table.count, buffer, 0, origin)
            if staged is not None and not producers.takes_plainly(staged):
                return None
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if plan.start_byte < 0 or plan.stop_byte < plan.start_byte or plan.stop_byte > view.len:
                raise ValueError(f"the batches of the table lie outside the {view.len} bytes given")
            after = state.appended(plan, core.follows)
            data = <const uint8_t*>view.buf + plan.start_byte
            self.write_locked(NULL, data, plan.stop_byte - plan.start_byte, plan.entries, plan.tail)
            core.staged = staged        # an interrupt before it is applied is made up for by `ready_locked`
            core.set_state(after)
            if staged is not None:
                core.apply_staged_locked()
        except BaseException as error:
            core.undo_write_locked(state, plan.first_offset, error)
            raise
        finally:
            PyBuffer_Release(&view)
        return state

    cdef SegmentTail tail_locked(self, int32_t leader_epoch):
        """The tail of the active segment, where an append may go to it in one step; else None.

        Not so where the log takes no writes or has an append to finish, where a segment has to be opened first, an
        epoch begins, or transactions are open.
        """
        cdef LogFields core = self.core
        cdef SegmentTail tail
        if not core.is_ready():
            return None
        if self.segment is not core._active:
            self.segment, self.records = core._active, core._active.records
        tail = <SegmentTail?>slot_get(self.segment, &TAIL)
        if (
            tail.size != core._state.end_position or slot_get(self.segment, &IS_FRESH)
            or leader_epoch > core._state.leader_epoch or core._state.first_unstable_offset >= 0
            or core.unstable_is_stale
        ):
            return None
        return tail

    cdef object append_locked(self, ReadyBatch batch, int32_t leader_epoch, int64_t now):
        """Append a batch in one step; None, with nothing changed, where it takes several.

        Those are what `tail_locked` says, a segment that has to be rolled, offsets that end, and a batch that does not
        continue its producer's.
        """
        cdef LogFields core = self.core
        cdef LogState state, after
        cdef SegmentTail tail = self.tail_locked(leader_epoch)
        cdef BatchRow row = batch.row
        cdef uint8_t[V2_RECORDS_AT] head
        cdef int64_t first, position, timestamp
        cdef Producers producers = None
        cdef ProducerState producer = None
        cdef list entries = None
        if tail is None:
            return None
        state = core._state
        first, position = state.log_end_offset, state.end_position
        if first > LAST_OFFSET - row.last_delta - 1:
            return None
        memcpy(head, batch.view.buf, V2_RECORDS_AT)
        assign_one(head, &row, first, leader_epoch, -1)
        if roll_reason(tail, core.rules, row.size, row.max_timestamp, row.last_offset, now) != KEEP:
            return None
        if row.producer_id >= 0:
            producers = <Producers?>slot_get(core.producers, &PRODUCERS)
            producer = producers.following(&row)
            if producer is None:
                return None
        try:
            tail = tail.copy()
            if pass_batch(tail, core.rules.index_interval_bytes, &row, &timestamp):
                entries = [(row.last_offset, position, timestamp, tail.offset_of_max_timestamp)]
            self.write_locked(head, <const uint8_t*>batch.view.buf, row.size, entries, tail)
            after = state.written(1, row.size, first, row.last_offset, leader_epoch, tail.size, core.follows)
            if producer is None:
                core.set_state(after)
            else:                       # no signal handler runs in between, and what may want memory comes first
                end = after.log_end_offset
                producers.take(producer)
                core.set_state(after)
                slot_set(core.producers, &MAP_END_OFFSET, end)
        except BaseException as error:
            core.undo_write_locked(state, first, error)
            raise
        return make_append_info(
            first, row.last_offset, batch.row.leader_epoch, row.max_timestamp,
            row.last_offset if row.max_timestamp >= 0 else -1, -1, state.log_start_offset, 0, 0, 1, row.size,
            True,
        )

    cdef int write_locked(
        self, const uint8_t* head, const uint8_t* data, int64_t size, list entries, SegmentTail reached
    ) except -1:
        """Put data into the active segment's file, entries into its indexes; `reached` is then its tail."""
        if entries is None:
            self.put(head, data, size)
            slot_set(self.segment, &TAIL, reached)
            return 0
        self.head, self.data, self.size = head, data, size
        try:
            write_indexed(self.segment, self.put_noted, entries, reached)
        finally:
            self.data = NULL
        return 0

    def put_noted(self) -> None:
        """Append what is being written."""
        if self.data is NULL:
            raise TypeError("nothing is being written")
        self.put(self.head, self.data, self.size)

    cdef int put(self, const uint8_t* head, const uint8_t* data, int64_t size) except -1:
        """Append data, of a batch with another header where that is given: in one call where the system takes all."""
        cdef int64_t position = slot_get(self.records, &SIZE)
        cdef Py_ssize_t written
        cdef iovec[2] parts
        cdef uint8_t[SMALL_BYTES] small
        cdef int fd
        records = self.records
        if slot_get(records, &PWRITE) is system_pwrite and position + size <= MAX_FILE_SIZE:
            fd = slot_get(records, &FD)
            if head is NULL:
                with nogil:
                    written = pwrite(fd, data, <size_t>size, position)
            elif size <= SMALL_BYTES:   # a copy costs less than a second part
                memcpy(small, head, V2_RECORDS_AT)
                memcpy(small + V2_RECORDS_AT, data + V2_RECORDS_AT, <size_t>size - V2_RECORDS_AT)
                with nogil:
                    written = pwrite(fd, small, <size_t>size, position)
            else:
                parts[0].iov_base, parts[0].iov_len = <void*>head, V2_RECORDS_AT
                parts[1].iov_base, parts[1].iov_len = <void*>(data + V2_RECORDS_AT), <size_t>size - V2_RECORDS_AT
                with nogil:
                    written = pwritev(fd, parts, 2, position)
            if written == size:
                slot_set(records, &SIZE, position + size)
                return 0
        # not open, not the system's own file, cut short or refused: all of it once more, by the way that knows these
        whole = PyByteArray_FromStringAndSize(<const char*>data, size)
        if head is not NULL:
            memcpy(PyByteArray_AS_STRING(whole), head, V2_RECORDS_AT)
        records.append(whole)
        return 0
