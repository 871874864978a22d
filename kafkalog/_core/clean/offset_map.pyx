"""The cleaner's map from keys to offsets: a slot of 24 bytes a key, with a hash in place of the key.

Two keys of one hash would be one key, and the older one's record would go. Nothing of a map reaches the disk, so the
hash is SipHash-128 with a key drawn for each map, so keys that erase each other cannot be chosen. MD5, with the
reference's order of probing, is there to be compared with it.
"""
import os

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.endian cimport load32
from kafkalog._core.bytes.md5 cimport md5_of
from kafkalog._core.bytes.prefetch cimport kl_prefetch_to_write
from kafkalog._core.bytes.siphash cimport FOUR_WORDS, KL_HAS_FOUR, siphash_128, siphash_four

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long long offset)
    int munmap(void* address, size_t length)
    void* MAP_FAILED
    int PROT_READ
    int PROT_WRITE
    int MAP_PRIVATE
    int MAP_ANONYMOUS

cdef extern from *:
    """
    /* what only Linux has: pages of 2 MiB, and advice after which private pages are all zeros */
    #if defined(__linux__) && defined(MADV_HUGEPAGE) && !defined(KAFKALOG_PORTABLE)
    #define kl_want_huge_pages(address, length) ((void)madvise(address, length, MADV_HUGEPAGE))
    #define kl_zero_by_advice(address, length) (madvise(address, length, MADV_DONTNEED) == 0)
    #else
    #define kl_want_huge_pages(address, length) ((void)(address), (void)(length))
    #define kl_zero_by_advice(address, length) ((void)(address), (void)(length), 0)
    #endif
    #define kl_scaled(a, b) ((int64_t)(((unsigned __int128)(a) * (unsigned __int128)(b)) >> 64))
    """
    int64_t kl_scaled(uint64_t a, int64_t b) noexcept nogil
    void kl_want_huge_pages(void* address, size_t length) noexcept nogil
    bint kl_zero_by_advice(void* address, size_t length) noexcept nogil

cdef enum:
    HASH_BYTES = 16
    JUMPS = HASH_BYTES - 4          # attempts of the reference that take another four bytes of the hash
    HUGE_PAGE = 2 << 20
    GIVEN_BACK_BYTES = 1 << 20      # from here on clearing gives pages back to the system instead of writing zeros
    LEAST_IN_USE = 64

cdef int64_t MOST_MD5_BYTES = 0x7FFFFFFF    # the reference's buffer
BYTES_PER_SLOT = sizeof(Slot)
assert BYTES_PER_SLOT == HASH_BYTES + 8


cdef inline bint are_alike(const KeyOffset* keys) noexcept nogil:
    """True for four keys that siphash_four takes."""
    cdef Py_ssize_t words = keys[0].size >> 3
    return words < FOUR_WORDS and keys[1].size >> 3 == words and keys[2].size >> 3 == words and keys[3].size >> 3 == words


