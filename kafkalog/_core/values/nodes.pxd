"""A tree of growing columns, which a decoder fills one value at a time, without the GIL.

A node is a column: numbers of one width, booleans, bytes, a list, a struct, or nothing but nulls. It grows as values
are put, within the memory limit that all nodes of a tree share. Every put returns a status: PUT_OK, or why the value
has no place. A put that fails leaves the node as it was, except for room.

A decoder goes through a row in the order of its bytes:

    cdef Node* root = builder.nodes               # node 0 is the column; children follow in preorder
    for row in range(rows):
        status = decode_row(root, …)              # put_* into leaves; end_list and end_struct when their values are in
        if status == PUT_OK:
            row_done(builder)
        elif not row_failed(builder, status, text):     # cuts the row out of every node and makes it null
            break                                       # the limit is for all rows: the caller raises

- A struct: put a value into every child, then `end_struct`. A child that has no value yet has `child.count ==
  node.count`; `cut(child, node.count)` takes back a value that a later one replaces.
- A list or a map: put any number of items into `node.children[0]` (a map's item is a struct of key and value), then
  `end_list`. Until then the items belong to no row, so they may come in several parts.
- `put_null` works for every node. A null struct puts a null into each child.
- A hidden node is of a field that is checked, but has no column: it counts its values, and keeps none of them.
- Several programs may fill one tree: a node is found by its number (`&builder.nodes[number]`).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kafkalog._core.arrow.memory cimport Memory, grow_memory
from kafkalog._core.text.text_buffer cimport is_utf8, kl_unlikely

cdef enum Storage:
    # how a node keeps its values
    NONE_NODE = 0               # only nulls: no buffers
    BOOL_NODE = 1               # a byte each until it is exported
    FIXED_NODE = 2              # `width` bytes each
    BYTES_NODE = 3              # bytes or text between ends of 32 bits
    LIST_NODE = 4               # a range of the only child, between ends of 32 bits; a map too
    STRUCT_NODE = 5             # a value of every child

cdef enum PutStatus:
    PUT_OK = 0
    PUT_MEMORY = 1              # the machine has no memory
    PUT_LIMIT = 2               # the columns would take more than the limit
    PUT_ENDS = 3                # a column of bytes, or of items, would be larger than its 32-bit ends can say
    PUT_UTF8 = 4                # text that is not UTF-8
    PUT_CODES = 16              # a decoder's own statuses begin here

ctypedef fused Fixed:
    int32_t
    int64_t
    float
    double

cdef enum:
    MOST_END = 0x7FFFFFFF
    LEAST_ROOM = 64


cdef struct Limits:
    int64_t used                # bytes allocated by all nodes
    int64_t most


cdef struct Node:
    int storage
    int width                   # bytes of a value of FIXED_NODE
    int child_count
    int hidden_count            # children behind those: of a struct, which has no columns for them
    bint hidden                 # and so are all below it
    int number                  # of the node in preorder
    int64_t count               # values
    int64_t room                # values there is memory for
    int64_t used                # bytes in `bytes` of BYTES_NODE
    int64_t capacity
    uint8_t* values             # of BOOL_NODE and FIXED_NODE; the bytes of BYTES_NODE
    int32_t* ends               # of BYTES_NODE and LIST_NODE; NULL before the first value
    uint8_t* valid              # bits; NULL until a value is null
    Memory* values_memory
    Memory* ends_memory
    Memory* valid_memory
    Node** children
    Limits* limits
    Node* dictionary            # the words that the numbers of this node stand for, or NULL
    const char* format          # of the Arrow C data interface
    const char* name
    bint nullable               # what the schema says; `put_null` works for every node


cdef inline int more_memory(Node* n, Memory** memory, int64_t kept, int64_t wanted) noexcept nogil:
    """Grow one of the node's memories to `wanted` bytes within the limit, keeping the first `kept`."""
    cdef int64_t before = 0 if memory[0] == NULL else memory[0].capacity
    cdef Memory* more
    if n.limits.used - before + wanted > n.limits.most:
        return PUT_LIMIT
    more = grow_memory(memory[0], kept, wanted)
    if more == NULL:
        return PUT_MEMORY
    memory[0] = more
    n.limits.used += more.capacity - before
    return PUT_OK


