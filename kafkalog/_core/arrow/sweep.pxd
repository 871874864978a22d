"""The common records of a v2 batch put into columns with as few steps as there can be: format.md section 2.

Common is: sound, without headers, its numbers in one or two bytes, its offset the next or a later one of those asked
for, its bytes fitting what is reserved. Any other record ends the sweep untouched: the careful way says what it is.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kafkalog._core.arrow.growing cimport Lane
from kafkalog._core.batch.fields cimport HEAD_BYTES
from kafkalog._core.batch.layout cimport MIN_RECORD_BYTES
from kafkalog._core.bytes.cursor cimport KL_LONG, Cursor, kl_short
from kafkalog._core.bytes.prefetch cimport kl_prefetch, kl_prefetch_to_write
from kafkalog._core.bytes.wrap cimport added

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    enum { KL_NEAR = 128, KL_AHEAD = 1024 };

    /* n <= KL_NEAR bytes, and more up to KL_NEAR of what lies behind them: both sides have room for that */
    static inline void kl_copy_near(uint8_t* to, const uint8_t* from, int32_t n) {
        memcpy(to, from, 32);
        if (n > 32) {
            memcpy(to + 32, from + 32, 32);
            if (n > 64) memcpy(to + 64, from + 64, 64);
        }
    }
    """
    void kl_copy_near(uint8_t* to, const uint8_t* source, int32_t n) noexcept nogil
    enum:
        KL_NEAR
        KL_AHEAD


cdef enum:
    STEP = 64                       # records that are read before their bytes are copied


cdef struct Slot:
    # a key or value where it lies; a size below 0 is null
    const uint8_t* at
    int32_t size


cdef struct Sweep:
    # what the sweep goes by, and where it came to
    int64_t row                 # the next one to be filled
    int64_t most                # rows to fill, at most
    int64_t base_offset         # of the batch
    int64_t base_timestamp      # what deltas are added to; with own_time False the time of all
    int64_t lowest_delta        # offset deltas outside of these are left to the careful way
    int64_t highest_delta
    int64_t last_delta          # of the record taken last
    int64_t* offsets            # NULL unless asked for, as below
    int64_t* timestamps
    int32_t* lists
    int32_t headers             # how many there are so far
    bint own_time
    bint wants_key
    bint wants_value
    bint rising                 # whether each offset has to be above the one before
    bint has_keys               # whether a record of the last step has a key
    const Slot* chosen          # keys whose values alone are copied; NULL: all are
    int64_t chosen_count


cdef inline int64_t read_step(Sweep* s, Cursor* c, int64_t most, Slot* keys, Slot* values) noexcept nogil:
    """Reads common records at the cursor, at most `most`, and moves it behind them; how many these were.

    Numbers are looked at before zigzag: an even one is half as much, 1 is -1, and no other odd one is common but in
    times. What is read lies in front of the record's end, or within HEAD_BYTES of its start.
    """
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* start = c.p
    cdef const uint8_t* limit = c.end
    cdef const uint8_t* last_start = c.end - HEAD_BYTES
    cdef int64_t lowest = s.lowest_delta
    cdef int64_t delta = s.last_delta
    cdef int64_t base_offset = s.base_offset
    cdef int64_t base_timestamp = s.base_timestamp
    cdef int64_t* offsets = s.offsets + s.row if s.offsets != NULL else NULL
    cdef int64_t* timestamps = s.timestamps + s.row if s.timestamps != NULL else NULL
    cdef bint rising = s.rising
    cdef int64_t nulls = 0
    cdef int64_t i = 0
    cdef uint32_t size
    cdef uint32_t time
    cdef uint32_t offset
    cdef uint32_t key_size
    cdef uint32_t value_size
    while i < most and start <= last_start:
        p = start
        kl_prefetch(p + 768)
        size = kl_short(&p)
        end = p + (size >> 1)
        p += 1
        time = kl_short(&p)
        offset = kl_short(&p)
        key_size = kl_short(&p)
        keys[i].at = p
        keys[i].size = <int32_t>(key_size >> 1)
        if key_size == 1:
            keys[i].size = -1
        elif key_size & 1:
            break
        p += key_size >> 1
        if end > limit or p > end - 2:
            break
        value_size = kl_short(&p)
        if (size | offset | value_size) & 1 or time >= KL_LONG or p + (value_size >> 1) + 1 != end or p[value_size >> 1]:
            break
        values[i].at = p
        values[i].size = <int32_t>(value_size >> 1)
        if <int64_t>(offset >> 1) < lowest:
            break
        delta = offset >> 1
        if rising:
            lowest = delta + 1
        if offsets != NULL:
            offsets[i] = added(base_offset, delta)
        if timestamps != NULL:
            timestamps[i] = added(base_timestamp, <int64_t>(time >> 1) ^ -<int64_t>(time & 1))
        nulls += key_size == 1
        i += 1
        start = end
    s.lowest_delta = lowest
    s.last_delta = delta
    s.has_keys = nulls < i
    c.p = start
    return i


