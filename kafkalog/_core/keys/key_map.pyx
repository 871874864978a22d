"""A map in memory from the keys of a log's end to the offsets of their records; it follows appends."""
cimport cython
from libc.stdlib cimport calloc, free, realloc

from kafkalog._core.batch.layout cimport ERR_MEMORY, OK
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.keys.key_walk cimport NO_OFFSET, KeyWalk, check_unused

cdef enum:
    FIRST_ROOM = 64
    FIRST_BITS = 7
    MOST_ENTRIES = 0x7FFFFFFF
    NOTHING = 0                     # no entry; entries count from 1

@cython.final
cdef class KeyMap(KeyWalk):
    """Hashes and offsets of the keys in [start_offset, `end_offset`), 24 bytes each and 4 to 8 for its slots.

    secret: 16 bytes, the key of the hash. The records of one hash are chained, newest first. One thread. MemoryError,
    also for an offset 2^32 or more above the start.
    """

    def __cinit__(self, secret, int64_t start_offset):
        self.begin(secret, start_offset, 0x7FFFFFFFFFFFFFFF)
        self.start_offset = start_offset
        self.slot_bits = FIRST_BITS
        self.slots = <uint32_t*>calloc(<size_t>1 << FIRST_BITS, sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError("no memory for a map of keys")

    def __dealloc__(self):
        free(self.entries)
        free(self.slots)

    @property
    @cython.critical_section
    def memory_bytes(self) -> int:
        """Bytes that the map takes."""
        return self.room * sizeof(Entry) + (sizeof(uint32_t) << self.slot_bits)

    cdef int put(self, const uint64_t* hashes, const int64_t* offsets, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t i
        cdef Entry* entry
        if self.count + count > self.room and not self.grow():
            return ERR_MEMORY
        for i in range(count):
            if (offsets[i] - self.start_offset) >> 32 != 0:
                return ERR_MEMORY
            entry = &self.entries[self.count]
            entry.hashed = hashes[i]
            entry.relative = <uint32_t>(offsets[i] - self.start_offset)
            entry.older = entry.other = NOTHING
            self.count += 1
            self.link(<uint32_t>self.count)
        return OK

    cdef uint32_t* slot_of(self, uint64_t hashed) noexcept nogil:
        return self.slots + (hashed >> (64 - self.slot_bits))

    cdef void link(self, uint32_t number) noexcept nogil:
        """Makes an entry the newest of its hash."""
        cdef Entry* entry = self.entries + number - 1
        cdef uint32_t* place = self.slot_of(entry.hashed)
        cdef Entry* found
        while place[0] != NOTHING:
            found = self.entries + place[0] - 1
            if found.hashed == entry.hashed:
                entry.older = place[0]
                entry.other = found.other
                found.other = NOTHING
                place[0] = number
                return
            place = &found.other
        place[0] = number

    cdef bint grow(self) noexcept nogil:
        """Doubles the room, and the slots, in which each newest entry of a hash is put again."""
        cdef int64_t wanted = max(2 * self.room, <int64_t>FIRST_ROOM)
        cdef int bits = self.slot_bits
        cdef void* entries
        cdef uint32_t* slots
        if wanted > MOST_ENTRIES:
            return False
        entries = realloc(self.entries, <size_t>wanted * sizeof(Entry))
        if entries == NULL:
            return False
        self.entries = <Entry*>entries
        while (<int64_t>1 << bits) < wanted:
            bits += 1
        if bits > self.slot_bits:
            slots = <uint32_t*>calloc(<size_t>1 << bits, sizeof(uint32_t))
            if slots == NULL:
                return False
            self.move_to(slots, bits)
        self.room = wanted
        return True

    cdef void move_to(self, uint32_t* slots, int bits) noexcept nogil:
        cdef int64_t i
        cdef uint32_t* old = self.slots
        cdef int64_t count = <int64_t>1 << self.slot_bits
        cdef uint32_t number, following
        cdef uint32_t* place
        self.slots = slots
        self.slot_bits = bits
        for i in range(count):
            number = old[i]
            while number != NOTHING:
                following = self.entries[number - 1].other
                place = self.slot_of(self.entries[number - 1].hashed)
                self.entries[number - 1].other = place[0]
                place[0] = number
                number = following
        free(old)

    cdef uint32_t newest(self, uint64_t hashed) noexcept nogil:
        cdef uint32_t number = self.slot_of(hashed)[0]
        while number != NOTHING and self.entries[number - 1].hashed != hashed:
            number = self.entries[number - 1].other
        return number

    cdef int64_t last_below(self, uint64_t hashed, int64_t below) noexcept nogil:
        cdef uint32_t number = self.newest(hashed)
        cdef int64_t offset
        while number != NOTHING:
            offset = self.start_offset + self.entries[number - 1].relative
            if offset < below:
                return offset
            number = self.entries[number - 1].older
        return NO_OFFSET

    @cython.critical_section
    def find_last(self, uint64_t hashed, int64_t below) -> int:
        """The last offset below `below` of a record with this hash, -1 where there is none."""
        check_unused(self)
        return self.last_below(hashed, below)

    @cython.critical_section
    def find_all(self, uint64_t hashed, int64_t start, int64_t stop) -> list[int]:
        """The offsets in [start, stop) of the records with this hash, rising."""
        cdef uint32_t number
        cdef int64_t offset
        cdef list found = []
        check_unused(self)
        number = self.newest(hashed)
        while number != NOTHING:
            offset = self.start_offset + self.entries[number - 1].relative
            if start <= offset < stop:
                found.append(offset)
            number = self.entries[number - 1].older
        found.reverse()
        return found

    @cython.critical_section
    def find_last_many(self, hashes, int64_t below, found) -> None:
        """Writes the last offset below `below` of each hash (8 bytes each) to `found` where that has -1."""
        cdef Held given = hold(hashes)
        cdef Held out = hold(found)
        cdef int64_t i
        cdef int64_t count = given.size // 8
        cdef int64_t* offsets = <int64_t*>out.data
        check_unused(self)
        if out.size != 8 * count or given.size % 8 or out.view.readonly:
            raise ValueError(f"{out.size} bytes for the offsets of {given.size} bytes of hashes")
        for i in range(count):
            if offsets[i] == NO_OFFSET:
                offsets[i] = self.last_below((<const uint64_t*>given.data)[i], below)
