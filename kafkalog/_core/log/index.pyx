"""Look-ups in the entries of `.index` and `.timeindex` files (format.md section 7), one at a time and for whole arrays.

An Entries object reads a buffer, or owned memory once it is added to, and only the first `count` entries. Its owner may
swap the buffer or lower the count while other threads search: a search that runs without the GIL is waited for first. So
when `attach`, `add`, `fit` and the setter of the count return, no search reads the old memory or an entry past the new
count.
"""
cimport cython
from cpython.buffer cimport (
    Py_buffer, PyBUF_FORMAT, PyBUF_ND, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kafkalog._core.bytes.buffers cimport Held, column, hold, take_view
from kafkalog._core.bytes.endian cimport load32, load64, store32, store64
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.log.search cimport (
    BY_OFFSET, BY_POSITION, BY_TIME, BY_TIME_OFFSET, LANES, OFFSET_ENTRY, TIME_ENTRY, count_at_most,
    count_at_most_lanes, count_at_most_warm, minus,
)
from kafkalog._core.log.values cimport offset_position, timestamp_offset

from array import array

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    MOST = 0x7FFFFFFF       # of a relative offset, and of a position
    CHUNK = 8192            # look-ups of an array between two looks at what the owner changed
    RELEASE_GIL_AT = 128    # look-ups that take as long as giving the GIL up is worth
    LEAST_ROOM = 512        # bytes of memory that the first entry added takes
    APART = 8192            # bytes between two entries: an index interval (4096) and a batch that is not worth skipping


@cython.no_gc_clear                 # the collector would drop the buffer's owner without releasing it
cdef class Entries:
    """Base of both kinds of entries; the first `count` entries are read."""
    cdef Py_buffer view
    cdef object own                     # a memoryview whose bytes these are, where the buffer is one
    cdef bint held
    cdef bint is_open
    cdef const uint8_t* data
    cdef uint8_t* mine                  # owned memory, to which `data` then points; NULL while a buffer is read
    cdef Py_ssize_t room                # bytes that `data` has
    cdef Py_ssize_t size                # bytes of one entry
    cdef Py_ssize_t used
    cdef int phase
    cdef int searching[2]               # searches without the GIL, by the phase they began in
    cdef object closed_error
    cdef readonly int64_t base_offset

    def __init__(self, buffer, int64_t base_offset, Py_ssize_t count):
        if self.size == 0 or base_offset < 0:
            raise ValueError(f"make OffsetEntries or TimeEntries, with a base offset of at least 0, not {base_offset}")
        self.base_offset = base_offset
        self.attach(buffer, count)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)
        free(self.mine)

    cdef int check(self) except -1:
        if not self.is_open:
            raise ValueError("the index is closed") if self.closed_error is None else self.closed_error()
        return 0

    cdef void wait(self) noexcept:
        """Returns when every search that runs without the GIL began after this call."""
        cdef int before = self.phase
        self.phase = 1 - before
        while self.searching[before]:
            with nogil:
                usleep(20)

    @cython.critical_section
    def attach(self, buffer, Py_ssize_t count):
        """Read `count` entries of `buffer` from now on; the old buffer is released. Reopens what was closed.

        ValueError when the buffer is too short for them: the old one stays.
        """
        cdef Py_buffer view
        if self.size == 0:
            raise ValueError("make OffsetEntries or TimeEntries")
        own = take_view(buffer, &view)
        if count < 0 or view.len // self.size < count:
            PyBuffer_Release(&view)
            raise ValueError(f"{view.len} bytes do not hold {count} entries of {self.size}")
        self._read(<const uint8_t*>view.buf, view.len, count, &view, own, NULL)

    cdef int _read(self, const uint8_t* data, Py_ssize_t room, Py_ssize_t count, Py_buffer* view, object own,
                   uint8_t* mine) except -1:
        """Read `room` bytes at `data` from now on, those of `view` or `mine`, and free the old memory."""
        cdef Py_buffer old = self.view
        cdef bint had = self.held
        cdef uint8_t* was_mine = self.mine
        before = self.own
        if view == NULL:
            memset(&self.view, 0, sizeof(Py_buffer))    # the garbage collector looks at its object, which is given back
        else:
            self.view = view[0]
        self.own = own
        self.held = view != NULL
        self.mine = mine
        self.data = data
        self.room = room
        self.is_open = view != NULL or mine != NULL
        self.used = count
        self.wait()                 # lets other threads in, one of which may call `attach`
        if had:
            PyBuffer_Release(&old)
        free(was_mine)
        del before                  # no search reads it now
        return 0

    @cython.critical_section
    def add(self, bytes entries not None):
        """Append whole entries, in owned memory that holds a copy of all entries."""
        self.check()
        cdef Py_ssize_t start = self.used * self.size
        cdef Py_ssize_t more = len(entries)
        if more > self.room - start or self.mine == NULL:
            self._copy(max(2 * start, start + more, <Py_ssize_t>LEAST_ROOM))
        memcpy(self.mine + start, PyBytes_AS_STRING(entries), more)
        self.used += more // self.size

    @cython.critical_section
    def fit(self):
        """Free the memory after the last entry."""
        self.check()
        if self.room > self.used * self.size + LEAST_ROOM:
            self._copy(self.used * self.size)

    cdef int _copy(self, Py_ssize_t room) except -1:
        cdef uint8_t* mine = <uint8_t*>malloc(room if room else 1)
        if mine == NULL:
            raise MemoryError(f"no {room} bytes for the entries of an index")
        memcpy(mine, self.data, self.used * self.size)
        self._read(mine, room, self.used, NULL, None, mine)
        return 0

    @cython.critical_section
    def packed_bytes(self, Py_ssize_t count) -> bytes:
        """The first `count` entries as they are in the file; ValueError where there are fewer."""
        self.check()
        if not 0 <= count <= self.used:
            raise ValueError(f"no {count} entries: there are {self.used}")
        return self.data[:count * self.size]

    @property
    @cython.critical_section
    def memory_bytes(self) -> int:
        """The bytes of memory that the entries take."""
        return self.room

    @cython.critical_section
    def close(self, closed_error=None):
        """Give the memory back; every later use raises what `closed_error()` returns, by default a ValueError."""
        self.closed_error = closed_error
        self._read(NULL, 0, 0, NULL, None, NULL)

    @property
    def closed(self):
        """True after `close()`."""
        return not self.is_open

    @property
    @cython.critical_section
    def count(self):
        """The number of entries; set by the owner, to at most what the buffer holds (ValueError)."""
        self.check()
        return self.used

    @count.setter
    @cython.critical_section
    def count(self, Py_ssize_t count):
        self.check()
        if count < 0 or self.room // self.size < count:
            raise ValueError(f"{self.room} bytes do not hold {count} entries of {self.size}")
        cdef bint fewer = count < self.used
        self.used = count
        if fewer:
            self.wait()

    cdef int _check_slot(self, Py_ssize_t n) except -1:
        self.check()
        if n < 0 or n >= self.used:
            raise IndexError(f"no entry {n}: there are {self.used}")
        return 0

    cdef void _find(self, const uint8_t* data, Py_ssize_t n, const int64_t* targets, Py_ssize_t many, int64_t* first,
                    int64_t* second) noexcept nogil:
        pass

    def lookup_many(self, targets):
        """Return the results of `lookup` for all `targets` as two columns of int64; the GIL is released.

        `targets`: a contiguous buffer of native int64 (an array, a NumPy array), or an iterable of int. Each target is
        looked up in the index as it is at that moment. TypeError for a buffer of another type.
        """
        cdef Py_buffer view
        if not PyObject_CheckBuffer(targets):
            targets = array("q", targets)
        PyObject_GetBuffer(targets, &view, PyBUF_FORMAT | PyBUF_ND)
        try:
            if view.itemsize != 8 or view.format == NULL or view.format[0] not in b"ql" or view.format[1] != 0:
                raise TypeError("targets must be 64-bit integers")
            if view.len > 0 and <size_t>view.buf & 7:
                return self.lookup_many(array("q", memoryview(targets).tobytes()))  # not where an int64 may lie
            return self._lookup_all(<const int64_t*>view.buf, view.len // 8)
        finally:
            PyBuffer_Release(&view)

    @cython.critical_section
    cdef tuple _lookup_all(self, const int64_t* targets, Py_ssize_t many):
        first = PyBytes_FromStringAndSize(NULL, 8 * many)
        second = PyBytes_FromStringAndSize(NULL, 8 * many)
        cdef int64_t* a = <int64_t*>PyBytes_AS_STRING(first)
        cdef int64_t* b = <int64_t*>PyBytes_AS_STRING(second)
        cdef Py_ssize_t done = 0, part, n
        cdef const uint8_t* data
        cdef int phase
        self.check()
        while done < many:
            self.check()
            data, n, phase = self.data, self.used, self.phase
            part = min(many - done, <Py_ssize_t>CHUNK)
            if part < RELEASE_GIL_AT:
                self._find(data, n, targets + done, part, a + done, b + done)
            else:
                self.searching[phase] += 1
                with nogil:
                    self._find(data, n, targets + done, part, a + done, b + done)
                self.searching[phase] -= 1
            done += part
        return column(first, a, many, 8, c"q"), column(second, b, many, 8, c"q")


@cython.final
@cython.no_gc_clear
cdef class OffsetEntries(Entries):
    """Entries of an `.index`: i32 offset - base, i32 position of the batch in the segment file."""

    def __cinit__(self, *args):
        self.size = OFFSET_ENTRY

    @cython.critical_section
    def lookup(self, int64_t target):
        """The last entry whose offset is <= target, as OffsetPosition; (base offset, 0) where there is none (IDX-2)."""
        self.check()
        cdef Py_ssize_t n = count_at_most_warm(self.data, self.used, minus(target, self.base_offset), BY_OFFSET)
        return self._entry(n - 1) if n else offset_position(self.base_offset, 0)

    @cython.critical_section
    def window(self, int64_t target) -> tuple[int, int]:
        """(position, bytes) of the stretch of the file in which the batch with offset `target` lies, by these entries.

        It begins with a batch and ends with one; 0 bytes where no entry behind it says how far it goes. Between two
        entries that lie more than `APART` bytes apart there is usually one batch, which ends with the first entry: then
        the stretch begins at the second one, and is without the target where smaller batches lie between them.
        """
        self.check()
        cdef Py_ssize_t n = count_at_most_warm(self.data, self.used, minus(target, self.base_offset), BY_OFFSET)
        cdef int64_t start = self._position(n - 1) if n else 0
        cdef int64_t end = self._position(n) if n < self.used else start
        if n and added(self.base_offset, load32(self.data + OFFSET_ENTRY * (n - 1))) == target:
            return start, end - start           # the last offset of the batch there
        if n and end - start > APART:
            start = end
        if n < self.used:
            end = self._position(n + 1) if n + 1 < self.used else start
        return start, end - start

    @cython.critical_section
    def upper_bound(self, int64_t position):
        """The first entry whose position is >= position, or None (IDX-7).

        If the first entry has just this position, return the second one, as the search of the reference does.
        """
        self.check()
        cdef Py_ssize_t n = count_at_most(self.data, self.used, minus(position, 1), BY_POSITION)
        if n == 0 and self.used and self._position(0) == position:
            n = 1
        return self._entry(n) if n < self.used else None

    @cython.critical_section
    def entry(self, Py_ssize_t n):
        """Entry n, from 0, as OffsetPosition; IndexError outside 0..count-1."""
        self._check_slot(n)
        return self._entry(n)

    @cython.critical_section
    def count_below(self, int64_t offset):
        """Return the number of entries with an offset lower than this."""
        self.check()
        return count_at_most(self.data, self.used, minus(minus(offset, self.base_offset), 1), BY_OFFSET)

    @cython.critical_section
    def packed(self, list new_entries not None, int64_t last_offset) -> bytes | None:
        """The entries that a write brings, as `AppendPlan.entries` has them, in the form they have in the file.

        None where one cannot be added, after one of `last_offset` and those before it.
        """
        cdef bytes out = PyBytes_FromStringAndSize(NULL, OFFSET_ENTRY * len(new_entries))
        cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(out)
        cdef int64_t offset, position
        for entry in new_entries:
            offset, position = entry[0], entry[1]
            if offset <= last_offset or not 0 <= minus(offset, self.base_offset) <= MOST or not 0 <= position <= MOST:
                return None
            store32(p, <int32_t>minus(offset, self.base_offset))
            store32(p + 4, <int32_t>position)
            p += OFFSET_ENTRY
            last_offset = offset
        return out

    cdef int64_t _position(self, Py_ssize_t n) noexcept:
        return load32(self.data + OFFSET_ENTRY * n + 4)

    cdef object _entry(self, Py_ssize_t n):
        cdef const uint8_t* p = self.data + OFFSET_ENTRY * n
        return offset_position(added(self.base_offset, load32(p)), load32(p + 4))

    cdef void _find(self, const uint8_t* data, Py_ssize_t n, const int64_t* targets, Py_ssize_t many, int64_t* first,
                    int64_t* second) noexcept nogil:
        cdef Py_ssize_t found[LANES]
        cdef Py_ssize_t at = 0, lane, lanes
        cdef bint is_even = True
        while at < many:
            lanes = min(many - at, <Py_ssize_t>LANES)
            if lanes == LANES:
                count_at_most_lanes(data, n, targets + at, self.base_offset, BY_OFFSET, found, &is_even)
            else:
                for lane in range(lanes):
                    found[lane] = count_at_most_warm(data, n, minus(targets[at + lane], self.base_offset), BY_OFFSET)
            for lane in range(lanes):
                if found[lane]:
                    first[at + lane] = added(self.base_offset, load32(data + OFFSET_ENTRY * (found[lane] - 1)))
                    second[at + lane] = load32(data + OFFSET_ENTRY * (found[lane] - 1) + 4)
                else:
                    first[at + lane] = self.base_offset
                    second[at + lane] = 0
            at += lanes


@cython.final
@cython.no_gc_clear
cdef class TimeEntries(Entries):
    """Entries of a `.timeindex`: i64 timestamp in ms, i32 offset - base."""

    def __cinit__(self, *args):
        self.size = TIME_ENTRY

    @cython.critical_section
    def lookup(self, int64_t target):
        """The last entry whose timestamp is <= target, as TimestampOffset; (-1, base offset) where none is (TIDX-1)."""
        self.check()
        cdef Py_ssize_t n = count_at_most_warm(self.data, self.used, target, BY_TIME)
        return self._entry(n - 1) if n else timestamp_offset(-1, self.base_offset)

    @cython.critical_section
    def entry(self, Py_ssize_t n):
        """Entry n, from 0, as TimestampOffset; IndexError outside 0..count-1."""
        self._check_slot(n)
        return self._entry(n)

    @cython.critical_section
    def count_below(self, int64_t offset):
        """Return the number of entries with an offset lower than this."""
        self.check()
        return count_at_most(self.data, self.used, minus(minus(offset, self.base_offset), 1), BY_TIME_OFFSET)

    @cython.critical_section
    def packed(self, list new_entries not None, int64_t last_timestamp, int64_t last_offset) -> bytes | None:
        """As that of OffsetEntries; what brings no time (-1) has no entry here."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, TIME_ENTRY * len(new_entries))
        cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(out)
        cdef int64_t timestamp, offset
        for entry in new_entries:
            timestamp, offset = entry[2], entry[3]
            if timestamp < 0:
                continue
            if timestamp <= last_timestamp or offset < last_offset or not 0 <= minus(offset, self.base_offset) <= MOST:
                return None
            store64(p, timestamp)
            store32(p + 8, <int32_t>minus(offset, self.base_offset))
            p += TIME_ENTRY
            last_timestamp, last_offset = timestamp, offset
        return out[:p - <uint8_t*>PyBytes_AS_STRING(out)]

    cdef object _entry(self, Py_ssize_t n):
        cdef const uint8_t* p = self.data + TIME_ENTRY * n
        return timestamp_offset(load64(p), added(self.base_offset, load32(p + 8)))

    cdef void _find(self, const uint8_t* data, Py_ssize_t n, const int64_t* targets, Py_ssize_t many, int64_t* first,
                    int64_t* second) noexcept nogil:
        cdef Py_ssize_t found[LANES]
        cdef Py_ssize_t at = 0, lane, lanes
        cdef bint is_even = True
        while at < many:
            lanes = min(many - at, <Py_ssize_t>LANES)
            if lanes == LANES:
                count_at_most_lanes(data, n, targets + at, 0, BY_TIME, found, &is_even)
            else:
                for lane in range(lanes):
                    found[lane] = count_at_most_warm(data, n, targets[at + lane], BY_TIME)
            for lane in range(lanes):
                if found[lane]:
                    first[at + lane] = load64(data + TIME_ENTRY * (found[lane] - 1))
                    second[at + lane] = added(self.base_offset, load32(data + TIME_ENTRY * (found[lane] - 1) + 8))
                else:
                    first[at + lane] = -1
                    second[at + lane] = self.base_offset
            at += lanes


def growing_offset_entries(buffer, int64_t relative=-1, int64_t position=-1):
    """Return the number of entries at the start of `buffer` that rise in relative offset and position from these values.

    The end of a preallocated `.index` cannot be found by its length; it is where the entries stop growing. An
    entry of zeros is never one: a batch at position 0 gets none.
    """
    cdef Held held = hold(buffer)
    cdef Py_ssize_t n = held.size // OFFSET_ENTRY
    cdef Py_ssize_t i
    cdef int32_t offset, at
    for i in range(n):
        offset = load32(held.data + OFFSET_ENTRY * i)
        at = load32(held.data + OFFSET_ENTRY * i + 4)
        if offset <= relative or at <= position or (offset == 0 and at == 0):
            return i
        relative, position = offset, at
    return n


def growing_time_entries(buffer, int64_t timestamp=-1, int64_t relative=-1):
    """Return the number of entries at the start of `buffer` that rise in timestamp and do not fall in relative offset.

    As `growing_offset_entries`, for a `.timeindex`: two entries may share an offset. An entry of zeros, of a first
    record at time 0, is one only if an entry with a later time follows it; else it may as well be free space.
    """
    cdef Held held = hold(buffer)
    cdef Py_ssize_t n = held.size // TIME_ENTRY
    cdef bint may_begin_with_zeros = (
        timestamp == -1 and n > 1 and load64(held.data + TIME_ENTRY) > 0 and load32(held.data + TIME_ENTRY + 8) >= 0
    )
    cdef Py_ssize_t i
    cdef int64_t time
    cdef int32_t offset
    for i in range(n):
        time = load64(held.data + TIME_ENTRY * i)
        offset = load32(held.data + TIME_ENTRY * i + 8)
        if time <= timestamp or offset < relative or offset < 0:
            return i
        if time == 0 and offset == 0 and not may_begin_with_zeros:
            return i
        timestamp, relative = time, offset
    return n