@cython.final
cdef class SkimpyOffsetMap:
    """A map from keys to their last offsets, of floor(memory_bytes / 24) slots, from which nothing is deleted (CLN-1).

    hash: "siphash", or "md5" for slots and collision rate as the reference has them. secret: 16 bytes, the hash's key;
    drawn at random when not given. Memory is taken from the system as slots are used, at most `memory_bytes`. `size`
    counts keys, `latest_offset` (-1: none) is the last offset put, or that of `update_latest_offset`. A map belongs
    to one thread. ValueError for arguments that can never be right, MemoryError when the system gives no memory.
    """

    def __cinit__(self, memory_bytes, hash="siphash", *, secret=None):
        cdef bytes drawn = os.urandom(HASH_BYTES) if secret is None else bytes(secret)
        if hash not in ("siphash", "md5"):
            raise ValueError(f"hash is 'siphash' or 'md5', not {hash!r}")
        if len(drawn) != HASH_BYTES:
            raise ValueError(f"the secret of a map has {HASH_BYTES} bytes, not {len(drawn)}")
        self.by_md5 = hash == "md5"
        if memory_bytes < 0 or (self.by_md5 and memory_bytes > MOST_MD5_BYTES):
            raise ValueError(f"a map of {memory_bytes} bytes: from 0 on" + ", up to 2147483647" * self.by_md5)
        memcpy(&self.secret, <const char*>drawn, HASH_BYTES)
        self.latest_offset = -1
        if memory_bytes // BYTES_PER_SLOT > (<int64_t>1 << 56):
            raise MemoryError(f"no memory for a map of {memory_bytes} bytes")
        self.slots = self.in_use = memory_bytes // BYTES_PER_SLOT
        if self.slots:
            self.take_memory(<size_t>self.slots * sizeof(Slot))

    cdef int take_memory(self, size_t wanted) except -1:
        """Pages that are all zeros, of which the system hands out those that are touched."""
        cdef uintptr_t start
        self.mapped_bytes = wanted + HUGE_PAGE if wanted >= HUGE_PAGE else wanted
        cdef void* mapped = mmap(
            NULL, self.mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
        )
        if mapped == MAP_FAILED:
            raise MemoryError(f"no memory for a map of {wanted} bytes")
        self.mapped = mapped
        start = <uintptr_t>mapped
        if wanted >= HUGE_PAGE:
            start = (start + HUGE_PAGE - 1) & ~<uintptr_t>(HUGE_PAGE - 1)
            kl_want_huge_pages(<void*>start, wanted)        # a wish: a system without them gives small pages
        self.table = <Slot*>start
        return 0

    def __dealloc__(self):
        if self.mapped != NULL:
            munmap(self.mapped, self.mapped_bytes)

    cdef void hash_key(self, const uint8_t* key, Py_ssize_t size, Slot* hashed) noexcept nogil:
        """The hash that stands for a key; that of SipHash never has a first word of zero, the mark of an empty slot."""
        if self.by_md5:
            md5_of(key, size, <uint8_t*>hashed)
            return
        siphash_128(&self.secret, key, size, &hashed.first)
        if hashed.first == 0:
            hashed.first = 1

    cdef int64_t place(self, const Slot* hashed, int64_t attempt) noexcept nogil:
        """The slot to look at in that attempt.

        With MD5 as the reference probes: other bytes of the hash, then on from the last four, in wrapping arithmetic
        of 32 bits, its absolute value modulo the slots. With SipHash one slot after the other, which mostly share a
        line of the cache.
        """
        cdef int32_t number
        cdef int64_t at
        cdef int64_t slots = self.in_use    # read once: whatever a second thread does, the place lies in the table
        if not self.by_md5:
            at = kl_scaled(hashed.first, slots) + attempt
            return at if at < slots else at - slots
        number = <int32_t>(
            <uint32_t>load32(<const uint8_t*>hashed + min(attempt, <int64_t>JUMPS))
            + <uint32_t>max(<int64_t>0, attempt - JUMPS)
        )
        at = 0 if number == -0x80000000 else (-number if number < 0 else number)
        return at % slots

    cdef int64_t find(self, const Slot* hashed) noexcept nogil:
        """The offset of a hash, or MAP_ABSENT: where the probes meet an empty slot, or at their end (CLN-2)."""
        cdef int64_t attempt = 0
        cdef int64_t most = self.in_use + (JUMPS if self.by_md5 and self.in_use > 0 else 0)
        cdef Slot* slot
        self.lookups += 1
        while attempt < most:
            slot = &self.table[self.place(hashed, attempt)]
            attempt += 1
            if slot.first == hashed.first and slot.second == hashed.second and not is_empty(slot):
                self.probes += attempt
                return slot.offset
            if is_empty(slot):
                break
        self.probes += attempt
        return MAP_ABSENT

    cdef int insert(self, const Slot* hashed) noexcept nogil:
        """Puts hash and offset; MAP_FULL without a change where every slot has a key, be it this one."""
        cdef int64_t attempt = 0
        cdef int64_t most = 2 * self.in_use + JUMPS + 1 if self.by_md5 else self.in_use    # of MD5: may turn round once
        cdef Slot* slot
        if self.size >= self.in_use:
            return MAP_FULL
        while attempt < most:
            slot = &self.table[self.place(hashed, attempt)]
            attempt += 1
            if is_empty(slot):
                slot[0] = hashed[0]
                self.size += 1
                break
            if slot.first == hashed.first and slot.second == hashed.second:
                slot.offset = hashed.offset
                break
        else:
            return MAP_FULL
        self.lookups += 1
        self.probes += attempt
        self.latest_offset = hashed.offset
        return MAP_PUT

    cdef int64_t get_key(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """The offset last put for a key, or MAP_ABSENT."""
        cdef Slot hashed
        self.hash_key(key, size, &hashed)
        return self.find(&hashed)

    cdef int put_key(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil:
        """MAP_PUT, or MAP_FULL without a change."""
        cdef Slot hashed
        self.hash_key(key, size, &hashed)
        hashed.offset = offset
        return self.insert(&hashed)

    cdef void get_many(self, const KeyOffset* keys, Py_ssize_t count, int64_t* found) noexcept nogil:
        """Write the last offset of each key to `found`, MAP_ABSENT for missing keys."""
        cdef Slot hashed[KEY_GROUP]
        cdef Py_ssize_t i
        cdef Py_ssize_t n
        while count > 0:
            n = min(count, <Py_ssize_t>KEY_GROUP)
            self.hash_group(keys, n, hashed)
            for i in range(n):
                found[i] = self.find(&hashed[i])
            keys += n
            found += n
            count -= n

    cdef Py_ssize_t put_many(self, const KeyOffset* keys, Py_ssize_t count, int64_t most) noexcept nogil:
        """Puts keys in their order while the map has fewer than `most`; how many were put."""
        cdef Slot hashed[KEY_GROUP]
        cdef Py_ssize_t done = 0
        cdef Py_ssize_t i
        cdef Py_ssize_t n
        while done < count:
            n = min(count - done, <Py_ssize_t>KEY_GROUP)
            self.hash_group(keys + done, n, hashed)
            for i in range(n):
                hashed[i].offset = keys[done + i].offset
                if self.size >= most or self.insert(&hashed[i]) != MAP_PUT:
                    return done + i
            done += n
        return done

    cdef void hash_group(self, const KeyOffset* keys, Py_ssize_t count, Slot* hashed) noexcept nogil:
        """The hashes of up to KEY_GROUP keys, whose slots are on their way into the cache afterwards."""
        cdef Py_ssize_t i = 0
        cdef Py_ssize_t next_one
        cdef Slot* slot
        while i < count:
            next_one = i + 4
            if not self.by_md5 and next_one <= count and KL_HAS_FOUR() and are_alike(&keys[i]):
                self.hash_four(&keys[i], &hashed[i])
            else:
                next_one = i + 1
                self.hash_key(keys[i].key, keys[i].size, &hashed[i])
            while i < next_one:
                if self.in_use > 0:
                    slot = &self.table[self.place(&hashed[i], 0)]
                    kl_prefetch_to_write(slot)
                    kl_prefetch_to_write(<const uint8_t*>slot + HASH_BYTES)  # it may lie on two lines
                i += 1

    cdef void hash_four(self, const KeyOffset* keys, Slot* hashed) noexcept nogil:
        """As hash_key, of four keys that are alike."""
        cdef const uint8_t* starts[4]
        cdef Py_ssize_t sizes[4]
        cdef uint64_t first[4]
        cdef uint64_t second[4]
        cdef int i
        for i in range(4):
            starts[i] = keys[i].key
            sizes[i] = keys[i].size
        siphash_four(&self.secret, starts, sizes, first, second)
        for i in range(4):
            hashed[i].first = first[i] if first[i] != 0 else 1
            hashed[i].second = second[i]

    @cython.critical_section
    def put(self, key, int64_t offset) -> None:
        """Makes `offset` that of `key`; ValueError when every slot is taken, be it by this key."""
        cdef Py_buffer view
        cdef int status
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        status = self.put_key(<const uint8_t*>view.buf, view.len, offset)
        PyBuffer_Release(&view)
        if status != MAP_PUT:
            raise ValueError(
                f"Attempted to add a new entry to a full offset map, entries: {self.size}, slots: {self.in_use}"
            )

    @cython.critical_section
    def get(self, key) -> int:
        """The last offset put for `key`, -1 where there is none."""
        cdef Py_buffer view
        cdef int64_t offset
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        offset = self.get_key(<const uint8_t*>view.buf, view.len)
        PyBuffer_Release(&view)
        return offset

    @cython.critical_section
    def put_run(self, keys, Py_ssize_t key_bytes, int64_t first_offset) -> int:
        """Puts keys of one size that lie back to back in `keys`, with offsets that count up from `first_offset`.

        Says how many were put: fewer than there are where the map is full. Without the GIL; ValueError for a size
        below 1, or one that does not divide the bytes given.
        """
        cdef Held held = hold(keys)
        cdef KeyOffset group[KEY_GROUP]
        cdef Py_ssize_t done = 0
        cdef Py_ssize_t i, n, count
        if key_bytes < 1 or held.size % key_bytes:
            raise ValueError(f"{held.size} bytes are no keys of {key_bytes}")
        count = held.size // key_bytes
        with nogil:
            while done < count:
                n = min(count - done, <Py_ssize_t>KEY_GROUP)
                for i in range(n):
                    group[i] = KeyOffset(held.data + (done + i) * key_bytes, key_bytes, first_offset + done + i)
                i = self.put_many(group, n, self.slots)
                done += i
                if i < n:
                    break
        return done

    def digest(self, key) -> bytes:
        """The 16 bytes that stand for `key` in this map."""
        cdef Py_buffer view
        cdef Slot hashed
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        self.hash_key(<const uint8_t*>view.buf, view.len, &hashed)
        PyBuffer_Release(&view)
        return (<const char*>&hashed)[:HASH_BYTES]

    def update_latest_offset(self, int64_t offset) -> None:
        """Says how far the map reaches, where that is beyond the last key: batches without keys, gaps."""
        self.latest_offset = offset

    @cython.critical_section
    def clear(self, *, expected=None) -> None:
        """Forgets all keys and counts. `expected`: how many keys will follow at most, for a map that touches no more
        memory than they need; with more it is full. The reference's slots are all used where the hash is MD5.
        """
        cdef size_t used = <size_t>self.in_use * sizeof(Slot)
        with nogil:
            if used >= GIVEN_BACK_BYTES:
                if not kl_zero_by_advice(self.table, used):
                    memset(self.table, 0, used)
            elif used > 0:
                memset(self.table, 0, used)
        self.size = self.lookups = self.probes = 0
        self.latest_offset = -1
        self.in_use = self.slots
        if expected is not None and not self.by_md5:
            self.in_use = min(self.slots, max(LEAST_IN_USE, 3 * max(0, expected) // 2))     # touching pages costs too

    @property
    def capacity(self) -> int:
        """Keys that it takes at most."""
        return self.in_use

    @property
    def utilization(self) -> float:
        """Keys for each slot; NaN for a map without slots."""
        return self.size / <double>self.slots if self.slots else float("nan")

    @property
    def collision_rate(self) -> float:
        """Probes beyond the first for each put and get since the map was cleared; NaN before any."""
        return (self.probes - self.lookups) / <double>self.lookups if self.lookups else float("nan")

    def __len__(self) -> int:
        return self.size

    def __repr__(self):
        return f"<SkimpyOffsetMap of {self.slots} slots, {self.size} keys up to offset {self.latest_offset}>"
