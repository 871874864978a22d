"""A leader's checks of a batch before it is appended: the header, and structure, key and time of each record."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free, realloc

from kafkalog._core.batch.check cimport STOP_END, BatchRow, header_fault_of, place_of, read_v2_row
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE, ERR_MAGIC, ERR_MEMORY, ERR_SHORT,
    LEGACY_CRC_AT, MAGIC_AT, OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.batch.record_walk cimport first_larger
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.crc cimport kl_crc32
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport loadu32
from kafkalog._core.bytes.wrap cimport added, subtracted

cdef enum:
    BAD_TIMESTAMP = 101
    BAD_KEY
    BAD_MAGIC
    BAD_STAMP
    BAD_CHECKSUM
    BAD_SIZE
    LISTED = 100_000
    SMALL = 8192                    # a batch below this is done before another thread could use the GIL

cdef int64_t ANY_SIZE = 0x7FFFFFFFFFFFFFFF

FAULT_TIMESTAMP = BAD_TIMESTAMP
FAULT_NO_KEY = BAD_KEY
FAULT_MAGIC = BAD_MAGIC
FAULT_STAMPED = BAD_STAMP
STATUS_CHECKSUM = BAD_CHECKSUM
STATUS_RECORD_SIZE = BAD_SIZE
MOST_FAULTS = LISTED

# What `refusal` found, in the order of the reference's checks (format.md section 11, stage B).
WRONG_EPOCH = EPOCH_DIFFERS
BASE_OFFSET_NOT_ZERO = OFFSET_NOT_ZERO
BATCH_TOO_LARGE = TOO_LARGE
WRONG_CHECKSUM = CHECKSUM_WRONG


cdef struct Fault:
    int64_t record
    int64_t offset
    int64_t timestamp
    int kind


cdef struct Found:
    Fault* faults
    int64_t listed
    int64_t total
    int64_t capacity
    int64_t max_timestamp
    int64_t count
    int64_t bytes
    int64_t position                # of the record looked at last, in its batch
    int64_t record                  # its number
    int64_t min_timestamp
    bint consecutive
    bint begins_at_base             # the first record's time is the base timestamp


cdef int note(Found* found, int64_t record, int64_t offset, int64_t timestamp, int kind) noexcept nogil:
    """One more record that breaks a rule; those behind the first LISTED are counted only."""
    cdef Fault* fresh
    cdef Fault* fault
    found.total += 1
    if found.listed == LISTED:
        return OK
    if found.listed == found.capacity:
        found.capacity = max(2 * found.capacity, 16)
        fresh = <Fault*>realloc(found.faults, <size_t>found.capacity * sizeof(Fault))
        if fresh == NULL:
            return ERR_MEMORY
        found.faults = fresh
    fault = &found.faults[found.listed]
    fault.record = record
    fault.offset = offset
    fault.timestamp = timestamp
    fault.kind = kind
    found.listed += 1
    return OK


cdef inline int judge(
    Found* found, const Rules* rules, int64_t number, int64_t offset, int64_t timestamp, bint keyed, bint stamped
) noexcept nogil:
    """Check key and time of one record; note the first rule that it breaks (VAL-12, VAL-13, VAL-15)."""
    if rules.keys and not keyed:
        return note(found, number, offset, timestamp, BAD_KEY)
    if rules.times and timestamp != -1:
        if timestamp < rules.oldest or timestamp > rules.newest:
            return note(found, number, offset, timestamp, BAD_TIMESTAMP)
    elif stamped:
        return note(found, number, offset, timestamp, BAD_STAMP)
    return OK


cdef int look_at_records(const uint8_t* p, const BatchRow* row, const Rules* rules, Found* found) noexcept nogil:
    cdef Cursor c
    cdef Fields f
    cdef int status
    cdef int64_t i
    cdef int64_t timestamp
    cdef bint stamped = (row.attributes & TIMESTAMP_TYPE_BIT) != 0
    found.position = V2_RECORDS_AT
    found.record = 0
    if row.count < 0:
        return ERR_COUNT_NEGATIVE
    c.p = p + V2_RECORDS_AT
    c.end = p + row.size
    for i in range(row.count):
        found.position = c.p - p
        found.record = i
        if c.p == c.end:
            return ERR_COUNT_HIGH
        if not take_small_record(&c, &f):
            status = take_record(&c, &f)
            if status != OK:
                return status
        timestamp = row.max_timestamp if stamped else added(row.base_timestamp, f.timestamp_delta)
        if timestamp > found.max_timestamp:
            found.max_timestamp = timestamp
        if timestamp < found.min_timestamp:
            found.min_timestamp = timestamp
        if f.offset_delta != i:
            found.consecutive = False
        if i == 0:
            found.begins_at_base = f.timestamp_delta == 0 and not stamped
        if judge(found, rules, i, added(row.base_offset, f.offset_delta), timestamp, f.key_size >= 0, stamped) != OK:
            return ERR_MEMORY
    found.count += row.count
    found.bytes += c.p - p - V2_RECORDS_AT
    found.position = c.p - p
    return ERR_COUNT_LOW if c.p != c.end else OK


cdef int look_at_messages(const uint8_t* p, const BatchRow* row, const Rules* rules, Found* found) noexcept nogil:
    """A plain message, or those of a wrapper, with their absolute offsets; a message cut off at the end ends them."""
    cdef Cursor c
    cdef Message m
    cdef int status
    cdef int64_t i = 0
    cdef int64_t timestamp
    cdef bint stamped = row.magic > 0 and (row.attributes & TIMESTAMP_TYPE_BIT) != 0
    c.p = p
    c.end = p + row.size
    while True:
        found.position = c.p - p
        found.record = i
        status = take_frame(&c, &m)
        if status != OK:
            break
        if m.magic != row.magic:
            status = note(found, i, m.offset, m.timestamp, BAD_MAGIC)
        elif rules.inner and kl_crc32(0, m.start + MAGIC_AT, <size_t>(m.size - MAGIC_AT)) != loadu32(m.start + LEGACY_CRC_AT):
            status = BAD_CHECKSUM
        else:
            status = take_fields(&m)
            timestamp = row.max_timestamp if stamped else m.timestamp
            if timestamp > found.max_timestamp:
                found.max_timestamp = timestamp
            if m.offset != i:
                found.consecutive = False
            if status == OK:
                status = judge(found, rules, i, m.offset, timestamp, m.key_size >= 0, stamped)
        if status != OK:
            break
        found.bytes += m.size
        i += 1
    found.count += i
    return OK if status == ERR_SHORT and i else status


cdef int look(const uint8_t* p, const BatchRow* row, const Rules* rules, Found* found) noexcept nogil:
    if row.magic < 0 or row.magic > 2 or (row.magic == 2 and row.size < V2_RECORDS_AT):
        return ERR_MAGIC
    if row.attributes & CODEC_MASK:
        return ERR_COMPRESSED
    if row.magic == 2:
        if row.size > rules.most_bytes:
            found.record = first_larger(p, row.size, row.count, rules.most_bytes, &found.position)
            if found.record >= 0:
                return BAD_SIZE
        return look_at_records(p, row, rules, found)
    return look_at_messages(p, row, rules, found)


@cython.final
cdef class RecordCheck:
    """Result of a check of the batches `first` up to `row`, and the faults in the records of batch `row`.

    `row` is -1 where nothing is. `status` is not 0 where the structure is broken, at byte `position` of the batch, in
    record `record`; it is STATUS_CHECKSUM for an inner message whose checksum is wrong, STATUS_RECORD_SIZE for a v2
    record that is too large. `faults` lists (record number, FAULT_ kind, offset, timestamp), of `total` in all. `count`
    records have `size` bytes and the largest timestamp `max_timestamp` (ms, -1 for none); `consecutive` says that their
    offsets are 0, 1, 2 and so on, from the base offset in v2; `fresh` that the last v2 batch is as if it had just been
    built: consecutive, and its times begin at the base timestamp and are none below -1.
    """
    cdef readonly Py_ssize_t row
    cdef readonly int status
    cdef readonly int64_t position
    cdef readonly int64_t record
    cdef readonly list faults
    cdef readonly int64_t total
    cdef readonly int64_t count
    cdef readonly int64_t size
    cdef readonly int64_t max_timestamp
    cdef readonly bint consecutive
    cdef readonly bint fresh


cdef RecordCheck outcome(Py_ssize_t row, int status, const Found* found):
    cdef RecordCheck out = RecordCheck.__new__(RecordCheck)
    cdef Fault* f
    cdef int64_t n
    if status == ERR_MEMORY:
        raise MemoryError
    out.row = row
    out.status = status
    out.position = found.position
    out.record = found.record
    out.faults = []
    for n in range(found.listed):
        f = &found.faults[n]
        out.faults.append((f.record, f.kind, f.offset, f.timestamp))
    out.total = found.total
    out.count = found.count
    out.size = found.bytes
    out.max_timestamp = found.max_timestamp
    out.consecutive = found.consecutive
    out.fresh = found.consecutive and found.begins_at_base and found.min_timestamp >= -1
    return out


cdef inline void begin(Found* found) noexcept nogil:
    found.faults = NULL
    found.listed = found.total = found.capacity = 0
    found.count = found.bytes = found.position = found.record = 0
    found.max_timestamp = -1
    found.min_timestamp = 0
    found.consecutive = True
    found.begins_at_base = False


cdef Py_ssize_t run(
    const uint8_t* data, int64_t length, int64_t base_position, BatchTable batches, Py_ssize_t first, Py_ssize_t last,
    const Rules* rules, Found* found, int* status,
) noexcept nogil:
    """The first row with something wrong, or `last`."""
    cdef Py_ssize_t i
    cdef BatchRow* row
    for i in range(first, last):
        row = &batches.rows[i]
        status[0] = look(data + place_of(row, base_position, length), row, rules, found)
        if status[0] != OK or found.total:
            return i
    return last


def check_rows(
    buf, BatchTable batches not None, Py_ssize_t first=0, Py_ssize_t last=-1, *, int64_t oldest=-0x7FFFFFFFFFFFFFFF,
    int64_t newest=0x7FFFFFFFFFFFFFFF, bint check_times=True, bint need_keys=False, bint inner=False,
    int64_t base_position=0, int64_t most_bytes=0x7FFFFFFFFFFFFFFF,
) -> RecordCheck:
    """Check the records of the uncompressed batches `first` up to `last`; stop at the first batch with a fault.

    The rules are those of format.md section 11, stage C3: with `check_times` a timestamp other than -1 must lie in
    [oldest, newest] (ms); without it, and for -1, the batch must not carry the LogAppendTime bit. `need_keys` is for
    compacted topics. `inner` messages come out of a wrapper: their checksums and formats are looked at too. A v2 record
    may have `most_bytes`.
    """
    cdef Py_buffer view
    cdef Found found
    cdef Rules rules
    cdef Py_ssize_t i
    cdef int status = OK
    if last < 0 or last > batches.count:
        last = batches.count
    if first < 0 or first > last:
        raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
    rules.oldest = oldest
    rules.newest = newest
    rules.times = check_times
    rules.keys = need_keys
    rules.inner = inner
    rules.most_bytes = most_bytes
    begin(&found)
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        for i in range(first, last):
            if place_of(&batches.rows[i], base_position, view.len) < 0:
                raise ValueError(f"batch {i} of the table lies outside the {view.len} bytes given")
        with nogil:
            i = run(<const uint8_t*>view.buf, view.len, base_position, batches, first, last, &rules, &found, &status)
        return outcome(-1 if i == last else i, status, &found)
    finally:
        PyBuffer_Release(&view)
        free(found.faults)


cdef inline bint as_it_is(const uint8_t* p, const BatchRow* row, const Rules* rules, Found* found) noexcept nogil:
    """True when a leader may take an uncompressed v2 batch as it is: records sound, and the header says what they do."""
    if row.magic != 2 or look(p, row, rules, found) != OK or found.total:
        return False
    return not rules.times or (
        found.max_timestamp == row.max_timestamp and not row.attributes & TIMESTAMP_TYPE_BIT
    )


def first_to_change(
    buf, BatchTable batches not None, Py_ssize_t first=0, int64_t oldest=-0x7FFFFFFFFFFFFFFF,
    int64_t newest=0x7FFFFFFFFFFFFFFF, bint check_times=True, bint need_keys=False,
) -> int:
    """The first row from `first` on that a leader does not take from a client as it is; the number of rows for none.

    As it is means: an uncompressed v2 batch whose header and records are sound by the rules of `check_rows` and, with
    `check_times`, whose header says CreateTime and the largest of their times. What a refused batch is refused for,
    and what one of another kind becomes, is found out elsewhere.
    """
    cdef Rules rules
    rules.oldest = oldest
    rules.newest = newest
    rules.times = check_times
    rules.keys = need_keys
    rules.inner = False
    rules.most_bytes = ANY_SIZE
    return first_unlike(buf, batches, first, &rules)


cdef Py_ssize_t first_unlike(object buf, BatchTable batches, Py_ssize_t first, const Rules* rules) except -1:
    """`first_to_change` by these rules; the GIL is released where that is worth it."""
    cdef Py_buffer view
    cdef Found found
    cdef Py_ssize_t i
    if first < 0 or first > batches.count:
        raise ValueError(f"row {first} of a table of {batches.count} batches")
    begin(&found)
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        if batches.valid_bytes < SMALL:
            i = first_of_run(&view, batches, first, rules, &found)
        else:
            with nogil:
                i = first_of_run(&view, batches, first, rules, &found)
    finally:
        PyBuffer_Release(&view)
        free(found.faults)
    return i


cdef Py_ssize_t first_of_run(
    const Py_buffer* view, BatchTable batches, Py_ssize_t first, const Rules* rules, Found* found
) noexcept nogil:
    cdef Py_ssize_t i
    cdef BatchRow* row
    cdef int64_t at
    for i in range(first, batches.count):
        row = &batches.rows[i]
        at = place_of(row, 0, view.len)
        found.max_timestamp = -1
        if at < 0 or header_fault_of(row) or not as_it_is(<const uint8_t*>view.buf + at, row, rules, found):
            return i
    return batches.count


cdef int refusal_of(
    const BatchRow* batch, bint from_client, bint offsets_free, bint from_raft, int32_t leader_epoch,
    int64_t max_message_bytes,
) noexcept nogil:
    if from_raft and batch.leader_epoch != leader_epoch:
        return EPOCH_DIFFERS
    if from_client and not offsets_free and batch.magic >= 2 and batch.base_offset != 0:
        return OFFSET_NOT_ZERO
    if batch.size > max_message_bytes:
        return TOO_LARGE
    return CHECKSUM_WRONG if batch.valid == 0 else NOT_REFUSED


def refusal(
    BatchTable table not None, bint from_client, bint offsets_free, bint from_raft, int32_t leader_epoch,
    int64_t max_message_bytes,
) -> tuple[int, int] | None:
    """(code, row) of the first batch that the analysis of a leader's append refuses, or None: format.md section 11, B.

    A client's batch begins at offset 0 unless `offsets_free`. What is inside the batches is checked elsewhere.
    """
    cdef Py_ssize_t i
    cdef int code
    for i in range(table.count):
        code = refusal_of(&table.rows[i], from_client, offsets_free, from_raft, leader_epoch, max_message_bytes)
        if code != NOT_REFUSED:
            return code, i
    return None


@cython.final
cdef class LeaderLimits:
    """Limits within which a leader appends a client's batch unchanged: sizes in bytes, times in ms.

    A timestamp may be up to `before_ms` behind and `after_ms` ahead of the clock; with `check_times` False the log
    stamps the time itself. `writes_as_is` False: every batch is compressed again. `rules` are the owner's, for what
    is not taken as it is; this class does not look into them.
    """

    def __init__(
        self, *, max_message_bytes: int, segment_size: int, before_ms: int, after_ms: int, check_times: bool,
        need_keys: bool, writes_as_is: bool, rules=None,
    ):
        self.max_message_bytes = max_message_bytes
        self.segment_size = segment_size
        self.before_ms = before_ms
        self.after_ms = after_ms
        self.check_times = check_times
        self.need_keys = need_keys
        self.writes_as_is = writes_as_is
        self.rules = rules

    cdef void bounds(self, int64_t now, Rules* rules) noexcept:
        """Set the rules for records at the time `now`."""
        rules.oldest = subtracted(now, self.before_ms)
        rules.newest = added(now, self.after_ms)
        rules.times = self.check_times
        rules.keys = self.need_keys
        rules.inner = False
        rules.most_bytes = ANY_SIZE  # the limit is for compressed records, which are not taken as they are

    def takes(self, buf, BatchTable table not None, int64_t now, bint any_base_offset=False) -> bool:
        """True where `buf` is one sound batch, nothing behind it, that is written as it is, offsets apart.

        False says nothing yet: what such a batch is refused for, or becomes, is found out elsewhere.
        """
        cdef BatchRow* row = table.rows
        cdef Py_buffer view
        if table.count != 1 or table.stop_reason != STOP_END or len(buf) != row.size:
            return False
        PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
        try:
            at = place_of(row, 0, view.len)
            return at >= 0 and takes_batch(self, <const uint8_t*>view.buf + <int64_t>at, row, now, any_base_offset)
        finally:
            PyBuffer_Release(&view)

    def first_to_change(self, buf, BatchTable table not None, Py_ssize_t first, int64_t now) -> int:
        """The first row from `first` on that is not taken as it is, by its header and records; their number for none."""
        cdef Rules rules
        if not self.writes_as_is:
            return first
        self.bounds(now, &rules)
        return first_unlike(buf, table, first, &rules)


cdef bint takes_batch(
    LeaderLimits limits, const uint8_t* p, BatchRow* row, int64_t now, bint any_base_offset
) noexcept:
    """True where the batch at `p`, which `row` describes, is written as it is, offsets apart.

    A checksum that was not compared yet is, without the GIL where that is worth it; `row.valid` says what it is.
    """
    cdef Rules rules
    cdef Found found
    cdef bint is_taken
    if not limits.writes_as_is or row.size > limits.segment_size:
        return False
    limits.bounds(now, &rules)
    begin(&found)
    if row.size < SMALL:
        is_taken = is_sound(limits, p, row, any_base_offset, &rules, &found)
    else:
        with nogil:
            is_taken = is_sound(limits, p, row, any_base_offset, &rules, &found)
    free(found.faults)
    return is_taken


cdef bint is_sound(
    LeaderLimits limits, const uint8_t* p, BatchRow* row, bint any_base_offset, const Rules* rules, Found* found
) noexcept nogil:
    if row.valid < 0 and row.magic == 2:
        read_v2_row(p, row.size, True, row)
    return (
        refusal_of(row, True, any_base_offset, False, -1, limits.max_message_bytes) == NOT_REFUSED
        and not header_fault_of(row) and as_it_is(p, row, rules, found)
    )


def end_of_magic(BatchTable batches not None, Py_ssize_t first=0) -> int:
    """The row after those that have the format of row `first`, and follow it (VAL-2)."""
    cdef int magic = batches.row_at(first).magic
    cdef Py_ssize_t i = first + 1
    while i < batches.count and batches.rows[i].magic == magic:
        i += 1
    return i
