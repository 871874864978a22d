"""The framings of the codecs, walked without decompressing: where the blocks lie, and the most that each can hold.

lz4 and snappy as Kafka frames them (format.md section 6), zstd by RFC 8878. Every read is checked against the end first.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kafkalog._core.batch.layout cimport OK
from kafkalog._core.bytes.endian cimport load32
from kafkalog._core.bytes.xxhash cimport hash_of, word

cdef enum:
    LZ4_MAGIC = 0x184D2204
    LZ4_SHORTEST = 7                # magic, flags, block size, checksum of these two
    LZ4_SIZED = 15                  # with the size of the content
    LZ4_GROWTH = 255                # each byte that lengthens a match stands for at most so many
    SNAPPY_HEADER = 16              # magic, version, oldest version that can read it
    SNAPPY_VERSION = 1
    SNAPPY_GROWTH = 22              # a copy of at most 64 bytes takes three
    BLOCK_SLACK = 64
    ZSTD_SKIPPABLE = 0x184D2A50     # the last four bits say which of sixteen
    ZSTD_LARGEST = 128 << 10

cdef extern from *:
    """
    static const uint32_t ZSTD_MAGIC = 0xFD2FB528U;
    """
    const uint32_t ZSTD_MAGIC       # among the others it would make all of them unsigned, where clang compiles


cdef enum Fault:
    # why compressed bytes cannot be decompressed; layer 2 turns it into a typed error
    FAULT_LIMIT = 200               # more than the caller allows
    FAULT_CODEC                     # an id that means nothing
    FAULT_LZ4_MAGIC
    FAULT_LZ4_HEADER
    FAULT_LZ4_VERSION
    FAULT_LZ4_RESERVED
    FAULT_LZ4_DEPENDENT
    FAULT_LZ4_BLOCK_SIZE
    FAULT_LZ4_HEADER_CHECK
    FAULT_LZ4_NO_END
    FAULT_LZ4_LARGE_BLOCK
    FAULT_LZ4_BLOCK_CHECK
    FAULT_LZ4_BLOCK                 # the codec refused it
    FAULT_BLOCK_END                 # a block runs past the end
    FAULT_SNAPPY_HEADER
    FAULT_SNAPPY_VERSION
    FAULT_SNAPPY_SIZE
    FAULT_SNAPPY_LENGTH
    FAULT_SNAPPY_GROWTH
    FAULT_ZSTD_NONE
    FAULT_ZSTD_CUT
    FAULT_ZSTD_MAGIC
    FAULT_ZSTD_SKIPPABLE
    FAULT_ZSTD_KIND
    FAULT_ZSTD_DECLARED
    FAULT_ZSTD_REFUSED              # by the codec, for want of room or for damage
    FAULT_GZIP_CUT
    FAULT_REPORTED                  # by the codec, in its own words


cdef struct Finding:
    Py_ssize_t position             # from the first compressed byte on
    int64_t value                   # the two numbers that its text may name
    int64_t other


cdef inline int found(Finding* at, int fault, Py_ssize_t position) noexcept nogil:
    at.position = position
    return fault


cdef inline int found_value(Finding* at, int fault, Py_ssize_t position, int64_t value, int64_t other) noexcept nogil:
    at.value = value
    at.other = other
    return found(at, fault, position)


# --- lz4

cdef struct Lz4Frame:
    Py_ssize_t at                   # of the next block
    uint32_t largest                # block
    int tail                        # bytes behind each block: its checksum


cdef struct Block4:
    Py_ssize_t at
    Py_ssize_t size                 # 0 is the end mark
    bint stored


cdef inline int lz4_header(const uint8_t* p, Py_ssize_t size, int magic, Lz4Frame* f, Finding* out) noexcept nogil:
    """Reads a frame's header (REC-45). Format v0 does not look at the header's checksum: its first encoder erred."""
    cdef int flags
    cdef int sizes
    cdef Py_ssize_t end
    if size < 4 or word(p) != LZ4_MAGIC:
        return found(out, FAULT_LZ4_MAGIC, 0)
    if size < LZ4_SHORTEST:
        return found(out, FAULT_LZ4_HEADER, size)
    flags = p[4]
    sizes = p[5]
    if flags >> 6 != 1:
        return found_value(out, FAULT_LZ4_VERSION, 4, flags >> 6, 0)
    if flags & 3:
        return found(out, FAULT_LZ4_RESERVED, 4)
    if not flags & 0x20:
        return found(out, FAULT_LZ4_DEPENDENT, 4)
    if sizes & 0x8F:
        return found(out, FAULT_LZ4_RESERVED, 5)
    if not 4 <= sizes >> 4 <= 7:
        return found_value(out, FAULT_LZ4_BLOCK_SIZE, 5, sizes >> 4, 0)
    end = LZ4_SIZED if flags & 8 else LZ4_SHORTEST
    if size < end:
        return found(out, FAULT_LZ4_HEADER, size)
    if magic > 0 and p[end - 1] != (hash_of(p + 4, end - 5, 0) >> 8) & 0xFF:
        return found(out, FAULT_LZ4_HEADER_CHECK, end - 1)
    f.at = end
    f.largest = <uint32_t>1 << (8 + 2 * (sizes >> 4))
    f.tail = 4 if flags & 0x10 else 0
    return OK


cdef inline int lz4_block(const uint8_t* p, Py_ssize_t size, Lz4Frame* f, Block4* b, Finding* out) noexcept nogil:
    """The next block, its checksum looked at where it has one; moves behind it."""
    cdef Py_ssize_t start = f.at
    cdef uint32_t field
    if size - start < 4:
        return found(out, FAULT_LZ4_NO_END, start)
    field = word(p + start)
    b.stored = field >> 31
    b.size = field & 0x7FFFFFFF
    b.at = start + 4
    if field == 0:
        return OK
    if b.size > f.largest:
        return found_value(out, FAULT_LZ4_LARGE_BLOCK, start, b.size, f.largest)
    if b.size + f.tail > size - b.at:
        return found(out, FAULT_BLOCK_END, start)
    f.at = b.at + b.size + f.tail
    if f.tail and word(p + f.at - 4) != hash_of(p + b.at, b.size, 0):
        return found(out, FAULT_LZ4_BLOCK_CHECK, start)
    return OK


# --- snappy

cdef inline bint is_xerial(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    return size >= SNAPPY_HEADER and memcmp(p, b"\x82SNAPPY\x00", 8) == 0


cdef inline int xerial_block(
    const uint8_t* p, Py_ssize_t size, Py_ssize_t* at, Py_ssize_t* block_size, Finding* out
) noexcept nogil:
    """Moves to the next block's first byte; a stream header may follow another stream's last block.

    `block_size` is -1 where the data ends. As in xerial's reader the version counts in a header that follows, and
    never the oldest version that can read it.
    """
    cdef Py_ssize_t start = at[0]
    cdef int32_t field
    block_size[0] = -1
    while True:
        if start == size:
            return OK
        if size - start < 4:
            return found(out, FAULT_SNAPPY_SIZE, start)
        if memcmp(p + start, b"\x82SNA", 4) != 0:
            break
        if not is_xerial(p + start, size - start):
            return found(out, FAULT_SNAPPY_HEADER, start)
        field = load32(p + start + 8)
        if start > 0 and field < SNAPPY_VERSION:
            return found_value(out, FAULT_SNAPPY_VERSION, start, field, 0)
        start += SNAPPY_HEADER
    field = load32(p + start)
    if field < 0 or field > size - start - 4:
        return found(out, FAULT_SNAPPY_SIZE, start)
    at[0] = start + 4
    block_size[0] = field
    return OK


cdef inline int64_t snappy_length(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Return the decompressed size that a block states in its first varint; -1 where that is cut off or too long."""
    cdef uint64_t value = 0
    cdef int i
    if size == 0:
        return 0
    for i in range(min(size, <Py_ssize_t>5)):
        value |= <uint64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            return <int64_t>value if value <= 0xFFFFFFFFU else -1
    return -1