cdef inline bint copy_step(Lane* lane, int64_t row, int64_t count, const Slot* slots, const uint8_t* limit) noexcept nogil:
    """Puts `count` values into rows from `row` on; False where they do not fit, and then the lane is as before.

    `limit` is the end of the bytes that the slots lie in.
    """
    cdef uint8_t* to = lane.data + lane.used
    cdef uint8_t* data = lane.data
    cdef uint8_t* last = lane.data + lane.capacity - KL_NEAR
    cdef const uint8_t* near = limit - KL_NEAR
    cdef int32_t* ends = lane.ends + row + 1
    cdef uint8_t* valid = lane.valid
    cdef int64_t nulls = 0
    cdef int64_t i
    cdef int32_t size
    for i in range(count):
        size = slots[i].size
        if size < 0:
            nulls += 1
        elif size <= KL_NEAR and to <= last and slots[i].at <= near:
            # a column outgrows the cache: its lines are on their way before they are written to
            kl_prefetch_to_write(to + KL_AHEAD)
            kl_prefetch_to_write(to + KL_AHEAD + 64)
            kl_copy_near(to, slots[i].at, size)
            to += size
        else:
            if size > data + lane.capacity - to:
                return False
            memcpy(to, slots[i].at, <size_t>size)
            to += size
        ends[i] = <int32_t>(to - data)
    if nulls:
        if valid == NULL:
            return False
        for i in range(count):
            valid[(row + i) >> 3] &= ~(<int32_t>(slots[i].size < 0) << ((row + i) & 7))
        lane.nulls += nulls
    lane.used = to - data
    return True


cdef inline bint skip_step(Lane* lane, int64_t row, int64_t count) noexcept nogil:
    """Makes `count` rows from `row` on null; False, and nothing done, where no value of the piece was null before."""
    cdef int32_t* ends = lane.ends + row + 1
    cdef int32_t used = <int32_t>lane.used
    cdef int64_t at = row
    cdef int64_t i
    if lane.valid == NULL:
        return False
    for i in range(count):
        ends[i] = used
    while at < row + count:
        if at & 7 == 0 and row + count - at >= 8:
            lane.valid[at >> 3] = 0
            at += 8
        else:
            lane.valid[at >> 3] &= ~(1 << (at & 7))
            at += 1
    lane.nulls += count
    return True


cdef inline bint key_step(Sweep* s, Lane* lane, int64_t count, const Slot* slots, const uint8_t* limit) noexcept nogil:
    """The keys of a step; False, and nothing done, where they do not fit."""
    if not s.wants_key:
        return True
    return copy_step(lane, s.row, count, slots, limit) if s.has_keys else skip_step(lane, s.row, count)


cdef inline bint is_chosen(const Slot* chosen, int64_t count, const uint8_t* key, int32_t size) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        if chosen[i].size == size and memcmp(chosen[i].at, key, <size_t>size) == 0:
            return True
    return False


cdef inline void choose_step(const Sweep* s, int64_t count, const Slot* keys, Slot* values) noexcept nogil:
    """Makes the values of a step empty that are not copied."""
    cdef int64_t i
    for i in range(count):
        if values[i].size > 0 and not is_chosen(s.chosen, s.chosen_count, keys[i].at, keys[i].size):
            values[i].size = 0


cdef inline int64_t sweep_records(Sweep* s, Cursor* c, Lane* key_lane, Lane* value_lane) noexcept nogil:
    """Fills rows from the cursor on, which it moves behind the last record taken; how many these were."""
    cdef Slot keys[STEP]
    cdef Slot values[STEP]
    cdef Lane key_before
    cdef Cursor step
    cdef Sweep next
    cdef int64_t left = s.most
    cdef int64_t count
    cdef int64_t i
    while left > 0:
        step = c[0]
        next = s[0]
        count = read_step(&next, &step, min(left, <int64_t>STEP), keys, values)
        if count == 0 or next.last_delta > s.highest_delta:
            break
        if next.chosen != NULL:
            choose_step(&next, count, keys, values)
        key_before = key_lane[0]
        if not key_step(&next, key_lane, count, keys, c.end):
            break
        if s.wants_value and not copy_step(value_lane, s.row, count, values, c.end):
            key_lane[0] = key_before
            break
        if s.lists != NULL:
            for i in range(count):
                s.lists[s.row + i + 1] = s.headers
        if s.timestamps != NULL and not s.own_time:
            for i in range(count):
                s.timestamps[s.row + i] = s.base_timestamp
        next.row += count
        s[0] = next
        c[0] = step
        left -= count
        if count < STEP:
            break
    return s.most - left


cdef inline int64_t sweep_heads(Sweep* s, Cursor* c) noexcept nogil:
    """Sweep times and offsets alone, like `sweep_records`; the rest of each record is skipped unread."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* start = c.p
    cdef const uint8_t* limit = c.end
    cdef const uint8_t* last_start = c.end - HEAD_BYTES
    cdef int64_t lowest = s.lowest_delta
    cdef int64_t highest = s.highest_delta
    cdef int64_t* offsets = s.offsets + s.row if s.offsets != NULL else NULL
    cdef int64_t* timestamps = s.timestamps + s.row if s.timestamps != NULL else NULL
    cdef int64_t base_offset = s.base_offset
    cdef int64_t base_timestamp = s.base_timestamp
    cdef int64_t most = s.most
    cdef bint rising = s.rising
    cdef bint own_time = s.own_time
    cdef int64_t i = 0
    cdef int64_t delta
    cdef uint32_t size
    cdef uint32_t time
    cdef uint32_t offset
    while i < most and start <= last_start:
        p = start
        kl_prefetch(p + 768)
        size = kl_short(&p)
        end = p + (size >> 1)
        p += 1
        time = kl_short(&p)
        offset = kl_short(&p)
        delta = offset >> 1
        if (size | offset) & 1 or size < 2 * (MIN_RECORD_BYTES - 1) or end > limit or time >= KL_LONG:
            break
        if delta < lowest or delta > highest:
            break
        if rising:
            lowest = delta + 1
        if offsets != NULL:
            offsets[i] = added(base_offset, delta)
        if timestamps != NULL:
            timestamps[i] = added(base_timestamp, <int64_t>(time >> 1) ^ -<int64_t>(time & 1)) if own_time else base_timestamp
        s.last_delta = delta
        i += 1
        start = end
    s.row += i
    c.p = start
    return i
