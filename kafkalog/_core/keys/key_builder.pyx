"""The block of a key index, made from the batches of a segment in one pass: docs/keys.md has its layout."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memset

from kafkalog._core.batch.layout cimport ERR_MEMORY, OK
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.large_pages cimport kl_want_huge
from kafkalog._core.bytes.prefetch cimport kl_prefetch_to_write
from kafkalog._core.keys.key_layout cimport (
    MARK_RECORDS, PAGE_BYTES, SORTED_FROM, bits_for, bucket_of_high, directory_bytes, entry_of, relative_of, tag_of,
)
from kafkalog._core.keys.key_walk cimport KeyWalk, check_unused

cdef enum:
    FIRST_ROOM = 64                 # keys in the first chunk of a stream; each is twice as large as the one before
    MOST_ROOM = 5400                # ... up to these
    FIRST_SLAB = 64 << 10
    LARGEST_SLAB = 8 << 20
    FIRST_MARKS = 1024
    STREAMS = 256                   # by the first byte of the hash, so that each one's part of a block fits the cache
    STREAM_BITS = 8
    AHEAD = 6                       # keys of a stream from one line of memory to the next

cdef struct Gathered:
    uint32_t high                   # half of the hash, of which the first bits choose the bucket
    uint32_t tag
    uint32_t relative

cdef struct Chunk:                  # the keys follow
    Chunk* next
    int64_t count                   # of a stream's last one, `count_last` sets it
    int64_t room

cdef struct Stream:
    Gathered* at                    # where the next key goes
    Gathered* end                   # of the last chunk
    Chunk* first
    Chunk* last

cdef struct Slab:                   # memory for chunks, which follow
    Slab* before
    int64_t used
    int64_t size

INDEX_PAGE_BYTES = PAGE_BYTES


cdef int by_number(const void* a, const void* b) noexcept nogil:
    cdef uint64_t first = (<const uint64_t*>a)[0]
    cdef uint64_t second = (<const uint64_t*>b)[0]
    return (first > second) - (first < second)


cdef void sort_by_offset(uint64_t* entries, int64_t count) noexcept nogil:
    """Sorts a small bucket, of several streams, by offset."""
    cdef int64_t i, at
    cdef uint64_t one
    for i in range(1, count):
        one = entries[i]
        at = i
        while at > 0 and relative_of(entries[at - 1]) > relative_of(one):
            entries[at] = entries[at - 1]
            at -= 1
        entries[at] = one


cdef void sort_entries(uint64_t* entries, int64_t count) noexcept nogil:
    """Sorts a large bucket by tag and offset; one of a single key is in order already."""
    cdef int64_t i
    for i in range(1, count):
        if entries[i] < entries[i - 1]:
            qsort(entries, <size_t>count, sizeof(uint64_t), by_number)
            return


cdef inline Gathered* items_of(Chunk* chunk) noexcept nogil:
    return <Gathered*>(chunk + 1)


cdef inline void count_last(Stream* stream) noexcept nogil:
    """Sets how many keys the last chunk has; each one before it is full."""
    if stream.last != NULL:
        stream.last.count = stream.at - items_of(stream.last)


@cython.final
cdef class KeyBuilder(KeyWalk):
    """Gathers the keys of a segment, 12 bytes each, and the places of its batches; `finish` makes them a block.

    secret: 16 bytes, the key of the hash. Offsets of records lie in [base_offset, stop_offset), which is less than
    2^32 long: ValueError. MemoryError.
    """

    cdef Stream streams[STREAMS]
    cdef Slab* slab
    cdef uint64_t* marks
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
        self.forget()
        free(self.marks)

    cdef int put(self, const uint64_t* hashes, const int64_t* offsets, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t i
        cdef Stream* stream
        cdef Gathered* item
        for i in range(count):
            stream = &self.streams[hashes[i] >> (64 - STREAM_BITS)]
            if stream.at == stream.end and not self.add_chunk(stream):
                return ERR_MEMORY
            item = stream.at
            stream.at += 1
            kl_prefetch_to_write(item + AHEAD)
            item.high = <uint32_t>(hashes[i] >> 32)
            item.tag = tag_of(hashes[i])
            item.relative = <uint32_t>(offsets[i] - self.base_offset)
        self.count += count
        return OK

    cdef bint add_chunk(self, Stream* stream) noexcept nogil:
        """Give a stream its next chunk; False without memory."""
        cdef int64_t room = FIRST_ROOM if stream.last == NULL else min(2 * stream.last.room, <int64_t>MOST_ROOM)
        cdef int64_t size = sizeof(Chunk) + (room * <int64_t>sizeof(Gathered) + 7) // 8 * 8
        cdef Chunk* chunk
        if (self.slab == NULL or self.slab.used + size > self.slab.size) and not self.add_slab():
            return False
        chunk = <Chunk*>(<char*>self.slab + self.slab.used)
        self.slab.used += size
        chunk.next, chunk.count, chunk.room = NULL, room, room
        if stream.last == NULL:
            stream.first = chunk
        else:
            stream.last.next = chunk
        stream.last = chunk
        stream.at = items_of(chunk)
        stream.end = stream.at + room
        return True

    cdef bint add_slab(self) noexcept nogil:
        cdef int64_t size = FIRST_SLAB if self.slab == NULL else min(2 * self.slab.size, <int64_t>LARGEST_SLAB)
        cdef Slab* slab = <Slab*>malloc(<size_t>size)
        if slab == NULL:
            return False
        kl_want_huge(slab, <size_t>size)
        slab.before, slab.used, slab.size = self.slab, sizeof(Slab), size
        self.slab = slab
        return True

    @cython.critical_section
    def mark(self, BatchTable batches not None, Py_ssize_t first, Py_ssize_t last) -> None:
        """Notes where rows `first` up to `last` of a table of the segment lie; their positions are those in the file."""
        cdef Py_ssize_t i
        cdef int64_t count, position
        check_unused(self)
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
        cdef int64_t wanted = max(2 * self.mark_room, <int64_t>FIRST_MARKS)
        cdef void* marks = realloc(self.marks, <size_t>wanted * sizeof(uint64_t))
        if marks == NULL:
            return False
        self.marks = <uint64_t*>marks
        self.mark_room = wanted
        return True

    @cython.critical_section
    def finish(self) -> tuple[bytes, int, int, int]:
        """(block, entries, bits, marks) of what was gathered, which is then forgotten; the walk may go on."""
        cdef int bits = bits_for(<uint64_t>self.count)
        cdef uint64_t directory = directory_bytes(bits)
        cdef Py_ssize_t size = <Py_ssize_t>(directory + 8 * <uint64_t>(self.count + self.mark_count))
        check_unused(self)
        self.busy = True
        cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
        cdef char* block = PyBytes_AS_STRING(out)
        kl_want_huge(block, <size_t>size)
        with nogil:
            self.fill(<uint32_t*>block, <uint64_t*>(block + directory), bits, directory)
        cdef tuple made = (out, self.count, bits, self.mark_count)
        self.forget()
        self.busy = False
        return made

    cdef void forget(self) noexcept:
        """Begins the next block: its first batch has a mark."""
        cdef Slab* before
        while self.slab != NULL:
            before = self.slab.before
            free(self.slab)
            self.slab = before
        memset(self.streams, 0, sizeof(self.streams))
        self.count = self.mark_count = 0
        self.unmarked = MARK_RECORDS

    cdef void fill(self, uint32_t* ends, uint64_t* entries, int bits, uint64_t directory) noexcept nogil:
        """Counts the entries of each bucket, lays them out in the order of their offsets, and sorts large buckets."""
        cdef uint64_t buckets = <uint64_t>1 << bits
        cdef uint64_t i
        cdef uint32_t before = 0
        cdef uint32_t own
        cdef int64_t n
        memset(ends, 0, <size_t>directory)
        for n in range(STREAMS):
            count_last(&self.streams[n])
            self.count_entries(&self.streams[n], ends, bits)
        for i in range(buckets):
            own = ends[i]
            ends[i] = before
            before += own
        for n in range(STREAMS):
            self.place_entries(&self.streams[n], ends, entries, bits)
        # each number is where its bucket ends now: one further on it is where the next one begins
        i = buckets
        while i > 0:
            ends[i] = ends[i - 1]
            i -= 1
        ends[0] = 0
        for i in range(buckets):
            if ends[i + 1] - ends[i] >= SORTED_FROM:
                sort_entries(entries + ends[i], ends[i + 1] - ends[i])
            elif bits < STREAM_BITS:
                sort_by_offset(entries + ends[i], ends[i + 1] - ends[i])
        for n in range(self.mark_count):
            entries[self.count + n] = self.marks[n]

    cdef void count_entries(self, const Stream* stream, uint32_t* counts, int bits) noexcept nogil:
        cdef Chunk* chunk = stream.first
        cdef const Gathered* items
        cdef int64_t n
        while chunk != NULL:
            items = items_of(chunk)
            for n in range(chunk.count):
                counts[bucket_of_high(items[n].high, bits)] += 1
            chunk = chunk.next

    cdef void place_entries(self, const Stream* stream, uint32_t* ends, uint64_t* entries, int bits) noexcept nogil:
        cdef Chunk* chunk = stream.first
        cdef const Gathered* items
        cdef int64_t n
        cdef uint64_t at
        while chunk != NULL:
            items = items_of(chunk)
            for n in range(chunk.count):
                at = bucket_of_high(items[n].high, bits)
                entries[ends[at]] = entry_of(items[n].tag, items[n].relative)
                ends[at] += 1
            chunk = chunk.next
