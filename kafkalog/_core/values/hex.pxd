"""UUIDs as text."""
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.values.nodes cimport Node, put_bytes


cdef inline int put_uuid(Node* n, const uint8_t* data) noexcept nogil:
    """Put the 16 bytes of a UUID as its 36 characters."""
    cdef uint8_t text[36]
    cdef const char* digits = "0123456789abcdef"
    cdef int at = 0
    cdef int i
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            text[at] = c"-"
            at += 1
        text[at] = <uint8_t>digits[data[i] >> 4]
        text[at + 1] = <uint8_t>digits[data[i] & 15]
        at += 2
    return put_bytes(n, text, 36)


cdef inline bint is_uuid(const uint8_t* text, int64_t size) noexcept nogil:
    """True for 36 characters: hexadecimal digits of either case with hyphens at their places."""
    cdef int i
    cdef uint8_t c
    if size != 36:
        return False
    for i in range(36):
        c = text[i]
        if i == 8 or i == 13 or i == 18 or i == 23:
            if c != c"-":
                return False
        elif not (c"0" <= c <= c"9" or c"a" <= c <= c"f" or c"A" <= c <= c"F"):
            return False
    return True
