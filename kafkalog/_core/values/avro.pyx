"""Avro data into columns: steps that read what a writer's schema says, checked byte by byte, without the GIL.

Nothing of the data is believed: lengths are compared with the bytes that are left, block counts with the bytes that so
many items take at least; items without bytes are counted against a limit.
"""
cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kafkalog._core.arrow.cells cimport SOUND, Slice, read_cell
from kafkalog._core.bytes.endian cimport loadu32
from kafkalog._core.values.builder cimport Builder, row_done, row_failed
from kafkalog._core.values.hex cimport put_uuid
from kafkalog._core.values.nodes cimport (
    PUT_CODES, PUT_ENDS, PUT_LIMIT, PUT_MEMORY, PUT_OK, PUT_UTF8, Node, end_list, end_struct, put_32, put_64, put_bool,
    put_bytes, put_double, put_fixed, put_float, put_null, put_text,
)
from kafkalog._core.values.value_column cimport ValueColumn

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
    RAW = 0
    REGISTRY = 1                # a zero byte and a schema's id of four
    PREFIXED = 2                # the length as a zigzag varint
    SINGLE_OBJECT = 3           # C3 01 and the schema's fingerprint of eight bytes, little-endian

cdef int64_t DAY_US = 86_400_000_000

cdef enum:
    MOST_NESTED = 200           # of steps that skip a recursive type
    TEXT_SIZE = 512

FRAMINGS = {"raw": RAW, "registry": REGISTRY, "length": PREFIXED, "single-object": SINGLE_OBJECT}
OPS = {
    name: code for code, name in enumerate(
        "NULL BOOL INT LONG INT_TO_LONG INT_TO_FLOAT INT_TO_DOUBLE LONG_TO_FLOAT LONG_TO_DOUBLE FLOAT FLOAT_TO_DOUBLE "
        "DOUBLE BYTES TEXT FIXED NUMBERED_ENUM ENUM DECIMAL FIXED_DECIMAL FIXED_UUID TIME_MS TIME_US ARRAY MAP RECORD "
        "UNION BRANCH DEFAULT FAIL SKIP_BOOL SKIP_NUMBER SKIP_SIZE SKIP_BYTES SKIP_ARRAY SKIP_MAP SKIP_RECORD "
        "SKIP_NOTHING".split()
    )
}
assert len(OPS) == OP_CODES


@cython.final
cdef class AvroProgram:
    """Steps that read the data of one writer's schema: tuples (code, node, size, extra, parts, table, data, words, path).

    `parts` are numbers of steps, which may go in a circle. The numbers of nodes are believed: they are made for the
    builder's tree by the same code.
    """

    def __cinit__(self, list ops not None):
        cdef int i
        self.kept = []
        self.ops = <Op*>calloc(max(len(ops), 1), sizeof(Op))
        if self.ops == NULL:
            raise MemoryError
        self.count = <int>len(ops)
        for i in range(self.count):
            code, node, size, extra, parts, table, data, words, path = ops[i]
            self.ops[i].code = code
            self.ops[i].node = node
            self.ops[i].size = size
            self.ops[i].extra = extra
            self._fill(&self.ops[i], (parts, table, data, path), words)

    cdef int _fill(self, Op* op, tuple given, tuple words) except -1:
        cdef int i
        cdef tuple parts = given[0]
        cdef tuple table = given[1]
        cdef bytes data = given[2]
        cdef bytes path = (<str>given[3]).encode("utf-8", "replace").replace(b"\x00", b"?")
        self.kept += [data, path]
        op.data = data
        op.data_size = len(data)
        op.path = path
        if parts:
            op.parts = <Op**>calloc(len(parts), sizeof(Op*))
            if op.parts == NULL:
                raise MemoryError
            op.part_count = <int>len(parts)
            for i in range(op.part_count):
                if not 0 <= parts[i] < self.count:
                    raise ValueError(f"there is no step {parts[i]}")
                op.parts[i] = &self.ops[<int>parts[i]]
        if table:
            op.table = <int32_t*>calloc(len(table), sizeof(int32_t))
            if op.table == NULL:
                raise MemoryError
            op.table_size = <int>len(table)
            for i in range(op.table_size):
                op.table[i] = table[i]
        if words:
            op.words = <const char**>calloc(len(words), sizeof(char*))
            op.word_sizes = <int64_t*>calloc(len(words), sizeof(int64_t))
            if op.words == NULL or op.word_sizes == NULL:
                raise MemoryError
            for i in range(<int>len(words)):
                word = (<str>words[i]).encode()
                self.kept.append(word)
                op.words[i] = word
                op.word_sizes[i] = len(word)
        return 0

    def __dealloc__(self):
        cdef int i
        if self.ops != NULL:
            for i in range(self.count):
                free(self.ops[i].parts)
                free(self.ops[i].table)
                free(self.ops[i].words)
                free(self.ops[i].word_sizes)
            free(self.ops)

    def __len__(self) -> int:
        return self.count


