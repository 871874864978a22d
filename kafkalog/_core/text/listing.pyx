"""The dump tool's text of `.index` and `.timeindex` files: one line for each entry (format.md section 13, A5 and A6)."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kafkalog._core.batch.layout cimport ERR_MEMORY, OK
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.endian cimport load32, load64
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.text.text_buffer cimport TextBuffer, put, put_number, reserve

cdef enum:
    OFFSET_ENTRY = 8            # i32 offset - base, i32 file position
    TIME_ENTRY = 12             # i64 timestamp, i32 offset - base
    LINE_SPACE = 80             # more than any line

OFFSET_ENTRY_BYTES = OFFSET_ENTRY
TIME_ENTRY_BYTES = TIME_ENTRY


cdef int64_t list_offsets(
    TextBuffer text, const uint8_t* p, int64_t count, int64_t base_offset, bint first
) noexcept nogil:
    """Entries printed: all, or those before the unused tail."""
    cdef uint8_t* d = text.out.data + text.out.size
    cdef int64_t i
    for i in range(count):
        if load32(p) == 0 and not (first and i == 0):
            count = i
            break
        d = put_number(put(d, b"offset: ", 8), added(base_offset, load32(p)))
        d = put_number(put(d, b" position: ", 11), load32(p + 4))
        d = put(d, b"\n", 1)
        p += OFFSET_ENTRY
    text.out.size = d - text.out.data
    return count


cdef int64_t list_times(
    TextBuffer text, const uint8_t* p, int64_t count, int64_t base_offset, bint first
) noexcept nogil:
    """Entries printed: all, or those before the unused tail."""
    cdef uint8_t* d = text.out.data + text.out.size
    cdef int64_t i
    for i in range(count):
        if load32(p + 8) == 0 and not (first and i == 0):
            count = i
            break
        d = put_number(put(d, b"timestamp: ", 11), load64(p))
        d = put_number(put(d, b" offset: ", 9), added(base_offset, load32(p + 8)))
        d = put(d, b"\n", 1)
        p += TIME_ENTRY
    text.out.size = d - text.out.data
    return count


def list_entries(text: TextBuffer, buffer, base_offset: int, *, times: bool, first: bool) -> bool:
    """True if the whole buffer was listed into `text`, False if the unused tail of the index begins in it.

    buffer: whole entries of an offset index, or of a time index where `times` is set; `first` when it begins with the
    index's entry 0. The tail begins at the first other entry whose relative offset is 0.
    """
    cdef TextBuffer target = text
    cdef Held held = hold(buffer)
    cdef bint of_times = times
    cdef bint at_start = first
    cdef int64_t base = base_offset
    cdef int64_t count = held.size // (TIME_ENTRY if of_times else OFFSET_ENTRY)
    cdef int64_t listed = 0
    cdef int status
    target.begin()
    with nogil:
        status = reserve(&target.out, <uint64_t>count * LINE_SPACE)
        if status == OK:
            if of_times:
                listed = list_times(target, held.data, count, base, at_start)
            else:
                listed = list_offsets(target, held.data, count, base, at_start)
    target.end()
    if status == ERR_MEMORY:
        raise MemoryError
    return listed == count
