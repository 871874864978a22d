"""The block of a key index, made from the batches of a segment in one pass: docs/keys.md has its layout."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memset

from kafkalog._core.batch.layout cimport ERR_MEMORY, OK
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.keys.key_layout cimport (
    MARK_RECORDS, PAGE_BYTES, SORTED_FROM, bits_for, bucket_of, directory_bytes, entry_of, tag_of,
)
from kafkalog._core.keys.key_walk cimport KeyWalk

cdef enum:
    FIRST_ROOM = 1024

INDEX_PAGE_BYTES = PAGE_BYTES


cdef int by_number(const void* a, const void* b) noexcept nogil:
    cdef uint64_t first = (<const uint64_t*>a)[0]
    cdef uint64_t second = (<const uint64_t*>b)[0]
    return (first > second) - (first < second)


cdef void sort_entries(uint64_t* entries, int64_t count) noexcept nogil:
    """Sorts a large bucket by tag and offset; one of a single key is in order already."""
    cdef int64_t i
    for i in range(1, count):
        if entries[i] < entries[i - 1]:
            qsort(entries, <size_t>count, sizeof(uint64_t), by_number)
            return


@cython.final
cdef class KeyBuilder(KeyWalk):
    """Gathers the keys of a segment, 12 bytes each, and the places of its batches; `finish` makes them a block.

    secret: 16 bytes, the key of the hash. Offsets of records lie in [base_offset, stop_offset), which is less than
    2^32 long: ValueError. MemoryError.
    """

    cdef uint64_t* hashes
    cdef uint32_t* relatives
    cdef uint64_t* marks
    cdef int64_t room
    cdef int64_t mark_room
    cdef readonly int64_t count
    cdef int64_t mark_count
    cdef int64_t base_offset
    cdef int64_t marked_to          # offset after the last batch that `mark` was told of
    cdef int64_t unmarked           # records since the last mark

    def __cinit__(self, secret, int64_t base_offset, int64_t stop_offset):
        if not 0 <= base_offset <= stop_offset or stop_offset - base_offset > 0xFFFFFFFF:
            raise ValueError(f"a segment with the offsets [{base_offset}, {stop_offset})")
        self.begin(secret, base_offset, stop_offset)
        self.base_offset = self.marked_to = base_offset
        self.unmarked = MARK_RECORDS

    def __dealloc__(self):
        free(self.hashes)
        free(self.relatives)
        free(self.marks)

    cdef int put(self, const uint64_t* hashes, const int64_t* offsets, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t i
        if self.count + count > self.room and not self.grow():
            return ERR_MEMORY
        for i in range(count):
            self.hashes[self.count + i] = hashes[i]
            self.relatives[self.count + i] = <uint32_t>(offsets[i] - self.base_offset)
        self.count += count
        return OK

    cdef bint grow(self) noexcept nogil:
        cdef int64_t wanted = max(2 * self.room, <int64_t>FIRST_ROOM)
        cdef void* hashes = realloc(self.hashes, <size_t>wanted * sizeof(uint64_t))
        if hashes == NULL:
            return False
        self.hashes = <uint64_t*>hashes
        cdef void* relatives = realloc(self.relatives, <size_t>wanted * sizeof(uint32_t))
        if relatives == NULL:
            return False
        self.relatives = <uint32_t*>relatives
        self.room = wanted
        return True

    def mark(self, BatchTable batches not None, Py_ssize_t first, Py_ssize_t last) -> None:
        """Notes where rows `first` up to `last` of a table of the segment lie; their positions are those in the file."""
        cdef Py_ssize_t i
        cdef int64_t count, position
        if first < 0 or last > batches.count or first > last:
            raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
        for i in range(first, last):
            position = batches.rows[i].position
            if self.marked_to - self.base_offset > 0xFFFFFFFF or not 0 <= position <= 0xFFFFFFFF:
                raise ValueError(f"batch {i} of the table lies outside the segment")
            if self.unmarked >= MARK_RECORDS:
                if self.mark_count == self.mark_room and not self.grow_marks():
                    raise MemoryError("no memory for the places of the batches")
                self.marks[self.mark_count] = entry_of(<uint32_t>(self.marked_to - self.base_offset), <uint32_t>position)
                self.mark_count += 1
                self.unmarked = 0
            count = batches.rows[i].count
            self.unmarked += max(count, <int64_t>1)
            self.marked_to = max(self.marked_to, batches.rows[i].last_offset + 1)

    cdef bint grow_marks(self) noexcept nogil:
        cdef int64_t wanted = max(2 * self.mark_room, <int64_t>FIRST_ROOM)
        cdef void* marks = realloc(self.marks, <size_t>wanted * sizeof(uint64_t))
        if marks == NULL:
            return False
        self.marks = <uint64_t*>marks
        self.mark_room = wanted
        return True

    def finish(self) -> tuple[bytes, int, int, int]:
        """(block, entries, bits, marks) of what was gathered, which is then forgotten; the walk may go on."""
        cdef int bits = bits_for(<uint64_t>self.count)
        cdef uint64_t directory = directory_bytes(bits)
        cdef Py_ssize_t size = <Py_ssize_t>(directory + 8 * <uint64_t>(self.count + self.mark_count))
        if self.busy:
            raise RuntimeError("another thread uses this builder")
        self.busy = True
        cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
        cdef char* block = PyBytes_AS_STRING(out)
        with nogil:
            self.fill(<uint32_t*>block, <uint64_t*>(block + directory), bits, directory)
        cdef tuple made = (out, self.count, bits, self.mark_count)
        self.forget()
        self.busy = False
        return made

    cdef void forget(self) noexcept:
        """Begins the next block: its first batch has a mark."""
        free(self.hashes)
        free(self.relatives)
        self.hashes = NULL
        self.relatives = NULL
        self.room = self.count = self.mark_count = 0
        self.unmarked = MARK_RECORDS

    cdef void fill(self, uint32_t* ends, uint64_t* entries, int bits, uint64_t directory) noexcept nogil:
        """Counts the entries of each bucket, lays them out in the order of their offsets, and sorts large buckets."""
        cdef uint64_t buckets = <uint64_t>1 << bits
        cdef uint64_t i, at
        cdef uint32_t before = 0
        cdef uint32_t own
        cdef int64_t n
        memset(ends, 0, <size_t>directory)
        for n in range(self.count):
            ends[bucket_of(self.hashes[n], bits)] += 1
        for i in range(buckets):
            own = ends[i]
            ends[i] = before
            before += own
        for n in range(self.count):
            at = bucket_of(self.hashes[n], bits)
            entries[ends[at]] = entry_of(tag_of(self.hashes[n]), self.relatives[n])
            ends[at] += 1
        # each number is where its bucket ends now: one further on it is where the next one begins
        i = buckets
        while i > 0:
            ends[i] = ends[i - 1]
            i -= 1
        ends[0] = 0
        for i in range(buckets):
            if ends[i + 1] - ends[i] >= SORTED_FROM:
                sort_entries(entries + ends[i], ends[i + 1] - ends[i])
        for n in range(self.mark_count):
            entries[self.count + n] = self.marks[n]