cdef inline int grow_valid(Node* n, int64_t room) noexcept nogil:
    """Make room for `room` bits; those that are fresh are set."""
    cdef int64_t kept = 0 if n.valid == NULL else (n.room + 7) >> 3
    cdef int status = more_memory(n, &n.valid_memory, kept, (room + 7) >> 3)
    if status == PUT_OK:
        n.valid = n.valid_memory.data
        memset(n.valid + kept, 0xFF, <size_t>(((room + 7) >> 3) - kept))
    return status


cdef inline int grow_ends(Node* n, int64_t room) noexcept nogil:
    cdef bint first = n.ends == NULL
    cdef int status = more_memory(n, &n.ends_memory, 0 if first else 4 * (n.count + 1), 4 * (room + 1))
    if status == PUT_OK:
        n.ends = <int32_t*>n.ends_memory.data
        if first:
            n.ends[0] = 0
    return status


cdef inline int grow_values(Node* n, int64_t kept, int64_t wanted) noexcept nogil:
    cdef int status = more_memory(n, &n.values_memory, kept, wanted)
    if status == PUT_OK:
        n.values = n.values_memory.data
    return status


cdef inline int reserve(Node* n, int64_t room) noexcept nogil:
    """Make room for `room` values in all; a node that has it is left alone."""
    cdef int status = PUT_OK
    if room <= n.room:
        return PUT_OK
    if room > MOST_END:
        return PUT_ENDS
    if n.storage == FIXED_NODE or n.storage == BOOL_NODE:
        status = grow_values(n, n.width * n.count, n.width * room)
    elif n.storage == BYTES_NODE or n.storage == LIST_NODE:
        status = grow_ends(n, room)
    if status == PUT_OK and n.valid != NULL:
        status = grow_valid(n, room)
    if status == PUT_OK:
        n.room = room
    return status


cdef inline int make_room(Node* n) noexcept nogil:
    """Make room for at least one more value."""
    if n.count < n.room:
        return PUT_OK
    if n.count >= MOST_END:
        return PUT_ENDS
    return reserve(n, min(max(2 * n.room, <int64_t>LEAST_ROOM), <int64_t>MOST_END))


cdef inline void mark_valid(Node* n) noexcept nogil:
    if n.valid != NULL:
        n.valid[n.count >> 3] |= <uint8_t>(1 << (n.count & 7))


cdef inline int mark_null(Node* n) noexcept nogil:
    cdef int status
    if n.valid == NULL:
        status = grow_valid(n, n.room)
        if status != PUT_OK:
            return status
    n.valid[n.count >> 3] &= <uint8_t>(~(1 << (n.count & 7)))
    return PUT_OK


cdef inline int put_null(Node* n) noexcept nogil:
    """Put a null; into a struct's children too."""
    cdef int i
    cdef int status
    if n.storage == NONE_NODE:
        if n.count >= MOST_END:
            return PUT_ENDS
        n.count += 1
        return PUT_OK
    if not n.hidden:
        status = make_room(n)
        if status == PUT_OK:
            status = mark_null(n)
        if status != PUT_OK:
            return status
    if n.storage == STRUCT_NODE:
        for i in range(n.child_count + n.hidden_count):
            if n.children[i].count == n.count:      # a failed put may be made again after more room was found
                status = put_null(n.children[i])
                if status != PUT_OK:
                    return status
    elif n.hidden:
        pass
    elif n.storage == FIXED_NODE or n.storage == BOOL_NODE:
        memset(n.values + n.width * n.count, 0, <size_t>n.width)
    else:
        n.ends[n.count + 1] = <int32_t>(n.used if n.storage == BYTES_NODE else n.children[0].count)
    n.count += 1
    return PUT_OK


cdef inline int put_bool(Node* n, bint value) noexcept nogil:
    cdef int status
    if kl_unlikely(n.hidden):
        n.count += 1
        return PUT_OK
    status = make_room(n)
    if status != PUT_OK:
        return status
    n.values[n.count] = value
    mark_valid(n)
    n.count += 1
    return PUT_OK


