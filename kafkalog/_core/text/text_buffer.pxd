"""A growing text buffer in C, and the numbers, the copies and Java's reading of UTF-8 that the renderers share."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from kafkalog._core.batch.layout cimport ERR_MEMORY, OK

cdef extern from *:
    """
    static const char kl_pairs[201] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    #define kl_likely(x) __builtin_expect(!!(x), 1)
    #define kl_unlikely(x) __builtin_expect(!!(x), 0)
    """
    const char* kl_pairs
    bint kl_likely(bint x) noexcept nogil
    bint kl_unlikely(bint x) noexcept nogil


cdef enum:
    SLACK = 64                  # bytes kept free past every reserved end, so that short copies may be wide ones
    EXPANSION = 3               # one malformed byte becomes the three bytes of U+FFFD


cdef struct Out:
    uint8_t* data
    size_t size
    size_t capacity


cdef class TextBuffer:
    cdef Out out
    cdef int exports            # memoryviews alive: the memory must not move
    cdef bint busy              # a renderer writes to it without the GIL: no other call may read it

    cdef int check_free(self) except -1
    cdef int begin(self) except -1
    cdef void end(self) noexcept


cdef inline int reserve(Out* out, uint64_t extra) noexcept nogil:
    """Room for extra bytes and the slack behind them; the buffer may move."""
    cdef uint64_t wanted = out.size + extra + SLACK
    cdef uint8_t* data
    if kl_likely(wanted <= out.capacity):
        return OK
    wanted += wanted >> 2
    data = <uint8_t*>realloc(out.data, wanted)
    if data == NULL:
        return ERR_MEMORY
    out.data = data
    out.capacity = wanted
    return OK


# --- writers: each takes the place to write to, reserved by the caller, and returns the place after the text

cdef inline uint8_t* put(uint8_t* d, const char* text, size_t n) noexcept nogil:
    memcpy(d, text, n)
    return d + n


cdef inline uint8_t* put_unsigned(uint8_t* d, uint64_t value) noexcept nogil:
    """Decimal digits, two at a time from the end."""
    cdef char digits[24]
    cdef int at = 24
    cdef uint64_t rest
    while value >= 100:
        rest = value // 100
        at -= 2
        memcpy(&digits[at], kl_pairs + 2 * (value - rest * 100), 2)
        value = rest
    if value >= 10:
        at -= 2
        memcpy(&digits[at], kl_pairs + 2 * value, 2)
    else:
        at -= 1
        digits[at] = <char>(48 + value)
    memcpy(d, &digits[at], 24 - at)
    return d + 24 - at


cdef inline uint8_t* put_number(uint8_t* d, int64_t value) noexcept nogil:
    if value < 0:
        d[0] = 45
        return put_unsigned(d + 1, ~(<uint64_t>value) + 1)
    return put_unsigned(d, <uint64_t>value)


cdef inline uint8_t* put_bytes(uint8_t* d, const uint8_t* s, size_t n, const uint8_t* readable) noexcept nogil:
    """A copy; a short one reads and writes 32 bytes at once where the source, up to readable, has them."""
    if n <= 32 and readable - s >= 32:
        memcpy(d, s, 32)
    else:
        memcpy(d, s, n)
    return d + n


cdef inline bint is_continuation(uint8_t b) noexcept nogil:
    return (b & 0xC0) == 0x80


cdef inline uint32_t sequence_length(const uint8_t* s, size_t n, bint* valid) noexcept nogil:
    """Bytes of the character at s (n >= 1 bytes left), or of the malformed piece that becomes one U+FFFD.

    A malformed piece is the longest start of a well-formed sequence, as Unicode recommends; only a surrogate (ED, then
    A0 to BF) is taken whole, as Java does (format.md section 13, A4).
    """
    cdef uint8_t a = s[0]
    cdef uint8_t b
    valid[0] = True
    if a < 0x80:
        return 1
    valid[0] = False
    if a < 0xC2 or a > 0xF4 or n < 2:
        return 1
    b = s[1]
    if not is_continuation(b) or (a == 0xE0 and b < 0xA0) or (a == 0xF0 and b < 0x90) or (a == 0xF4 and b > 0x8F):
        return 1
    if a < 0xE0:
        valid[0] = True
        return 2
    if n < 3 or not is_continuation(s[2]):
        return 2
    if a < 0xF0:
        valid[0] = a != 0xED or b < 0xA0
        return 3
    if n < 4 or not is_continuation(s[3]):
        return 3
    valid[0] = True
    return 4


cdef inline uint8_t* put_replaced(uint8_t* d, const uint8_t* s, size_t n) noexcept nogil:
    """The text as Java's `new String(bytes, UTF_8)` would be printed; takes up to EXPANSION * n bytes."""
    cdef uint32_t length
    cdef bint valid = False
    while n > 0:
        length = sequence_length(s, n, &valid)
        if valid:
            memcpy(d, s, length)
            d += length
        else:
            memcpy(d, b"\xef\xbf\xbd", 3)
            d += 3
        s += length
        n -= length
    return d


cdef inline uint8_t* put_java_text(uint8_t* d, const uint8_t* s, size_t n) noexcept nogil:
    """put_replaced with plain ASCII copied a word at a time."""
    cdef uint64_t word
    cdef uint32_t half
    while n >= 8:
        memcpy(&word, s, 8)
        if kl_unlikely((word & 0x8080808080808080ULL) != 0):
            return put_replaced(d, s, n)
        memcpy(d, &word, 8)
        d += 8
        s += 8
        n -= 8
    if n >= 4:
        memcpy(&half, s, 4)
        if kl_unlikely((half & 0x80808080U) != 0):
            return put_replaced(d, s, n)
        memcpy(d, &half, 4)
        d += 4
        s += 4
        n -= 4
    while n > 0:
        if kl_unlikely(s[0] >= 0x80):
            return put_replaced(d, s, n)
        d[0] = s[0]
        d += 1
        s += 1
        n -= 1
    return d


cdef inline bint is_utf8(const uint8_t* s, size_t n) noexcept nogil:
    """True if the bytes are well-formed UTF-8 (surrogates are not)."""
    cdef uint64_t word
    cdef uint32_t length
    cdef bint valid = False
    while n > 0:
        if n >= 8:
            memcpy(&word, s, 8)
            if (word & 0x8080808080808080ULL) == 0:
                s += 8
                n -= 8
                continue
        length = sequence_length(s, n, &valid)
        if not valid:
            return False
        s += length
        n -= length
    return True