@cython.final
cdef class AvroPrograms:
    """The programs of schema ids (or fingerprints), or the texts of those whose values have no place in the columns."""

    def __cinit__(self, dict programs not None):
        cdef int i = 0
        cdef AvroProgram program
        cdef bytes text
        self.kept = []
        self.ids = <int64_t*>calloc(max(len(programs), 1), sizeof(int64_t))
        self.starts = <Op**>calloc(max(len(programs), 1), sizeof(Op*))
        self.texts = <const char**>calloc(max(len(programs), 1), sizeof(char*))
        if self.ids == NULL or self.starts == NULL or self.texts == NULL:
            raise MemoryError
        for id, found in programs.items():
            self.ids[i] = id
            if isinstance(found, str):
                text = (<str>found).encode("utf-8", "replace").replace(b"\x00", b"?")
                self.kept.append(text)
                self.texts[i] = text
            else:
                program = found
                self.kept.append(program)
                self.starts[i] = program.ops
            i += 1
        self.count = i

    def __dealloc__(self):
        free(self.ids)
        free(self.starts)
        free(self.texts)

    def __len__(self) -> int:
        return self.count


cdef struct Run:
    # one value while it is read
    const uint8_t* p
    const uint8_t* end
    Node* nodes
    const Op* failed            # the step that met what is wrong, and its number
    int64_t detail
    int64_t items_left          # items that take no bytes
    int depth


cdef int long_slowly(Run* r, int64_t* out) noexcept nogil:
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


cdef int take_block(Run* r, const Op* op, int64_t* count, int64_t* skipped) noexcept nogil:
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


cdef int run_items(Run* r, const Op* op) noexcept nogil:
    """An array, or a map, whose items are a struct of key and value."""
    cdef Node* node = &r.nodes[op.node]
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
            return end_list(node)
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


cdef int skip_items(Run* r, const Op* op) noexcept nogil:
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


cdef int run_enum(Run* r, const Op* op) noexcept nogil:
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
        return put_32(&r.nodes[op.node], <int32_t>number)
    return put_bytes(&r.nodes[op.node], <const uint8_t*>op.words[number], op.word_sizes[number])


cdef int run_union(Run* r, const Op* op) noexcept nogil:
    cdef int64_t branch = 0
    cdef int status = take_long(r, &branch)
    if status == PUT_OK and (branch < 0 or branch >= op.part_count):
        r.detail = branch
        status = NO_BRANCH
    if status != PUT_OK:
        r.failed = op
        return status
    return run(r, op.parts[branch])


cdef int run_branch(Run* r, const Op* op) noexcept nogil:
    """A branch of a union that is a struct: the other branches are null."""
    cdef Node* node = &r.nodes[op.node]
    cdef int i
    cdef int status = run(r, op.parts[0])
    for i in range(node.child_count):
        if status == PUT_OK and i != op.size:
            status = put_null(node.children[i])
    return status if status != PUT_OK else end_struct(node)


cdef int run_default(Run* r, const Op* op) noexcept nogil:
    cdef const uint8_t* p = r.p
    cdef const uint8_t* end = r.end
    cdef int status
    r.p = op.data
    r.end = op.data + op.data_size
    status = run(r, op.parts[0])
    r.p = p
    r.end = end
    return status


