"""Decision to roll a segment: the end of the active one, the limits, the reason (SEG-1, SEG-16, SEG-17)."""
cimport cython

from kafkalog._core.bytes.wrap cimport subtracted

NO_ROLL = KEEP
ROLL_FOR_SIZE = ROLL_SIZE
ROLL_FOR_TIME = ROLL_TIME
ROLL_FOR_INDEX = ROLL_INDEX
ROLL_FOR_OFFSET = ROLL_OFFSET

cdef int64_t MAX_RELATIVE_OFFSET = 0x7FFFFFFF


@cython.final
@cython.freelist(8)
cdef class SegmentTail:
    """End of a segment: the place of its next batch, and what the roll and index rules have to remember until then.

    `size` in bytes; `last_offset` -1 while empty (or, for a segment that was closed earlier, not known);
    `max_timestamp` with the last offset of the batch that first held it (-1, -1: none); `rolling_timestamp` the max
    timestamp of the segment's first batch (-1: none); `bytes_since_index_entry` counts from the open on (SEG-36);
    `offset_slots` and `time_slots` are the entries that still fit into the indexes, one slot of the time index left
    free; `last_time_entry` is the timestamp of the last time index entry (-1: none).
    """

    def __init__(
        self,
        size: int = 0,
        last_offset: int = -1,
        max_timestamp: int = -1,
        offset_of_max_timestamp: int = -1,
        rolling_timestamp: int = -1,
        bytes_since_index_entry: int = 0,
        offset_slots: int = 0,
        time_slots: int = 0,
        last_time_entry: int = -1,
    ):
        self.size = size
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.rolling_timestamp = rolling_timestamp
        self.bytes_since_index_entry = bytes_since_index_entry
        self.offset_slots = offset_slots
        self.time_slots = time_slots
        self.last_time_entry = last_time_entry

    cdef SegmentTail copy(self):
        cdef SegmentTail t = SegmentTail.__new__(SegmentTail)
        t.size = self.size
        t.last_offset = self.last_offset
        t.max_timestamp = self.max_timestamp
        t.offset_of_max_timestamp = self.offset_of_max_timestamp
        t.rolling_timestamp = self.rolling_timestamp
        t.bytes_since_index_entry = self.bytes_since_index_entry
        t.offset_slots = self.offset_slots
        t.time_slots = self.time_slots
        t.last_time_entry = self.last_time_entry
        return t

    cdef tuple fields(self):
        return (
            self.size, self.last_offset, self.max_timestamp, self.offset_of_max_timestamp, self.rolling_timestamp,
            self.bytes_since_index_entry, self.offset_slots, self.time_slots, self.last_time_entry,
        )

    def __eq__(self, other):
        if not isinstance(other, SegmentTail):
            return NotImplemented
        return self.fields() == (<SegmentTail>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        return (
            f"<SegmentTail {self.size} B last {self.last_offset} max ts {self.max_timestamp}@"
            f"{self.offset_of_max_timestamp} first ts {self.rolling_timestamp} since entry "
            f"{self.bytes_since_index_entry} B, slots {self.offset_slots}/{self.time_slots}>"
        )


@cython.final
cdef class RollRules:
    """Limits that stay the same between appends: the segment's base, size and age, and the index interval.

    `max_wait_ms` is segment.ms less the segment's jitter; `created_ms` the clock when the segment began.
    """

    def __init__(
        self, base_offset: int, max_size: int, max_wait_ms: int, created_ms: int, index_interval_bytes: int
    ):
        self.base_offset = base_offset
        self.max_size = max_size
        self.max_wait_ms = max_wait_ms
        self.created_ms = created_ms
        self.index_interval_bytes = index_interval_bytes

    def __repr__(self):
        return (
            f"RollRules(base_offset={self.base_offset}, max_size={self.max_size}, max_wait_ms={self.max_wait_ms}, "
            f"created_ms={self.created_ms}, index_interval_bytes={self.index_interval_bytes})"
        )


cdef int roll_reason(
    SegmentTail tail, RollRules rules, int64_t size, int64_t max_timestamp, int64_t last_offset, int64_t now
) noexcept:
    """Return why a write of `size` bytes that ends at `last_offset` needs a new segment (SEG-17).

    Offsets come first: nothing overrules them.
    """
    cdef int64_t relative = subtracted(last_offset, rules.base_offset)
    if relative < 0 or relative > MAX_RELATIVE_OFFSET:
        return ROLL_OFFSET
    if tail.size > subtracted(rules.max_size, size):
        return ROLL_SIZE
    if tail.offset_slots <= 0 or tail.time_slots <= 0:
        return ROLL_INDEX
    if tail.size > 0:
        if tail.rolling_timestamp >= 0:
            if max_timestamp >= 0 and max_timestamp - tail.rolling_timestamp > rules.max_wait_ms:
                return ROLL_TIME
        elif subtracted(now, rules.created_ms) > rules.max_wait_ms:
            return ROLL_TIME
    return KEEP