# --- zstd

cdef struct ZstdFrame:
    Py_ssize_t end
    int64_t bound                   # the most that it can decompress to; -1 for a skippable frame, which holds nothing
    bint exact                      # the frame says so itself


cdef inline uint64_t little(const uint8_t* p, int size) noexcept nogil:
    """A little-endian number of up to eight bytes."""
    cdef uint64_t value = 0
    memcpy(&value, p, <size_t>size)
    return value


cdef inline int zstd_frame(const uint8_t* p, Py_ssize_t size, Py_ssize_t start, ZstdFrame* f, Finding* out) noexcept nogil:
    """The frame that begins at `start` (RFC 8878, 3.1), its blocks walked: Java's frames do not say how much they hold."""
    cdef Py_ssize_t at = start + 5
    cdef uint64_t declared = 0
    cdef int64_t largest = 0
    cdef int descriptor
    cdef int wide
    cdef int status
    if size - start < 4:
        return found(out, FAULT_ZSTD_CUT, size)
    if word(p + start) & 0xFFFFFFF0U == ZSTD_SKIPPABLE:
        if size - start < 8:
            return found(out, FAULT_ZSTD_CUT, size)
        if <int64_t>word(p + start + 4) > size - start - 8:
            return found(out, FAULT_ZSTD_SKIPPABLE, start)
        f.end = start + 8 + <Py_ssize_t>word(p + start + 4)
        f.bound = -1
        f.exact = True
        return OK
    if word(p + start) != ZSTD_MAGIC:
        return found(out, FAULT_ZSTD_MAGIC, start)
    if at > size:
        return found(out, FAULT_ZSTD_CUT, size)
    descriptor = p[start + 4]
    wide = 1 << (descriptor >> 6)
    if wide == 1 and not descriptor & 0x20:
        wide = 0
    if not descriptor & 0x20:
        if at >= size:
            return found(out, FAULT_ZSTD_CUT, size)
        largest = (<int64_t>1 << (10 + (p[at] >> 3))) // 8 * (8 + (p[at] & 7))
        at += 1
    at += (1 << (descriptor & 3)) >> 1      # the number of a dictionary: 0, 1, 2 or 4 bytes
    if wide > size - at:
        return found(out, FAULT_ZSTD_CUT, size)
    if wide:
        declared = little(p + at, wide) + (256 if wide == 2 else 0)
        at += wide
    if descriptor & 0x20:
        largest = <int64_t>min(declared, <uint64_t>ZSTD_LARGEST)
    status = zstd_blocks(p, size, &at, min(largest, <int64_t>ZSTD_LARGEST), f, out)
    if status != OK:
        return status
    if descriptor & 4:
        at += 4
    if at > size:
        return found(out, FAULT_ZSTD_CUT, size)
    f.end = at
    f.exact = wide != 0
    if wide:
        if declared > <uint64_t>f.bound:
            return found_value(out, FAULT_ZSTD_DECLARED, start, <int64_t>min(declared, <uint64_t>INT64_MAX), f.bound)
        f.bound = <int64_t>declared
    return OK


cdef inline int zstd_blocks(
    const uint8_t* p, Py_ssize_t size, Py_ssize_t* at, int64_t largest, ZstdFrame* f, Finding* out
) noexcept nogil:
    """Sums what the blocks can hold, and moves behind the last; raw and repeated ones say their size."""
    cdef Py_ssize_t start
    cdef uint32_t header
    cdef int64_t block_size
    cdef int kind
    f.bound = 0
    while True:
        start = at[0]
        if size - start < 3:
            return found(out, FAULT_ZSTD_CUT, size)
        header = <uint32_t>little(p + start, 3)
        kind = (header >> 1) & 3
        block_size = header >> 3
        if kind == 3:
            return found(out, FAULT_ZSTD_KIND, start)
        f.bound += largest if kind == 2 else min(largest, block_size)
        block_size = 1 if kind == 1 else block_size
        if block_size > size - start - 3:
            return found(out, FAULT_BLOCK_END, start)
        at[0] = start + 3 + <Py_ssize_t>block_size
        if header & 1:
            return OK