cdef int run_wide(Run* r, const Op* op) noexcept nogil:
    """The leaves that are rare: decimals, times, UUIDs, promotions."""
    cdef Node* node = &r.nodes[op.node]
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
        return put_32(node, small) if status == PUT_OK else status
    if op.code == OP_FLOAT_TO_DOUBLE:
        status = need(r, 4)
        if status == PUT_OK:
            memcpy(&single, r.p, 4)
            r.p += 4
            status = put_double(node, single)
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
        return put_64(node, size) if size >= 0 and size < DAY_US else TIME
    if op.code == OP_INT_TO_LONG:
        return put_64(node, size)
    if op.code == OP_INT_TO_DOUBLE or op.code == OP_LONG_TO_DOUBLE:
        return put_double(node, <double>size)
    return put_float(node, <float>size)


cdef int skip_leaf(Run* r, const Op* op) noexcept nogil:
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
    cdef Node* node = &r.nodes[op.node]
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
        return put_64(node, size) if status == PUT_OK else status
    if op.code == OP_INT:
        status = take_int(r, &small)
        return put_32(node, small) if status == PUT_OK else status
    if op.code == OP_NULL:
        return put_null(node)
    if op.code == OP_DOUBLE:
        if r.end - r.p < 8:
            return SHORT
        memcpy(&twice, r.p, 8)
        r.p += 8
        return put_double(node, twice)
    if op.code == OP_FLOAT:
        if r.end - r.p < 4:
            return SHORT
        memcpy(&single, r.p, 4)
        r.p += 4
        return put_float(node, single)
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


cdef int run(Run* r, const Op* op) noexcept nogil:
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
            status = end_struct(&r.nodes[op.node])
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


cdef int run_nested(Run* r, const Op* op) noexcept nogil:
    cdef int status
    if r.depth >= MOST_NESTED:
        r.failed = op
        return DEPTH
    r.depth += 1
    status = run_union(r, op)
    r.depth -= 1
    return status


# Rows

cdef int take_frame(Run* r, int framing, int64_t* id) noexcept nogil:
    """Read what stands before the data: `id` is the schema's, or its fingerprint; 0 where none is given."""
    cdef int64_t size = 0
    cdef int status
    id[0] = 0
    if framing == RAW:
        return PUT_OK
    if framing == REGISTRY:
        if r.end - r.p < 5 or r.p[0] != 0:
            return NO_HEADER
        id[0] = loadu32(r.p + 1)
        r.p += 5
        return PUT_OK
    if framing == SINGLE_OBJECT:
        if r.end - r.p < 10 or r.p[0] != 0xC3 or r.p[1] != 1:
            return NO_HEADER
        memcpy(id, r.p + 2, 8)
        r.p += 10
        return PUT_OK
    status = take_long(r, &size)
    if status != PUT_OK:
        return status
    r.detail = size
    return PUT_OK if size == r.end - r.p else LENGTH


