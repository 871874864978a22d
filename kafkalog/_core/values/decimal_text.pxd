"""Numbers as JSON writes them: looked at once, and made whole numbers or doubles without the machine's locale.

A double is the nearest one, ties to even: short numbers by one exact multiplication or division, most others by the
method of Eisel and Lemire (a product of 128 bits), the rest by the C library.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    typedef unsigned __int128 kl_u128;
    """
    ctypedef unsigned long long kl_u128     # 128 bits wide in C

cdef enum NumberStatus:
    NUMBER_OK = 0
    NUMBER_ENDS = 1             # the bytes end within it
    NUMBER_BAD = 2              # no number of JSON
    NUMBER_RANGE = 3            # beyond its type
    NUMBER_FRACTION = 4         # not whole
    NUMBER_LONG = 5             # too many bytes to be made a double

cdef extern from *:
    """
    #define KL_MOST_EXPONENT INT64_C(1000000000000000)
    """
    int64_t MOST_EXPONENT "KL_MOST_EXPONENT"  # no number has as many digits: beyond it is nothing, or too large

cdef enum:
    MOST_DIGITS = 19            # digits that a mantissa of 64 bits holds
    MOST_NUMBER_BYTES = 1100    # of a number that the C library is given: a double has at most 767 digits that count


cdef struct Number:
    const uint8_t* start
    const uint8_t* end
    uint64_t mantissa           # the first 19 digits that count
    int64_t exponent            # of 10, for the mantissa
    bint negative
    bint whole                  # no point and no exponent
    bint exact                  # the mantissa has all digits


cdef int make_double(const Number* n, double* out) noexcept nogil


cdef inline int read_exponent(const uint8_t* p, const uint8_t* end, Number* n) noexcept nogil:
    """Look at the exponent of a number, behind its E."""
    cdef int64_t given = 0
    cdef const uint8_t* first
    cdef uint8_t c
    cdef bint below = False
    n.whole = False
    if p < end and (p[0] == 43 or p[0] == 45):
        below = p[0] == 45
        p += 1
    first = p
    while p < end:
        c = <uint8_t>(p[0] - 48)
        if c > 9:
            break
        if given <= MOST_EXPONENT:
            given = 10 * given + c
        p += 1
    n.end = p
    if p == first:
        return NUMBER_ENDS if p == end else NUMBER_BAD
    n.exponent += -given if below else given
    return NUMBER_OK


cdef inline int read_number(const uint8_t* p, const uint8_t* end, Number* n) noexcept nogil:
    """Look at the number at `p`; `n.end` is behind it, or where it is no number."""
    cdef uint64_t m = 0
    cdef int digits = 0         # that count, and are in the mantissa
    cdef int64_t exponent = 0
    cdef const uint8_t* first
    cdef uint8_t c
    n.start = p
    n.negative = p < end and p[0] == 45
    n.whole = n.exact = True
    if n.negative:
        p += 1
    first = p
    while p < end:
        c = <uint8_t>(p[0] - 48)
        if c > 9:
            break
        if digits < MOST_DIGITS:
            m = 10 * m + c
            if m:
                digits += 1
        else:
            exponent += 1
            if c:
                n.exact = False
        p += 1
    n.end = p
    if p == first or (first[0] == 48 and p - first > 1):
        return NUMBER_ENDS if p == end and p == first else NUMBER_BAD
    if p < end and p[0] == 46:
        n.whole = False
        p += 1
        first = p
        while p < end:
            c = <uint8_t>(p[0] - 48)
            if c > 9:
                break
            if digits < MOST_DIGITS:
                m = 10 * m + c
                exponent -= 1
                if m:
                    digits += 1
            elif c:
                n.exact = False
            p += 1
        n.end = p
        if p == first:
            return NUMBER_ENDS if p == end else NUMBER_BAD
    n.mantissa = m
    n.exponent = exponent
    return read_exponent(p + 1, end, n) if p < end and (p[0] | 32) == 101 else NUMBER_OK


cdef inline int make_int64(const Number* n, int64_t* out) noexcept nogil:
    """The whole number that `n` is: 3, 3.0 and 3e0 are; NUMBER_FRACTION, NUMBER_RANGE for others."""
    cdef uint64_t m = n.mantissa
    cdef int64_t e = n.exponent
    cdef uint64_t most = <uint64_t>0x7FFFFFFFFFFFFFFF + (1 if n.negative else 0)
    if m == 0:
        out[0] = 0
        return NUMBER_OK
    while e < 0:
        if m % 10:
            return NUMBER_FRACTION
        m = m // 10
        e += 1
    if not n.exact:
        return NUMBER_RANGE if e > 0 or n.whole else NUMBER_FRACTION
    while e > 0:
        if m > most // 10:
            return NUMBER_RANGE
        m *= 10
        e -= 1
    if m > most:
        return NUMBER_RANGE
    out[0] = <int64_t>(~m + 1) if n.negative else <int64_t>m
    return NUMBER_OK
