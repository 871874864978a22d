"""The steps of Avro programs: one value read byte by byte into its columns, without the GIL.

Nothing of the data is believed: lengths are compared with the bytes that are left, block counts with the bytes that so
many items take at least; items without bytes are counted against a limit.
"""
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.values.avro_program cimport (
    OP_ARRAY, OP_BOOL, OP_BRANCH, OP_BYTES, OP_DECIMAL, OP_DEFAULT, OP_DOUBLE, OP_ENUM, OP_FAIL, OP_FIXED,
    OP_FIXED_DECIMAL, OP_FIXED_UUID, OP_FLOAT, OP_FLOAT_TO_DOUBLE, OP_INT, OP_INT_TO_DOUBLE, OP_INT_TO_FLOAT,
    OP_INT_TO_LONG, OP_LONG, OP_LONG_TO_DOUBLE, OP_MAP, OP_NULL, OP_NUMBERED_ENUM, OP_RECORD, OP_SKIP_ARRAY,
    OP_SKIP_BOOL, OP_SKIP_BYTES, OP_SKIP_MAP, OP_SKIP_NOTHING, OP_SKIP_NUMBER, OP_SKIP_RECORD, OP_TEXT, OP_TIME_MS,
    OP_TIME_US, OP_UNION, Op,
)
from kafkalog._core.values.hex cimport put_uuid
from kafkalog._core.values.items cimport drop_earlier_keys
from kafkalog._core.values.nodes cimport (
    BOOL_NODE, PUT_CODES, PUT_OK, Node, end_list, end_struct, put_bool, put_bytes, put_fixed, put_null,
    put_text, put_value,
)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* a decimal of `size` big-endian bytes as 16 little-endian ones; 0 where it has more than `digits` digits */
    static int kl_decimal(const uint8_t* p, int64_t size, int digits, uint8_t* out) {
        unsigned __int128 value, most = 1;
        __int128 number;
        int negative = size > 0 && (p[0] & 0x80);
        value = negative ? ~(unsigned __int128)0 : 0;
        while (size > 16) {
            if (p[0] != (negative ? 0xFF : 0)) return 0;
            p++;
            size--;
        }
        if (size == 16 && !!(p[0] & 0x80) != negative) return 0;
        for (; size > 0; size--) value = value << 8 | *p++;
        number = (__int128)value;
        for (; digits > 0; digits--) most *= 10;
        if (number >= (__int128)most || number <= -(__int128)most) return 0;
        memcpy(out, &number, 16);
        return 1;
    }
    """
    bint kl_decimal(const uint8_t* p, int64_t size, int digits, uint8_t* out) noexcept nogil

cdef enum:
    # statuses beside those of nodes.pxd
    SHORT = PUT_CODES           # it ends inside a value
    VARINT                      # a number of more than 64 bits
    BEYOND_INT                  # one of more than 32 bits for an int
    NO_BOOL
    NEGATIVE                    # a length below 0
    BEYOND                      # a length beyond the bytes that are left
    BLOCK                       # a block of more items than bytes
    ITEMS                       # more items without bytes than the limit
    NO_BRANCH
    NO_SYMBOL
    UNKNOWN_SYMBOL
    DECIMAL
    TIME
    TRAILING
    NO_HEADER
    LENGTH
    DEPTH
    REFUSED                     # by OP_FAIL

cdef enum:
    MOST_NESTED = 200           # of steps that skip a recursive type


cdef struct Run:
    # one value while it is read
    const uint8_t* p
    const uint8_t* end
    Node* nodes
    Node hidden                 # what steps without a node put into
    Node* inside                # it is its own child
    const Op* failed            # the step that met what is wrong, and its number
    int64_t detail
    int64_t items_left          # items that take no bytes
    int depth


cdef inline void hide(Run* r) noexcept nogil:
    """Make the node of fields that are checked, but have no column; the run stays where it is."""
    r.hidden.storage = BOOL_NODE
    r.hidden.hidden = True
    r.inside = &r.hidden
    r.hidden.children = &r.inside


cdef inline Node* node_of(Run* r, const Op* op) noexcept nogil:
    return &r.nodes[op.node] if op.node >= 0 else &r.hidden


cdef inline int long_slowly(Run* r, int64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint64_t b
    cdef int shift = 0
    while True:
        if r.p >= r.end:
            return SHORT
        b = r.p[0]
        r.p += 1
        if shift == 63 and b > 1:
            return VARINT
        value |= (b & 0x7F) << shift
        if b < 0x80:
            out[0] = <int64_t>((value >> 1) ^ (~(value & 1) + 1))
            return PUT_OK
        shift += 7


cdef inline int take_long(Run* r, int64_t* out) noexcept nogil:
    cdef uint64_t low
    if r.p < r.end and r.p[0] < 0x80:
        low = r.p[0]
        r.p += 1
        out[0] = <int64_t>((low >> 1) ^ (~(low & 1) + 1))
        return PUT_OK
    return long_slowly(r, out)


cdef inline int take_int(Run* r, int32_t* out) noexcept nogil:
    cdef int64_t value = 0
    cdef int status = take_long(r, &value)
    if status != PUT_OK:
        return status
    if value < INT32_MIN or value > INT32_MAX:
        r.detail = value
        return BEYOND_INT
    out[0] = <int32_t>value
    return PUT_OK


cdef inline int take_size(Run* r, int64_t* out) noexcept nogil:
    """A length that the bytes left have."""
    cdef int status = take_long(r, out)
    if status != PUT_OK:
        return status
    if out[0] < 0 or out[0] > r.end - r.p:
        r.detail = out[0]
        return NEGATIVE if out[0] < 0 else BEYOND
    return PUT_OK


cdef inline int need(Run* r, int64_t size) noexcept nogil:
    return PUT_OK if size <= r.end - r.p else SHORT


cdef inline int take_block(Run* r, const Op* op, int64_t* count, int64_t* skipped) noexcept nogil:
    """The count of the next block of an array or a map, 0 at its end; `skipped` is its size if it says so, or -1."""
    cdef int status = take_long(r, count)
    skipped[0] = -1
    if status == PUT_OK and count[0] < 0:
        r.detail = count[0]
        if count[0] == INT64_MIN:
            return BLOCK
        count[0] = -count[0]
        status = take_size(r, skipped)
    if status != PUT_OK or count[0] == 0:
        return status
    r.detail = count[0]
    if op.extra > 0:
        return PUT_OK if count[0] <= (r.end - r.p) // op.extra else BLOCK
    if count[0] > r.items_left:
        return ITEMS
    r.items_left -= count[0]
    return PUT_OK


cdef inline int run_items(Run* r, const Op* op) noexcept nogil:
    """An array, or a map, whose items are a struct of key and value; of a key that comes twice the last one counts."""
    cdef Node* node = node_of(r, op)
    cdef Node* entry = node.children[0]
    cdef int64_t count = 0
    cdef int64_t skipped = 0
    cdef int64_t size = 0
    cdef int64_t i
    cdef int status
    while True:
        status = take_block(r, op, &count, &skipped)
        if status != PUT_OK:
            r.failed = op
            return status
        if count == 0:
            status = drop_earlier_keys(node) if op.code == OP_MAP else PUT_OK
            return end_list(node) if status == PUT_OK else status
        for i in range(count):
            if op.code == OP_MAP:
                status = take_size(r, &size)
                if status == PUT_OK:
                    status = put_text(entry.children[0], r.p, size)
                    r.p += size
                if status != PUT_OK:
                    r.failed = op
                    return status
            status = run(r, op.parts[0])
            if status == PUT_OK and op.code == OP_MAP:
                status = end_struct(entry)
            if status != PUT_OK:
                return status


cdef inline int skip_items(Run* r, const Op* op) noexcept nogil:
    cdef int64_t count = 0
    cdef int64_t skipped = 0
    cdef int64_t size = 0
    cdef int64_t i
    cdef int status
    while True:
        status = take_block(r, op, &count, &skipped)
        if status != PUT_OK:
            r.failed = op
            return status
        if count == 0:
            return PUT_OK
        if skipped >= 0:
            r.p += skipped
            continue
        if op.code == OP_SKIP_ARRAY and op.extra == 0:
            if op.parts[0].code == OP_SKIP_NOTHING:
                continue
        for i in range(count):
            if op.code == OP_SKIP_MAP:
                status = take_size(r, &size)
                if status != PUT_OK:
                    r.failed = op
                    return status
                r.p += size
            status = run(r, op.parts[0])
            if status != PUT_OK:
                return status


cdef inline int run_enum(Run* r, const Op* op) noexcept nogil:
    cdef int64_t number = 0
    cdef int status = take_long(r, &number)
    if status != PUT_OK:
        return status
    r.detail = number
    if number < 0 or number >= op.table_size:
        return NO_SYMBOL
    number = op.table[number]
    if number < 0:
        return UNKNOWN_SYMBOL
    if op.code == OP_NUMBERED_ENUM:
        return put_value(node_of(r, op), <int32_t>number)
    return put_bytes(node_of(r, op), <const uint8_t*>op.words[number], op.word_sizes[number])


cdef inline int run_union(Run* r, const Op* op) noexcept nogil:
    cdef int64_t branch = 0
    cdef int status = take_long(r, &branch)
    if status == PUT_OK and (branch < 0 or branch >= op.part_count):
        r.detail = branch
        status = NO_BRANCH
    if status != PUT_OK:
        r.failed = op
        return status
    return run(r, op.parts[branch])


cdef inline int run_branch(Run* r, const Op* op) noexcept nogil:
    """A branch of a union that is a struct: the other branches are null."""
    cdef Node* node = node_of(r, op)
    cdef int i
    cdef int status = run(r, op.parts[0])
    for i in range(node.child_count):
        if status == PUT_OK and i != op.size:
            status = put_null(node.children[i])
    return status if status != PUT_OK else end_struct(node)


cdef inline int run_default(Run* r, const Op* op) noexcept nogil:
    cdef const uint8_t* p = r.p
    cdef const uint8_t* end = r.end
    cdef int64_t items_left = r.items_left
    cdef int status
    r.p = op.data
    r.end = op.data + op.data_size
    r.items_left = INT64_MAX                    # the schema has a limit for defaults: the value's is for its own items
    status = run(r, op.parts[0])
    r.p = p
    r.end = end
    r.items_left = items_left
    return status


cdef inline int run_wide(Run* r, const Op* op) noexcept nogil:
    """The leaves that are rare: decimals, times, UUIDs, promotions."""
    cdef Node* node = node_of(r, op)
    cdef uint8_t number[16]
    cdef int64_t size = 0
    cdef int32_t small = 0
    cdef float single
    cdef int status
    if op.code == OP_DECIMAL or op.code == OP_FIXED_DECIMAL:
        if op.code == OP_DECIMAL:
            status = take_size(r, &size)
        else:
            size = op.size
            status = need(r, size)
        if status != PUT_OK:
            return status
        if not kl_decimal(r.p, size, <int>op.extra, number):
            return DECIMAL
        r.p += size
        return put_fixed(node, number)
    if op.code == OP_FIXED_UUID:
        status = need(r, 16)
        if status == PUT_OK:
            status = put_uuid(node, r.p)
            r.p += 16
        return status
    if op.code == OP_TIME_MS:
        status = take_int(r, &small)
        r.detail = small
        if status == PUT_OK and (small < 0 or small >= 86_400_000):
            return TIME
        return put_value(node, small) if status == PUT_OK else status
    if op.code == OP_FLOAT_TO_DOUBLE:
        status = need(r, 4)
        if status == PUT_OK:
            memcpy(&single, r.p, 4)
            r.p += 4
            status = put_value(node, <double>single)
        return status
    if op.code == OP_INT_TO_LONG or op.code == OP_INT_TO_FLOAT or op.code == OP_INT_TO_DOUBLE:
        status = take_int(r, &small)
        size = small
    else:
        status = take_long(r, &size)
    if status != PUT_OK:
        return status
    if op.code == OP_TIME_US:
        r.detail = size
        return put_value(node, size) if size >= 0 and size < <int64_t>86_400_000_000 else TIME
    if op.code == OP_INT_TO_LONG:
        return put_value(node, size)
    if op.code == OP_INT_TO_DOUBLE or op.code == OP_LONG_TO_DOUBLE:
        return put_value(node, <double>size)
    return put_value(node, <float>size)


cdef inline int skip_leaf(Run* r, const Op* op) noexcept nogil:
    cdef int64_t size = 0
    cdef int status = PUT_OK
    if op.code == OP_SKIP_NUMBER:
        return take_long(r, &size)
    if op.code == OP_SKIP_BYTES:
        status = take_size(r, &size)
    elif op.code == OP_SKIP_NOTHING:
        return PUT_OK
    else:
        size = 1 if op.code == OP_SKIP_BOOL else op.size
        status = need(r, size)
        if status == PUT_OK and op.code == OP_SKIP_BOOL and r.p[0] > 1:
            r.detail = r.p[0]
            return NO_BOOL
    if status == PUT_OK:
        r.p += size
    return status


cdef inline int run_leaf(Run* r, const Op* op) noexcept nogil:
    """Read a value without parts, and put it."""
    cdef Node* node = node_of(r, op)
    cdef int64_t size = 0
    cdef int32_t small = 0
    cdef float single
    cdef double twice
    cdef int status
    if op.code == OP_TEXT or op.code == OP_BYTES:
        status = take_size(r, &size)
        if status != PUT_OK:
            return status
        status = put_text(node, r.p, size) if op.code == OP_TEXT else put_bytes(node, r.p, size)
        r.p += size
        return status
    if op.code == OP_LONG:
        status = take_long(r, &size)
        return put_value(node, size) if status == PUT_OK else status
    if op.code == OP_INT:
        status = take_int(r, &small)
        return put_value(node, small) if status == PUT_OK else status
    if op.code == OP_NULL:
        return put_null(node)
    if op.code == OP_DOUBLE:
        if r.end - r.p < 8:
            return SHORT
        memcpy(&twice, r.p, 8)
        r.p += 8
        return put_value(node, twice)
    if op.code == OP_FLOAT:
        if r.end - r.p < 4:
            return SHORT
        memcpy(&single, r.p, 4)
        r.p += 4
        return put_value(node, single)
    if op.code == OP_BOOL:
        if r.p >= r.end:
            return SHORT
        r.detail = r.p[0]
        if r.p[0] > 1:
            return NO_BOOL
        r.p += 1
        return put_bool(node, r.detail != 0)
    if op.code == OP_ENUM or op.code == OP_NUMBERED_ENUM:
        return run_enum(r, op)
    if op.code == OP_FIXED:
        status = need(r, op.size)
        if status == PUT_OK:
            status = put_fixed(node, r.p)
            r.p += op.size
        return status
    if op.code == OP_FAIL:
        return REFUSED
    return run_wide(r, op)


cdef inline int run(Run* r, const Op* op) noexcept nogil:
    """Read what a step says and put it; `failed` is the step that could not."""
    cdef int i
    cdef int status = PUT_OK
    if op.code < OP_ARRAY or op.code == OP_FAIL:
        status = run_leaf(r, op)
        if status != PUT_OK:
            r.failed = op
        return status
    if op.code == OP_SKIP_NOTHING or (op.code >= OP_SKIP_BOOL and op.code <= OP_SKIP_BYTES):
        status = skip_leaf(r, op)
        if status != PUT_OK:
            r.failed = op
        return status
    if op.code == OP_UNION:
        return run_nested(r, op)
    if r.depth >= MOST_NESTED:
        r.failed = op
        return DEPTH
    r.depth += 1
    if op.code == OP_RECORD or op.code == OP_SKIP_RECORD:
        for i in range(op.part_count):
            status = run(r, op.parts[i])
            if status != PUT_OK:
                return status
        if op.code == OP_RECORD:
            status = end_struct(node_of(r, op))
    elif op.code == OP_ARRAY or op.code == OP_MAP:
        status = run_items(r, op)
    elif op.code == OP_BRANCH:
        status = run_branch(r, op)
    elif op.code == OP_DEFAULT:
        status = run_default(r, op)
    else:
        status = skip_items(r, op)
    r.depth -= 1
    return status


cdef inline int run_nested(Run* r, const Op* op) noexcept nogil:
    cdef int status
    if r.depth >= MOST_NESTED:
        r.failed = op
        return DEPTH
    r.depth += 1
    status = run_union(r, op)
    r.depth -= 1
    return status
