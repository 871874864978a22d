"""Protobuf's wire format: tags, varints, lengths, and unwanted fields, each checked against the end."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.text.text_buffer cimport kl_likely

cdef enum WireType:
    WIRE_VARINT = 0
    WIRE_64 = 1
    WIRE_BYTES = 2
    WIRE_GROUP = 3
    WIRE_GROUP_END = 4
    WIRE_32 = 5

cdef enum WireStatus:
    # they follow a put's statuses; TEXTS in protobuf_rows.pyx has a text for each
    WIRE_OK = 0
    WIRE_ENDS = 16              # the bytes end within a field
    WIRE_LONG_VARINT = 17       # a number of more than ten bytes, a tag or length of more than five
    WIRE_TAG = 18               # no tag of a field
    WIRE_TYPE = 19              # not the wire type of the field
    WIRE_END_GROUP = 20         # the end of a group that did not begin
    WIRE_DEPTH = 21             # groups nested too deeply
    WIRE_UTF8 = 22              # a string that is not UTF-8
    WIRE_REQUIRED = 23          # a required field is missing
    WIRE_RANGE = 24             # a time or duration beyond its column
    WIRE_HEADER = 25            # no registry's header
    WIRE_INDEXES = 26           # the indexes of the message's type are none
    WIRE_OTHER = 27             # the indexes of another message's type
    WIRE_LENGTH = 28            # the length before the message is not the row's
    WIRE_MALFORMED = 29         # the Arrow column contradicts itself

cdef enum:
    MOST_GROUPS = 100           # groups within each other that are skipped
    MOST_SHORT_BYTES = 5        # bytes of a tag's or a length's number


cdef struct Wire:
    const uint8_t* p
    const uint8_t* end


cdef inline int read_long_varint(Wire* w, uint64_t* out) noexcept nogil:
    cdef uint64_t v = 0
    cdef int shift = 0
    cdef const uint8_t* p = w.p
    while p < w.end:
        v |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            w.p = p + 1
            out[0] = v
            return WIRE_OK
        p += 1
        shift += 7
        if shift > 63:
            return WIRE_LONG_VARINT
    return WIRE_ENDS


cdef inline int read_varint(Wire* w, uint64_t* out) noexcept nogil:
    """Bits beyond the 64th are left out, as the reference does."""
    if kl_likely(w.p < w.end and w.p[0] < 0x80):
        out[0] = w.p[0]
        w.p += 1
        return WIRE_OK
    return read_long_varint(w, out)


cdef inline int read_short_varint(Wire* w, uint64_t* out) noexcept nogil:
    """Read a tag's or a length's number, which has at most five bytes, as the reference does."""
    cdef const uint8_t* first = w.p
    cdef int status
    if kl_likely(w.p < w.end and w.p[0] < 0x80):
        out[0] = w.p[0]
        w.p += 1
        return WIRE_OK
    status = read_long_varint(w, out)
    return WIRE_LONG_VARINT if status == WIRE_OK and w.p - first > MOST_SHORT_BYTES else status


cdef inline int read_tag(Wire* w, uint32_t* number, int* wire) noexcept nogil:
    cdef uint64_t v = 0
    cdef int status = read_short_varint(w, &v)
    if status != WIRE_OK:
        return status
    if v > 0xFFFFFFFFULL or v < 8 or (v & 7) > WIRE_32:
        return WIRE_TAG
    number[0] = <uint32_t>(v >> 3)
    wire[0] = <int>(v & 7)
    return WIRE_OK


cdef inline int read_length(Wire* w, const uint8_t** data, int64_t* size) noexcept nogil:
    """Go over a length and its bytes."""
    cdef uint64_t v = 0
    cdef int status = read_short_varint(w, &v)
    if status != WIRE_OK:
        return status
    if v > <uint64_t>(w.end - w.p):
        return WIRE_ENDS
    data[0] = w.p
    size[0] = <int64_t>v
    w.p += v
    return WIRE_OK


cdef inline int skip_bytes(Wire* w, int64_t size) noexcept nogil:
    if w.end - w.p < size:
        return WIRE_ENDS
    w.p += size
    return WIRE_OK


cdef inline int skip_field(Wire* w, uint32_t number, int wire) noexcept nogil:
    """Go over the value behind a tag; a group with all that is in it."""
    cdef uint32_t open_groups[MOST_GROUPS]
    cdef int depth = 0
    cdef int status
    cdef uint64_t v = 0
    cdef const uint8_t* data
    cdef int64_t size
    while True:
        if wire == WIRE_VARINT:
            status = read_varint(w, &v)
        elif wire == WIRE_64:
            status = skip_bytes(w, 8)
        elif wire == WIRE_BYTES:
            status = read_length(w, &data, &size)
        elif wire == WIRE_32:
            status = skip_bytes(w, 4)
        elif wire == WIRE_GROUP:
            status = WIRE_DEPTH if depth == MOST_GROUPS else WIRE_OK
            if status == WIRE_OK:
                open_groups[depth] = number
                depth += 1
        elif depth == 0 or open_groups[depth - 1] != number:
            status = WIRE_END_GROUP
        else:
            status = WIRE_OK
            depth -= 1
        if status != WIRE_OK or depth == 0:
            return status
        status = read_tag(w, &number, &wire)
        if status != WIRE_OK:
            return status
