"""The search in the key index of a segment: a page is read and checked when it is first needed, and kept.

What a page says is never trusted beyond its checksum: each number is compared with its limits before it is used.
"""
cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kafkalog._core.batch.sections cimport SectionTable
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.large_pages cimport kl_want_huge
from kafkalog._core.bytes.prefetch cimport kl_prefetch
from kafkalog._core.keys.key_layout cimport (
    MOST_BITS, PAGE_BYTES, SORTED_FROM, bits_for, bucket_of, directory_bytes, entry_of, relative_of, tag_of,
)
from kafkalog._core.keys.key_pages cimport KeyPages, bytes_at, has_page, load_area
from kafkalog._core.keys.key_walk cimport NO_OFFSET

cdef enum:
    LINE_BYTES = 64
    NOT_SMALL = 0xFFFF              # no number of entries in a small bucket
    GROUP = 32                      # keys whose pages are on their way into the cache together
    PART_SHIFT = 64 - 11
    PARTS = 1 << 11
    ORDERED_FROM = 4096             # hashes that are put in order first

IS_DAMAGED = DAMAGED_INDEX
MOST_BLOCK_BITS = MOST_BITS


def bucket_bits(uint64_t entries) -> int:
    """The number of bits of a hash that choose the bucket, in a block with so many entries."""
    return bits_for(entries)


def block_bytes(uint64_t entries, int bits, uint64_t marks) -> int:
    """The size of a block."""
    return directory_bytes(bits) + 8 * (entries + marks)


