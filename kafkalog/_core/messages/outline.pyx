"""The outline of a Produce: what a test's faults look at, without what differs from one request to the next."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from kafkalog._core.batch.layout cimport ERR_SHORT, OK
from kafkalog._core.bytes.buffers cimport take_view
from kafkalog._core.bytes.cursor cimport Cursor, skip, take_uvarint
from kafkalog._core.bytes.endian cimport load16, load32
from kafkalog._core.messages.fields cimport UUID_BYTES

cdef enum:
    PRODUCE = 0
    OUTLINE_BYTES = 1024
    MOST_WANTED = 16
    MOST_PASSED = 1024
    MOST_PARTITION = 0x7FFFFFFF

cdef struct Outline:
    uint8_t data[OUTLINE_BYTES]
    Py_ssize_t size


cdef inline int keep(Outline* o, const uint8_t* begin, Py_ssize_t size) noexcept nogil:
    if size > OUTLINE_BYTES - o.size:
        return ERR_SHORT
    memcpy(o.data + o.size, begin, <size_t>size)
    o.size += size
    return OK


cdef inline int pass_sized(Cursor* c, bint is_flexible, bint is_short) noexcept nogil:
    """Moves behind a text or bytes, null ones too."""
    cdef uint32_t size = 0
    cdef int64_t given
    if is_flexible:
        if take_uvarint(c, &size) != OK:
            return ERR_SHORT
        return skip(c, <int64_t>size - 1 if size else 0)
    if skip(c, 2 if is_short else 4) != OK:
        return ERR_SHORT
    given = load16(c.p - 2) if is_short else load32(c.p - 4)
    return skip(c, given if given > 0 else 0)


cdef inline int64_t take_count(Cursor* c, bint is_flexible) noexcept nogil:
    cdef uint32_t count = 0
    if is_flexible:
        if take_uvarint(c, &count) != OK:
            return -1
        return <int64_t>count - 1
    return load32(c.p - 4) if skip(c, 4) == OK else -1


cdef inline int pass_no_tags(Cursor* c, bint is_flexible) noexcept nogil:
    if not is_flexible:
        return OK
    return ERR_SHORT if c.p >= c.end or c.p[0] else skip(c, 1)


cdef int take_outline(
    Cursor* c, Outline* o, int first_flexible, int first_by_id, const int32_t* wanted, int count
) noexcept nogil:
    cdef const uint8_t* begin
    cdef int64_t topics, partitions
    cdef uint16_t found
    cdef int i
    cdef bint is_flexible, is_by_id
    if c.end - c.p < 10:
        return ERR_SHORT
    if load16(c.p) != PRODUCE:
        return ERR_SHORT
    is_flexible, is_by_id = load16(c.p + 2) >= first_flexible, load16(c.p + 2) >= first_by_id
    keep(o, c.p + 2, 2)
    begin = c.p + 8
    skip(c, 8)
    if pass_sized(c, False, True) != OK or pass_no_tags(c, is_flexible) != OK:
        return ERR_SHORT
    if pass_sized(c, is_flexible, True) != OK or keep(o, begin, c.p - begin) != OK or skip(c, 6) != OK:
        return ERR_SHORT            # behind the transactional id come acks and a timeout
    topics = take_count(c, is_flexible)
    while topics > 0:
        topics -= 1
        begin = c.p
        if (skip(c, UUID_BYTES) if is_by_id else pass_sized(c, is_flexible, True)) != OK:
            return ERR_SHORT
        if keep(o, begin, c.p - begin) != OK:
            return ERR_SHORT
        partitions, found = take_count(c, is_flexible), 0
        while partitions > 0:
            partitions -= 1
            if skip(c, 4) != OK:
                return ERR_SHORT
            for i in range(count):
                if wanted[i] == load32(c.p - 4):
                    found |= <uint16_t>(1 << i)
            if pass_sized(c, is_flexible, False) != OK or pass_no_tags(c, is_flexible) != OK:
                return ERR_SHORT
        if partitions < 0 or pass_no_tags(c, is_flexible) != OK or keep(o, <const uint8_t*>&found, 2) != OK:
            return ERR_SHORT
    return OK if topics == 0 else ERR_SHORT


@cython.final
cdef class PassedProduces:
    """The Produce requests that passed, by their outlines: `frame in passed` for one of those.

    An outline has the version, client, transactional id and topics, and for each topic a bit for each of the `wanted`
    partitions. A request has none if that is long, it has tags, is malformed, or more than 16 partitions are wanted.
    """
    cdef set outlines
    cdef bytes last
    cdef Py_ssize_t last_size
    cdef int first_flexible
    cdef int first_by_id
    cdef Py_ssize_t count
    cdef int32_t wanted[MOST_WANTED]

    def __cinit__(self, int first_flexible, int first_by_id, wanted):
        cdef Py_ssize_t i
        self.outlines, self.last, self.last_size = set(), b"", 0
        self.first_flexible, self.first_by_id = first_flexible, first_by_id
        numbers = tuple(one for one in wanted if 0 <= one <= MOST_PARTITION)
        self.count = len(numbers)
        if self.count <= MOST_WANTED:
            for i in range(self.count):
                self.wanted[i] = numbers[i]

    def __contains__(self, frame):
        cdef Outline o
        if not self.read_outline(frame, &o):
            return False
        if o.size == self.last_size and memcmp(o.data, <const char*>self.last, <size_t>o.size) == 0:
            return True             # most requests are like the one before
        outline = PyBytes_FromStringAndSize(<const char*>o.data, o.size)
        if outline not in self.outlines:
            return False
        self.last, self.last_size = outline, o.size
        return True

    def add(self, bytes outline not None):
        """Let requests with this outline pass; all others that passed are forgotten if there are too many."""
        if len(self.outlines) >= MOST_PASSED:
            self.outlines.clear()
            self.last, self.last_size = b"", 0
        self.outlines.add(outline)

    def outline(self, frame):
        """The outline of a request, or None."""
        cdef Outline o
        return PyBytes_FromStringAndSize(<const char*>o.data, o.size) if self.read_outline(frame, &o) else None

    cdef bint read_outline(self, frame, Outline* o) except -1:
        cdef Py_buffer view
        cdef Cursor c
        cdef int status = ERR_SHORT
        o.size = 0
        kept = take_view(frame, &view)
        c.p = <const uint8_t*>view.buf
        c.end = c.p + view.len
        if self.count <= MOST_WANTED:
            status = take_outline(&c, o, self.first_flexible, self.first_by_id, self.wanted, <int>self.count)
        if kept is None:
            PyBuffer_Release(&view)
        return status == OK
