"""JSON text as RFC 8259 has it, and nothing else: strings, numbers and whole values walked over with every check.

A `Reader` stands at a byte of a row. Each call moves it forward and returns JSON_OK, or why the text is no JSON, with
the reader at the byte that is wrong.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kafkalog._core.text.text_buffer cimport kl_likely, sequence_length
from kafkalog._core.values.decimal_text cimport NUMBER_ENDS, NUMBER_OK, Number, read_number

cdef extern from *:
    int ctz64 "__builtin_ctzll"(unsigned long long x) noexcept nogil

cdef enum JsonStatus:
    # they follow a put's statuses; JSON_TEXTS in json_rows.pyx has a text for each
    JSON_OK = 0
    JSON_EMPTY = 16             # no value at all
    JSON_ENDS = 17              # the bytes end within it
    JSON_SYNTAX = 18            # a byte that cannot stand there
    JSON_TRAILING = 19          # bytes behind the value
    JSON_DEPTH = 20             # nested too deeply
    JSON_ESCAPE = 21            # an escape that JSON does not have
    JSON_SURROGATE = 22         # half of a pair alone
    JSON_CONTROL = 23           # a control character in a string
    JSON_UTF8 = 24              # a string that is not UTF-8
    JSON_NUMBER = 25            # what begins like a number and is none
    JSON_RANGE = 26             # a number beyond its type
    JSON_FRACTION = 27          # a fraction for whole numbers
    JSON_LONG = 28              # a number of too many digits for a double
    JSON_TYPE = 29              # a value of another kind than the column's
    JSON_FORMAT = 30            # text that is no time or date
    JSON_HEADER = 31            # no registry's header where it has to be
    JSON_NO_HEADER = 32         # a registry's header where none is
    JSON_MALFORMED = 33         # the Arrow column contradicts itself

cdef enum:
    MOST_NESTED = 1024          # levels of arrays and objects
    LEVEL_BYTES = 128           # a bit for each


cdef struct Reader:
    const uint8_t* p
    const uint8_t* end
    const uint8_t* text         # the string that was scanned last, without its quotes
    int64_t size
    bint escaped                # it has escapes
    int depth


cdef inline bint at_space(uint8_t c) noexcept nogil:
    return c == 32 or c == 10 or c == 13 or c == 9


cdef inline bint next_byte(Reader* r) noexcept nogil:
    """Go over white space; False where the bytes end."""
    while r.p < r.end:
        if kl_likely(r.p[0] > 32):
            return True
        if not at_space(r.p[0]):
            return True
        r.p += 1
    return False


cdef inline int hex4(const uint8_t* p) noexcept nogil:
    """The number that four hexadecimal digits are, -1 for others."""
    cdef int v = 0
    cdef int i
    cdef uint8_t c
    for i in range(4):
        c = p[i]
        if 48 <= c <= 57:
            c -= 48
        elif 97 <= (c | 32) <= 102:
            c = (c | 32) - 87
        else:
            return -1
        v = v << 4 | c
    return v


cdef inline int scan_escape(Reader* r) noexcept nogil:
    """Check the escape at the reader and go behind it, and behind the second half of a pair."""
    cdef int v
    cdef uint8_t c
    if r.end - r.p < 2:
        return JSON_ENDS
    c = r.p[1]
    if c != 117:
        if c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116:
            r.p += 2
            return JSON_OK
        return JSON_ESCAPE
    if r.end - r.p < 6:
        return JSON_ENDS
    v = hex4(r.p + 2)
    if v < 0:
        return JSON_ESCAPE
    if v & 0xF800 == 0xD800:
        if v >= 0xDC00 or r.end - r.p < 12 or r.p[6] != 92 or r.p[7] != 117 or hex4(r.p + 8) & ~0x3FF != 0xDC00:
            return JSON_SURROGATE
        r.p += 6
    r.p += 6
    return JSON_OK


cdef inline int scan_string(Reader* r) noexcept nogil:
    """Skip the string whose opening quote the reader is at; `text`, `size` and `escaped` describe it."""
    cdef uint64_t word
    cdef uint64_t q
    cdef uint64_t b
    cdef uint64_t special
    cdef int status
    cdef uint32_t length
    cdef bint valid = False
    cdef uint8_t c
    r.p += 1
    r.text = r.p
    r.escaped = False
    while True:
        while kl_likely(r.end - r.p >= 8):
            memcpy(&word, r.p, 8)
            q = word ^ 0x2222222222222222ULL
            b = word ^ 0x5C5C5C5C5C5C5C5CULL
            special = (
                ((q - 0x0101010101010101ULL) & ~q)
                | ((b - 0x0101010101010101ULL) & ~b)
                | (word - 0x2020202020202020ULL)    # of bytes from 0x80 on too, which are special anyway
                | word
            ) & 0x8080808080808080ULL
            if special:
                r.p += ctz64(special) >> 3
                break
            r.p += 8
        if r.p >= r.end:
            return JSON_ENDS
        c = r.p[0]
        if c == 34:
            r.size = r.p - r.text
            r.p += 1
            return JSON_OK
        if c == 92:
            r.escaped = True
            status = scan_escape(r)
            if status != JSON_OK:
                return status
        elif c < 32:
            return JSON_CONTROL
        elif c >= 128:
            length = sequence_length(r.p, <size_t>(r.end - r.p), &valid)
            if not valid:
                return JSON_UTF8
            r.p += length
        else:
            r.p += 1


cdef inline int64_t unescape(const uint8_t* s, int64_t size, uint8_t* out) noexcept nogil:
    """Write a scanned string with its escapes resolved, which is never longer; returns the bytes written."""
    cdef const uint8_t* end = s + size
    cdef uint8_t* d = out
    cdef uint32_t v
    cdef uint8_t c
    while s < end:
        c = s[0]
        if c != 92:
            d[0] = c
            d += 1
            s += 1
            continue
        c = s[1]
        s += 2
        if c != 117:
            if c == 98:
                c = 8
            elif c == 102:
                c = 12
            elif c == 110:
                c = 10
            elif c == 114:
                c = 13
            elif c == 116:
                c = 9
            d[0] = c
            d += 1
            continue
        v = <uint32_t>hex4(s)
        s += 4
        if v & 0xF800 == 0xD800:
            v = 0x10000 + ((v & 0x3FF) << 10) + (<uint32_t>hex4(s + 2) & 0x3FF)
            s += 6
        d += put_character(d, v)
    return d - out


cdef inline int put_character(uint8_t* d, uint32_t v) noexcept nogil:
    if v < 0x80:
        d[0] = <uint8_t>v
        return 1
    if v < 0x800:
        d[0] = <uint8_t>(0xC0 | v >> 6)
        d[1] = <uint8_t>(0x80 | v & 0x3F)
        return 2
    if v < 0x10000:
        d[0] = <uint8_t>(0xE0 | v >> 12)
        d[1] = <uint8_t>(0x80 | v >> 6 & 0x3F)
        d[2] = <uint8_t>(0x80 | v & 0x3F)
        return 3
    d[0] = <uint8_t>(0xF0 | v >> 18)
    d[1] = <uint8_t>(0x80 | v >> 12 & 0x3F)
    d[2] = <uint8_t>(0x80 | v >> 6 & 0x3F)
    d[3] = <uint8_t>(0x80 | v & 0x3F)
    return 4


cdef inline int scan_number(Reader* r, Number* n) noexcept nogil:
    cdef int status = read_number(r.p, r.end, n)
    if kl_likely(status == NUMBER_OK):
        r.p = n.end
        return JSON_OK
    r.p = n.end
    return JSON_ENDS if status == NUMBER_ENDS else JSON_NUMBER


cdef inline int scan_word(Reader* r, const char* word, int size) noexcept nogil:
    """Go over `true`, `false` or `null`."""
    if r.end - r.p >= size and memcmp(r.p, word, <size_t>size) == 0:
        r.p += size
        return JSON_OK
    if r.end - r.p < size and memcmp(r.p, word, <size_t>(r.end - r.p)) == 0:
        r.p = r.end
        return JSON_ENDS
    return JSON_SYNTAX


cdef inline int scan_simple(Reader* r) noexcept nogil:
    """Go over a value that is neither an array nor an object."""
    cdef uint8_t c = r.p[0]
    cdef Number n
    if c == 34:
        return scan_string(r)
    if c == 45 or 48 <= c <= 57:
        return scan_number(r, &n)
    if c == 116:
        return scan_word(r, b"true", 4)
    if c == 102:
        return scan_word(r, b"false", 5)
    if c == 110:
        return scan_word(r, b"null", 4)
    return JSON_SYNTAX


cdef inline int scan_colon(Reader* r) noexcept nogil:
    """Go over a colon, and over white space around it; the reader is then at a byte."""
    if not next_byte(r):
        return JSON_ENDS
    if r.p[0] != 58:
        return JSON_SYNTAX
    r.p += 1
    return JSON_OK if next_byte(r) else JSON_ENDS


cdef inline int skip_name(Reader* r) noexcept nogil:
    cdef int status
    if r.p[0] != 34:
        return JSON_SYNTAX
    status = scan_string(r)
    return scan_colon(r) if status == JSON_OK else status


cdef inline int skip_nested(Reader* r) noexcept nogil:
    """Go over an array or object, with a bit for each level: 1 for an object."""
    cdef uint8_t levels[LEVEL_BYTES]
    cdef int depth = 0
    cdef int status
    cdef uint8_t c
    cdef bint in_object
    while True:                                     # the reader is at a value
        c = r.p[0]
        if c == 123 or c == 91:
            in_object = c == 123
            if r.depth + depth >= MOST_NESTED:
                return JSON_DEPTH
            if in_object:
                levels[depth >> 3] |= <uint8_t>(1 << (depth & 7))
            else:
                levels[depth >> 3] &= <uint8_t>(~(1 << (depth & 7)))
            depth += 1
            r.p += 1
            if not next_byte(r):
                return JSON_ENDS
            if r.p[0] == c + 2:                     # } follows { by two, as ] does [
                r.p += 1
                depth -= 1
            else:
                if in_object:
                    status = skip_name(r)
                    if status != JSON_OK:
                        return status
                continue
        else:
            status = scan_simple(r)
            if status != JSON_OK:
                return status
        while True:                                 # behind a value
            if depth == 0:
                return JSON_OK
            in_object = (levels[(depth - 1) >> 3] >> ((depth - 1) & 7)) & 1
            if not next_byte(r):
                return JSON_ENDS
            c = r.p[0]
            if c == (125 if in_object else 93):
                r.p += 1
                depth -= 1
                continue
            if c != 44:
                return JSON_SYNTAX
            r.p += 1
            if not next_byte(r):
                return JSON_ENDS
            break
        if in_object:
            status = skip_name(r)
            if status != JSON_OK:
                return status


cdef inline int skip_value(Reader* r) noexcept nogil:
    """Go over the value at the reader, checking all of it."""
    if r.p[0] == 123 or r.p[0] == 91:
        return skip_nested(r)
    return scan_simple(r)