@cython.final
cdef class KeyIndex(KeyPages):
    """The blocks of one file, with `pages_bytes` of pages from `pages_at` on; `checksums` are those of the pages.

    read: returns `size` bytes of the file from a position, fewer at its end. blocks: (entries, bits, marks) of each, one
    behind the other, with rising offsets. A search gives IS_DAMAGED where a page does not match its checksum, holds
    numbers beyond their limits, or cannot be read: `error` then has the reason if `read` raised one. Threads: any.
    ValueError for sizes that do not fit together.
    """

    def __cinit__(
        self, read, *, uint64_t pages_at, uint64_t pages_bytes, bytes checksums not None, list blocks not None,
        int64_t base_offset, int64_t next_offset, int64_t segment_bytes,
    ):
        cdef Py_ssize_t i
        cdef uint64_t at = 0
        cdef int64_t marks = 0
        cdef Block* block
        self.begin(read, pages_at, pages_bytes, checksums)
        self.base_offset = base_offset
        self.span = next_offset - base_offset
        self.segment_bytes = segment_bytes
        if self.span < 0:
            raise ValueError("the sizes of a key index do not fit together")
        self.blocks = <Block*>PyMem_Calloc(max(len(blocks), 1), sizeof(Block))
        if self.blocks == NULL:
            raise MemoryError("no memory for a key index")
        for i in range(len(blocks)):
            block = &self.blocks[i]
            block.entries, block.bits, block.marks = blocks[i]
            if not 0 <= block.bits <= MOST_BITS:
                raise ValueError("the sizes of a key index do not fit together")
            block.start = at
            block.entries_at = at + directory_bytes(block.bits)
            block.marks_at = block.entries_at + 8 * <uint64_t>block.entries
            at = block.marks_at + 8 * <uint64_t>block.marks
            marks += block.marks
        self.block_count = len(blocks)
        if at != pages_bytes:
            raise ValueError("the sizes of a key index do not fit together")
        self.sections = SectionTable(marks)

    def __dealloc__(self):
        PyMem_Free(self.blocks)

    cdef int bucket(self, const Block* block, uint64_t hashed, uint64_t* first, uint64_t* last) noexcept nogil:
        """The entries of a hash's bucket, `first` up to `last` (exclusive); DAMAGED_INDEX where they cannot be right."""
        cdef uint64_t place = block.start + 4 * bucket_of(hashed, block.bits)
        cdef const uint8_t* p = bytes_at(self, place)
        cdef const uint8_t* q = bytes_at(self, place + 4)
        cdef uint32_t number
        if p == NULL or q == NULL:
            return DAMAGED_INDEX
        memcpy(&number, p, 4)
        first[0] = number
        memcpy(&number, q, 4)
        last[0] = number
        return 0 if first[0] <= last[0] <= block.entries else DAMAGED_INDEX

    cdef int entry(self, const Block* block, uint64_t number, uint64_t* out) noexcept nogil:
        cdef const uint8_t* p = bytes_at(self, block.entries_at + 8 * number)
        if p == NULL:
            return DAMAGED_INDEX
        memcpy(out, p, 8)
        return 0 if relative_of(out[0]) < self.span else DAMAGED_INDEX

    cdef int64_t count_below(self, const Block* block, uint64_t first, uint64_t last, uint64_t limit) noexcept nogil:
        """The number of the first of the entries [first, last), which rise, at or above `limit`."""
        cdef uint64_t middle, found
        while first < last:
            middle = (first + last) >> 1
            if self.entry(block, middle, &found) != 0:
                return DAMAGED_INDEX
            if found < limit:
                first = middle + 1
            else:
                last = middle
        return <int64_t>first

    cdef int64_t last_in(self, const Block* block, uint64_t hashed, int64_t below) noexcept nogil:
        """The last offset below `below`, relative to the base, of a hash in one block; or NO_OFFSET, DAMAGED_INDEX."""
        cdef uint64_t first, last, found, place
        cdef int64_t number
        cdef uint32_t tag = tag_of(hashed)
        if self.bucket(block, hashed, &first, &last) != 0:
            return DAMAGED_INDEX
        if last - first >= SORTED_FROM:
            number = self.count_below(block, first, last, entry_of(tag, 0) + <uint64_t>below)
            if number < 0:
                return DAMAGED_INDEX
            if <uint64_t>number == first:
                return NO_OFFSET
            if self.entry(block, <uint64_t>number - 1, &found) != 0:
                return DAMAGED_INDEX
            return relative_of(found) if found >> 32 == tag else NO_OFFSET
        place = block.entries_at + 8 * first
        if first < last and place % PAGE_BYTES + 8 * (last - first) <= PAGE_BYTES:
            return self.last_of(bytes_at(self, place), last - first, tag, below)
        while last > first:
            last -= 1
            if self.entry(block, last, &found) != 0:
                return DAMAGED_INDEX
            if found >> 32 == tag and relative_of(found) < below:
                return relative_of(found)
        return NO_OFFSET

    cdef inline int64_t last_of(self, const uint8_t* bucket, uint64_t count, uint32_t tag, int64_t below) noexcept nogil:
        """As last_in, of a small bucket that lies in one page; both lines that it may have are on their way at once."""
        cdef uint64_t found
        if bucket == NULL:
            return DAMAGED_INDEX
        kl_prefetch(bucket)
        while count > 0:
            count -= 1
            memcpy(&found, bucket + 8 * count, 8)
            if relative_of(found) >= self.span:
                return DAMAGED_INDEX
            if found >> 32 == tag and relative_of(found) < below:
                return relative_of(found)
        return NO_OFFSET

    cdef int64_t last_below(self, uint64_t hashed, int64_t below) noexcept nogil:
        """The last offset below `below` of a hash in any block; or NO_OFFSET, DAMAGED_INDEX."""
        cdef Py_ssize_t i = self.block_count
        cdef int64_t relative
        if below <= self.base_offset:
            return NO_OFFSET
        below = min(below - self.base_offset, self.span)
        while i > 0:
            i -= 1
            relative = self.last_in(&self.blocks[i], hashed, below)
            if relative != NO_OFFSET:
                return relative if relative < 0 else self.base_offset + relative
        return NO_OFFSET

    def find_last(self, uint64_t hashed, int64_t below) -> int:
        """The last offset below `below` of a record with this hash, -1 where there is none, or IS_DAMAGED."""
        cdef int64_t found
        self.begin_search()
        found = self.last_below(hashed, below)
        self.end_search()
        return found

    def find_all(self, uint64_t hashed, int64_t start, int64_t stop, int64_t most=1 << 62) -> list[int] | None:
        """The first `most` + 1 offsets in [start, stop) of the records with this hash; None if the index is damaged."""
        self.begin_search()
        try:
            return self.all_within(hashed, start, stop, most)
        finally:
            self.end_search()

    cdef list all_within(self, uint64_t hashed, int64_t start, int64_t stop, int64_t most):
        cdef list found = []
        cdef Py_ssize_t i
        cdef uint64_t first, last, entry
        cdef int64_t number, offset
        cdef uint32_t tag = tag_of(hashed)
        for i in range(self.block_count):
            if self.bucket(&self.blocks[i], hashed, &first, &last) != 0:
                return None
            if last - first >= SORTED_FROM:
                number = self.count_below(&self.blocks[i], first, last, entry_of(tag, 0))
                if number < 0:
                    return None
                first = <uint64_t>number
            while first < last and len(found) <= most:
                if self.entry(&self.blocks[i], first, &entry) != 0:
                    return None
                offset = self.base_offset + relative_of(entry)
                if entry >> 32 == tag and start <= offset < stop:
                    found.append(offset)
                first += 1
                if entry >> 32 > tag and last - first >= SORTED_FROM:
                    break
        return found

    def find_last_many(self, hashes, int64_t below, found) -> bool:
        """Writes the last offset below `below` of each hash (8 bytes each) to `found` where that has -1.

        False if the index is damaged; `found` may have some offsets then.
        """
        cdef Held given = hold(hashes)
        cdef Held out = hold(found)
        cdef int64_t count = given.size // 8
        cdef bint sound = True
        if out.size != 8 * count or given.size % 8 or out.view.readonly:
            raise ValueError(f"{out.size} bytes for the offsets of {given.size} bytes of hashes")
        self.begin_search()
        with nogil:
            sound = self.find_all_of(<const uint64_t*>given.data, <int64_t*>out.data, count, below)
        self.end_search()
        return sound

    cdef bint find_all_of(self, const uint64_t* hashes, int64_t* found, int64_t count, int64_t below) noexcept nogil:
        """As find_last_many: many hashes in the order of their buckets, so that the search goes over the pages once."""
        cdef int64_t starts[PARTS]
        cdef int64_t i, before, own
        cdef Asked* asked = NULL
        cdef bint sound
        if count >= ORDERED_FROM:
            asked = <Asked*>malloc(<size_t>count * sizeof(Asked))
        if asked == NULL:
            return self.find_in_order(hashes, found, count, below)
        kl_want_huge(asked, <size_t>count * sizeof(Asked))
        memset(starts, 0, sizeof(starts))
        for i in range(count):
            if found[i] == NO_OFFSET:
                starts[hashes[i] >> PART_SHIFT] += 1
        before = 0
        for i in range(PARTS):
            own = starts[i]
            starts[i] = before
            before += own
        for i in range(count):
            if found[i] == NO_OFFSET:
                own = starts[hashes[i] >> PART_SHIFT]
                starts[hashes[i] >> PART_SHIFT] = own + 1
                asked[own].hashed, asked[own].number = hashes[i], i
        sound = self.find_asked(asked, found, before, below)
        free(asked)
        return sound

    cdef bint find_in_order(self, const uint64_t* hashes, int64_t* found, int64_t count, int64_t below) noexcept nogil:
        """As find_last_many: few hashes, as they come."""
        cdef Asked asked[GROUP]
        cdef int64_t i
        cdef int64_t n = 0
        for i in range(count):
            if found[i] == NO_OFFSET:
                asked[n].hashed, asked[n].number = hashes[i], i
                n += 1
            if n == GROUP or i == count - 1:
                if not self.find_group(asked, found, n, below):
                    return False
                n = 0
        return True

    cdef bint find_asked(self, const Asked* asked, int64_t* found, int64_t count, int64_t below) noexcept nogil:
        """As find_all_of, one group after the other."""
        cdef int64_t done = 0
        cdef int64_t n
        while done < count:
            n = min(count - done, <int64_t>GROUP)
            if not self.find_group(asked + done, found, n, below):
                return False
            done += n
        return True

    cdef bint find_group(self, const Asked* asked, int64_t* found, int64_t count, int64_t below) noexcept nogil:
        """As find_asked, of up to GROUP hashes, whose lines are on their way together where there is one block.

        What is found is written and not looked at: to read a line that is on its way would wait for it.
        """
        cdef uint64_t places[GROUP]
        cdef uint32_t sizes[GROUP]
        cdef int64_t i, offset
        cdef int64_t limit = min(below - self.base_offset, self.span)
        self.find_buckets(asked, found, count, places, sizes)
        for i in range(count):
            if sizes[i] == NOT_SMALL:
                offset = self.last_below(asked[i].hashed, below)
            else:
                offset = self.last_of(self.area + places[i], sizes[i], tag_of(asked[i].hashed), limit)
                if offset >= 0:
                    offset += self.base_offset
            if offset == DAMAGED_INDEX:
                return False
            found[asked[i].number] = offset
        return True

    cdef void find_buckets(
        self, const Asked* asked, const int64_t* found, int64_t count, uint64_t* places, uint32_t* sizes
    ) noexcept nogil:
        """Set where the bucket of each hash lies and its entries, which are on their way then; NOT_SMALL for others.

        Others have no page yet, or more than one, or too many entries, or there are several blocks.
        """
        cdef const Block* block = &self.blocks[0]
        cdef const uint8_t* area = load_area(&self.area)
        cdef uint32_t[2] ends
        cdef int64_t i
        cdef uint64_t place
        for i in range(count):
            sizes[i] = NOT_SMALL
            if self.block_count == 1 and area != NULL:
                places[i] = block.start + 4 * bucket_of(asked[i].hashed, block.bits)
                kl_prefetch(area + places[i])
            kl_prefetch(&found[asked[i].number])
        if self.block_count != 1 or area == NULL:
            return
        for i in range(count):
            place = places[i]
            if not has_page(self, place // PAGE_BYTES) or place % PAGE_BYTES > PAGE_BYTES - 8:
                continue
            memcpy(ends, area + place, 8)
            if ends[0] > ends[1] or ends[1] > block.entries or ends[1] - ends[0] >= SORTED_FROM:
                continue
            place = block.entries_at + 8 * <uint64_t>ends[0]
            if place % PAGE_BYTES + 8 * (ends[1] - ends[0]) <= PAGE_BYTES and has_page(self, place // PAGE_BYTES):
                places[i], sizes[i] = place, ends[1] - ends[0]
                kl_prefetch(area + place)
                if place % LINE_BYTES + 8 * sizes[i] > LINE_BYTES:
                    kl_prefetch(area + place + LINE_BYTES)

    def place(self, int64_t offset) -> tuple[int, int]:
        """(position, size) of the batches among which the one with this offset is; (-1, 0) where that is not known."""
        cdef MarkedRange found
        cdef int64_t number
        self.begin_search()
        number = self.mark_of(offset, &found)
        self.end_search()
        if number < 0:
            return -1, 0
        return found.position, found.size

    cdef int64_t guess(self, int64_t offset) noexcept nogil:
        """The number that the mark of an offset has if all batches have the same number of records; or -1."""
        if self.block_count != 1 or not self.base_offset <= offset < self.base_offset + self.span:
            return -1
        return (offset - self.base_offset) * self.sections.room // self.span

    cdef int64_t mark_of(self, int64_t offset, MarkedRange* found) noexcept nogil:
        """The number of the mark of the batches among which the one with this offset is, with their place; or -1."""
        cdef Py_ssize_t i = self.block_count
        cdef int64_t marks = self.sections.room
        cdef uint64_t low, mark, behind
        cdef uint64_t limit
        cdef Block* block
        if not self.base_offset <= offset < self.base_offset + self.span:
            return -1
        limit = (<uint64_t>(offset - self.base_offset) + 1) << 32
        while i > 0:
            i -= 1
            block = &self.blocks[i]
            marks -= block.marks
            if not self.marks_below(block, limit, &low):
                return -1
            if low == 0:
                continue
            behind = <uint64_t>self.segment_bytes
            if not self.mark(block, low - 1, &mark) or (low < block.marks and not self.mark(block, low, &behind)):
                return -1
            if low < block.marks:
                behind = <uint64_t>relative_of(behind)
            found.base_offset = self.base_offset + <int64_t>(mark >> 32)
            mark = <uint64_t>relative_of(mark)
            found.position = <int64_t>mark
            if mark >= behind:
                return -1
            found.size = <int64_t>(behind - mark)
            found.is_last = behind == <uint64_t>self.segment_bytes
            return marks + <int64_t>low - 1
        return -1

    cdef bint marks_below(self, const Block* block, uint64_t limit, uint64_t* number) noexcept nogil:
        """The number of marks below `limit`, which rise; False where a page is damaged.

        Batches have about as many records each, so the search begins where the mark would be if all had the same.
        """
        cdef uint64_t low = 0
        cdef uint64_t high = block.marks
        cdef uint64_t step = 1
        cdef uint64_t middle, mark, first
        number[0] = 0
        if high == 0:
            return True
        if not self.mark(block, 0, &first) or not self.mark(block, high - 1, &mark):
            return False
        if first >= limit:
            return True
        middle = 0
        if mark >> 32 > first >> 32 and limit >> 32 <= mark >> 32:
            middle = ((limit >> 32) - (first >> 32)) * (high - 1) // ((mark >> 32) - (first >> 32))
        elif limit > mark:
            middle = high - 1
        while low < high:
            if not self.mark(block, middle, &mark):
                return False
            if mark < limit:
                low = middle + 1
                middle = low + step if low + step < high and step < high else (low + high) >> 1
            else:
                high = middle
                middle = high - step if high > low + step else (low + high) >> 1
            step = 4 * step if step < block.marks else step
        number[0] = low
        return True

    cdef bint mark(self, const Block* block, uint64_t number, uint64_t* out) noexcept nogil:
        cdef const uint8_t* p = bytes_at(self, block.marks_at + 8 * number)
        if p == NULL:
            return False
        memcpy(out, p, 8)
        return True
