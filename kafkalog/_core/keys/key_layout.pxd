"""The layout of a key index's blocks (docs/keys.md): a directory of buckets, the entries, the marks; little-endian."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    PAGE_BYTES = 16384              # what is read, checked and kept at once
    BUCKET_ENTRIES = 8              # in a bucket, at most and on average
    SORTED_FROM = 33                # entries of a bucket that lie by tag and offset; smaller ones lie by offset alone
    MOST_BITS = 30
    MARK_RECORDS = 4                # records that a mark stands for, at least


cdef inline int bits_for(uint64_t entries) noexcept nogil:
    cdef int bits = 0
    while entries >> bits > BUCKET_ENTRIES and bits < MOST_BITS:
        bits += 1
    return bits


cdef inline uint64_t bucket_of(uint64_t hashed, int bits) noexcept nogil:
    return hashed >> (64 - bits) if bits > 0 else 0


cdef inline uint64_t bucket_of_high(uint32_t high, int bits) noexcept nogil:
    """As bucket_of, of the upper half of a hash."""
    return high >> (32 - bits) if bits > 0 else 0


cdef inline uint32_t tag_of(uint64_t hashed) noexcept nogil:
    return <uint32_t>hashed


cdef inline uint64_t entry_of(uint32_t tag, uint32_t relative) noexcept nogil:
    return <uint64_t>tag << 32 | relative


cdef inline int64_t relative_of(uint64_t entry) noexcept nogil:
    """The offset of an entry, or the position of a mark, without its upper half."""
    return <int64_t><uint32_t>entry


cdef inline uint64_t directory_bytes(int bits) noexcept nogil:
    """Bytes of the directory: the first entry of each bucket and the end of the last, four bytes each, eight at a time."""
    return ((<uint64_t>1 << bits) + 2) // 2 * 8