cdef void say(char* out, int status, const Run* r, const uint8_t* start, int framing) noexcept nogil:
    """Write what is wrong with a value, for its row."""
    cdef const Op* op = r.failed
    cdef const char* path = b""
    cdef const char* field = b""
    cdef const char* colon = b""
    cdef long long at = r.p - start
    cdef long long n = r.detail
    if op != NULL and op.path[0] != 0:
        path = op.path
        field = b"field "
        colon = b": "
    if op != NULL and op.code == OP_FAIL:
        snprintf(out, TEXT_SIZE, b"%s%s%s%s", field, path, colon, <const char*>op.data)
    elif status == NO_HEADER:
        snprintf(out, TEXT_SIZE, (
            b"it does not begin with a schema registry's header (a zero byte and a 4-byte id)" if framing == REGISTRY
            else b"it does not begin with a single object's header (C3 01 and 8 bytes of fingerprint)"
        ))
    elif status == TRAILING:
        snprintf(out, TEXT_SIZE, b"%lld bytes follow the Avro value", <long long>(r.end - r.p))
    elif status == LENGTH:
        snprintf(out, TEXT_SIZE, b"its length says %lld bytes, and there are %lld", n, <long long>(r.end - r.p))
    elif status == NEGATIVE or status == BEYOND:
        snprintf(out, TEXT_SIZE, b"%s%s%sa length of %lld at byte %lld, where %lld are left", field, path, colon, n, at,
                 <long long>(r.end - r.p))
    elif status == BLOCK or status == ITEMS:
        snprintf(out, TEXT_SIZE, b"%s%s%sa block of %lld items at byte %lld%s", field, path, colon, n, at, (
            b", more than the bytes that are left can hold" if status == BLOCK else b", more than the limit for items without bytes"
        ))
    elif status == NO_BRANCH or status == NO_SYMBOL or status == NO_BOOL or status == UNKNOWN_SYMBOL:
        snprintf(out, TEXT_SIZE, b"%s%s%sthere is no %s %lld%s, before byte %lld", field, path, colon, (
            b"branch" if status == NO_BRANCH else b"boolean" if status == NO_BOOL else b"symbol"
        ), n, b" in the reader's schema" if status == UNKNOWN_SYMBOL else b"", at)
    elif status == BEYOND_INT or status == TIME:
        snprintf(out, TEXT_SIZE, b"%s%s%s%lld is beyond %s, before byte %lld", field, path, colon, n,
                 b"an int" if status == BEYOND_INT else b"the time of a day", at)
    else:
        snprintf(out, TEXT_SIZE, b"%s%s%s%s, at byte %lld", field, path, colon, words_of(status), at)


cdef const char* words_of(int status) noexcept nogil:
    if status == SHORT:
        return b"it ends inside a value"
    if status == VARINT:
        return b"a number has more than 64 bits"
    if status == DECIMAL:
        return b"the decimal has more digits than its precision"
    if status == DEPTH:
        return b"it is nested more than 200 levels deep"
    if status == PUT_UTF8:
        return b"the string is not UTF-8"
    return b"its columns take more memory than the limit"


cdef int find(AvroPrograms programs, int64_t id) noexcept nogil:
    cdef int i
    for i in range(programs.count):
        if programs.ids[i] == id:
            return i
    return -1


def fill(
    Builder builder not None, ValueColumn column not None, AvroPrograms programs not None, int framing, int64_t first,
    int64_t most_items,
):
    """Decode the rows from `first` on; returns (the next row, None), or (that row, its id) for an id without program.

    (row, None) with fewer rows than there are: the builder stopped (its status says why), or the column's cell
    contradicts itself (the builder's status is 0).
    """
    cdef Run r
    cdef Slice cell
    cdef int64_t row = first
    cdef int64_t id = 0
    cdef int64_t last_id = 0
    cdef int found = -1
    cdef int status
    cdef char text[TEXT_SIZE]
    cdef bint unknown = False
    memset(&r, 0, sizeof(Run))
    r.nodes = builder.nodes
    with nogil:
        while row < column.count:
            if read_cell(&column.cells, row, &cell) != SOUND:
                break
            if cell.size < 0:
                status = put_null(builder.nodes)
                if status != PUT_OK:
                    builder.stopped = status
                    break
                row_done(builder)
                row += 1
                continue
            r.p = cell.data
            r.end = cell.data + cell.size
            r.failed = NULL
            r.items_left = most_items
            r.depth = 0
            status = take_frame(&r, framing, &id)
            if status == PUT_OK:
                if found < 0 or id != last_id:
                    found = find(programs, id)
                    last_id = id
                    if found < 0:
                        unknown = True
                        break
                if programs.starts[found] == NULL:
                    if not row_failed(builder, PUT_CODES, programs.texts[found]):
                        break
                    row += 1
                    continue
                status = run(&r, programs.starts[found])
                if status == PUT_OK and r.p != r.end:
                    r.failed = NULL
                    status = TRAILING
            if status == PUT_OK:
                row_done(builder)
            else:
                say(text, status, &r, cell.data, framing)
                if not row_failed(builder, status, text):
                    break
            row += 1
    return row, (id if unknown else None)
