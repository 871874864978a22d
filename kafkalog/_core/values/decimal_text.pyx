"""Numbers of JSON as doubles: exact products, then Eisel and Lemire's method, then the C library."""
from libc.math cimport isinf
from libc.string cimport memcpy

cdef extern from *:
    """
    #ifdef __APPLE__
    #include <xlocale.h>
    #else
    #include <locale.h>
    #endif
    #include <stdlib.h>
    static locale_t kl_plain_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }
    """
    ctypedef void* locale_t
    locale_t kl_plain_locale() noexcept nogil
    double strtod_l(const char* text, char** end, locale_t locale) noexcept nogil
    int clz64 "__builtin_clzll"(unsigned long long x) noexcept nogil

cdef enum:
    LEAST_POWER = -342          # below, every number of 19 digits is 0
    MOST_POWER = 308

cdef uint64_t POWERS[1302]      # the first 128 bits of 5^q from LEAST_POWER on: high half, low half
cdef double TENS[23]
cdef locale_t PLAIN = kl_plain_locale()


cdef int fill_powers() except -1:
    cdef int i
    for i in range(MOST_POWER - LEAST_POWER + 1):
        q = i + LEAST_POWER
        if q < 0:
            size = (5 ** -q - 1).bit_length()
            power = 2 ** (size + 127 if q >= -27 else 2 * size + 128) // 5 ** -q + 1
        else:
            power = 5 ** q << 128
        power >>= power.bit_length() - 128
        POWERS[2 * i] = <uint64_t>(power >> 64)
        POWERS[2 * i + 1] = <uint64_t>(power & 0xFFFFFFFFFFFFFFFF)
    for i in range(23):
        TENS[i] = 10.0 ** i
    if PLAIN == NULL:
        raise MemoryError
    return 0


fill_powers()


cdef bint nearest(uint64_t m, int q, double* out) noexcept nogil:
    """The double nearest to m * 10^q for m > 0; False if this method cannot decide, or it is not a normal double."""
    cdef int lz = clz64(m)
    cdef uint64_t w = m << lz
    cdef int at = 2 * (q - LEAST_POWER)
    cdef kl_u128 product = <kl_u128>w * POWERS[at]
    cdef uint64_t high = <uint64_t>(product >> 64)
    cdef uint64_t low = <uint64_t>product
    cdef uint64_t more
    cdef uint64_t bits
    cdef int top
    cdef int64_t power
    if (high & 0x1FF) == 0x1FF:
        more = <uint64_t>((<kl_u128>w * POWERS[at + 1]) >> 64)
        low += more
        if more > low:
            high += 1
        if low == <uint64_t>0xFFFFFFFFFFFFFFFF and (q < -27 or q > 55):
            return False
    top = <int>(high >> 63)
    bits = high >> (top + 9)
    power = ((217706 * <int64_t>q) >> 16) + 63 + top - lz + 1023
    if power <= 0:
        return False
    if low <= 1 and q >= -4 and q <= 23 and (bits & 3) == 1 and bits << (top + 9) == high:
        bits &= ~<uint64_t>1        # a tie, which goes to the even one
    bits += bits & 1
    bits >>= 1
    if bits >= <uint64_t>1 << 53:
        bits = <uint64_t>1 << 52
        power += 1
    if power >= 2047:
        return False
    bits = (bits & ~(<uint64_t>1 << 52)) | <uint64_t>power << 52
    memcpy(out, &bits, 8)
    return True


cdef int by_library(const Number* n, double* out) noexcept nogil:
    """The C library's reading of the bytes."""
    cdef char text[MOST_NUMBER_BYTES + 1]
    cdef int64_t size = n.end - n.start
    if size > MOST_NUMBER_BYTES:
        return NUMBER_LONG
    memcpy(text, n.start, <size_t>size)
    text[size] = 0
    out[0] = strtod_l(text, NULL, PLAIN)
    return NUMBER_RANGE if isinf(out[0]) else NUMBER_OK


cdef int make_double(const Number* n, double* out) noexcept nogil:
    """The double nearest to a number; NUMBER_RANGE for one that would be infinite, NUMBER_LONG for too many digits."""
    cdef uint64_t m = n.mantissa
    cdef int64_t q = n.exponent
    cdef double d
    if not n.exact:
        return by_library(n, out)
    if m == 0 or q < LEAST_POWER:
        d = 0.0
    elif q > MOST_POWER:
        return NUMBER_RANGE
    elif q >= -22 and q <= 22 and m <= <uint64_t>1 << 53:
        d = <double>m
        d = d * TENS[q] if q >= 0 else d / TENS[-q]
    elif not nearest(m, <int>q, &d):
        return by_library(n, out)
    out[0] = -d if n.negative else d
    return NUMBER_OK


def to_double(bytes text not None):
    """The double of a number that JSON writes, None for anything else or one beyond its range: for tests."""
    cdef const uint8_t* data = text
    cdef Number n
    cdef double d = 0
    if read_number(data, data + len(text), &n) != NUMBER_OK or n.end != data + len(text):
        return None
    return d if make_double(&n, &d) == NUMBER_OK else None


def to_int64(bytes text not None):
    """The whole number of a text, None for anything else or one beyond 64 bits: for tests."""
    cdef const uint8_t* data = text
    cdef Number n
    cdef int64_t v = 0
    if read_number(data, data + len(text), &n) != NUMBER_OK or n.end != data + len(text):
        return None
    return v if make_int64(&n, &v) == NUMBER_OK else None