cdef inline int put_value(Node* n, Fixed value) noexcept nogil:
    """Put a value of the node's width: a number, a date, a time, the number of a word."""
    cdef int status
    if kl_unlikely(n.hidden):
        n.count += 1
        return PUT_OK
    status = make_room(n)
    if status != PUT_OK:
        return status
    (<Fixed*>n.values)[n.count] = value
    mark_valid(n)
    n.count += 1
    return PUT_OK


cdef inline int put_fixed(Node* n, const void* value) noexcept nogil:
    """Put the node's `width` bytes from `value`: any FIXED_NODE, in the machine's byte order."""
    cdef int status
    if kl_unlikely(n.hidden):
        n.count += 1
        return PUT_OK
    status = make_room(n)
    if status != PUT_OK:
        return status
    memcpy(n.values + n.width * n.count, value, <size_t>n.width)
    mark_valid(n)
    n.count += 1
    return PUT_OK


cdef inline int more_bytes(Node* n, int64_t size) noexcept nogil:
    """Make room for `size` >= 0 more bytes."""
    cdef int status
    if size > MOST_END - n.used:
        return PUT_ENDS
    status = grow_values(n, n.used, min(max(2 * n.capacity, n.used + size, 8 * LEAST_ROOM), <int64_t>MOST_END))
    if status == PUT_OK:
        n.capacity = min(n.values_memory.capacity, <int64_t>MOST_END)
    return status


cdef inline int put_bytes(Node* n, const uint8_t* data, int64_t size) noexcept nogil:
    """Put `size` >= 0 bytes, which are taken as they are."""
    cdef int status
    if kl_unlikely(n.hidden):
        n.count += 1
        return PUT_OK
    status = make_room(n)
    if status == PUT_OK and size > n.capacity - n.used:
        status = more_bytes(n, size)
    if status != PUT_OK:
        return status
    if size:
        memcpy(n.values + n.used, data, <size_t>size)
    n.used += size
    n.ends[n.count + 1] = <int32_t>n.used
    mark_valid(n)
    n.count += 1
    return PUT_OK


cdef inline bint is_ascii(const uint8_t* data, int64_t size) noexcept nogil:
    """Return True if no byte is above 127; the last word overlaps the one before, so that no byte is read alone."""
    cdef uint64_t word = 0
    cdef uint64_t seen = 0
    cdef int64_t at = 0
    if size < 8:
        for at in range(size):
            seen |= data[at]
    else:
        while at < size - 8:
            memcpy(&word, data + at, 8)
            seen |= word
            at += 8
        memcpy(&word, data + size - 8, 8)
        seen |= word
    return (seen & 0x8080808080808080ULL) == 0


cdef inline int put_text(Node* n, const uint8_t* data, int64_t size) noexcept nogil:
    """Put text; PUT_UTF8 for what is not UTF-8."""
    if not is_ascii(data, size) and not is_utf8(data, <size_t>size):
        return PUT_UTF8
    return put_bytes(n, data, size)


cdef inline int end_list(Node* n) noexcept nogil:
    """The items put into the child since the last end are a list."""
    cdef int status
    if kl_unlikely(n.hidden):
        cut(n.children[0], 0)
        n.count += 1
        return PUT_OK
    status = make_room(n)
    if status != PUT_OK:
        return status
    n.ends[n.count + 1] = <int32_t>n.children[0].count
    mark_valid(n)
    n.count += 1
    return PUT_OK


cdef inline int end_struct(Node* n) noexcept nogil:
    """Every child has a value more than the node: they are a struct."""
    cdef int status
    if kl_unlikely(n.hidden):
        n.count += 1
        return PUT_OK
    status = make_room(n)
    if status != PUT_OK:
        return status
    mark_valid(n)
    n.count += 1
    return PUT_OK


cdef inline void cut(Node* n, int64_t count) noexcept nogil:
    """Remove all values from `count` on, in the whole tree below; a node that has fewer is unchanged."""
    cdef int i
    if n.storage == STRUCT_NODE:
        for i in range(n.child_count + n.hidden_count):
            cut(n.children[i], count)
    elif n.storage == LIST_NODE:
        cut(n.children[0], 0 if n.ends == NULL else n.ends[min(count, n.count)])
    elif n.storage == BYTES_NODE and n.ends != NULL and count < n.count:
        n.used = n.ends[count]
    if n.count > count:
        n.count = count
