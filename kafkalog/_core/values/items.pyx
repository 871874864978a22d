"""Maps whose keys come twice: found by sorting what many keys there are, and all taken out in one pass."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memmove, memset

from kafkalog._core.values.builder cimport Builder
from kafkalog._core.values.nodes cimport (
    BOOL_NODE, BYTES_NODE, FIXED_NODE, LIST_NODE, PUT_MEMORY, PUT_OK, STRUCT_NODE, Node,
)

cdef enum:
    FEW = 12                    # so many keys are compared with each other


cdef int order(const Node* keys, int64_t a, int64_t b) noexcept nogil:
    """Below, at or above 0, as key `a` is below, the same as or above key `b`."""
    cdef int64_t size
    cdef int64_t other
    cdef int found
    if keys.storage == BYTES_NODE:
        size = keys.ends[a + 1] - keys.ends[a]
        other = keys.ends[b + 1] - keys.ends[b]
        if size != other:
            return -1 if size < other else 1
        found = memcmp(keys.values + keys.ends[a], keys.values + keys.ends[b], <size_t>size) if size else 0
        return found
    return memcmp(keys.values + keys.width * a, keys.values + keys.width * b, <size_t>keys.width)


cdef bint before(const Node* keys, int64_t first, int32_t a, int32_t b) noexcept nogil:
    cdef int found = order(keys, first + a, first + b)
    return found < 0 or (found == 0 and a < b)


cdef void sink(const Node* keys, int64_t first, int32_t* heap, int64_t at, int64_t size) noexcept nogil:
    cdef int64_t child
    cdef int32_t moved = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(keys, first, heap[child], heap[child + 1]):
            child += 1
        if not before(keys, first, moved, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moved


cdef int64_t mark_sorted(const Node* keys, int64_t first, int64_t size, uint8_t* keep) noexcept nogil:
    """Clear `keep` of each key that comes again; returns how many, -1 without memory."""
    cdef int32_t* heap = <int32_t*>malloc(<size_t>size * sizeof(int32_t))
    cdef int64_t i
    cdef int64_t dropped = 0
    cdef int32_t last
    if heap == NULL:
        return -1
    for i in range(size):
        heap[i] = <int32_t>i
    for i in range(size // 2 - 1, -1, -1):
        sink(keys, first, heap, i, size)
    for i in range(size - 1, 0, -1):
        last = heap[i]
        heap[i] = heap[0]
        heap[0] = last
        sink(keys, first, heap, 0, i)
    for i in range(size - 1):
        if order(keys, first + heap[i], first + heap[i + 1]) == 0:
            keep[heap[i]] = 0
            dropped += 1
    free(heap)
    return dropped


cdef bint few_differ(const Node* keys, int64_t first, int64_t size) noexcept nogil:
    cdef int64_t i
    cdef int64_t j
    for i in range(1, size):
        for j in range(i):
            if order(keys, first + i, first + j) == 0:
                return False
    return True


cdef void set_bit(uint8_t* bits, int64_t i, bint value) noexcept nogil:
    if value:
        bits[i >> 3] |= <uint8_t>(1 << (i & 7))
    else:
        bits[i >> 3] &= <uint8_t>(~(1 << (i & 7)))


cdef int keep_only(Node* n, int64_t first, const uint8_t* keep) noexcept nogil:
    """Take out the values from `first` on whose `keep` is 0, in the whole tree below."""
    cdef int64_t i
    cdef int64_t size
    cdef int64_t to = first
    cdef int64_t start
    cdef int64_t items
    cdef uint8_t* below = NULL
    cdef int status = PUT_OK
    cdef int j
    if n.storage == STRUCT_NODE:
        for j in range(n.child_count):
            status = keep_only(n.children[j], first, keep)
            if status != PUT_OK:
                return status
    elif n.storage == LIST_NODE and n.ends != NULL:     # else it never had a list, and its items are none
        start = n.ends[first]
        items = n.children[0].count - start
        below = <uint8_t*>malloc(<size_t>items + 1)
        if below == NULL:
            return PUT_MEMORY
        for i in range(first, n.count):
            size = n.ends[i + 1] - n.ends[i]
            memset(below + n.ends[i] - start, keep[i - first], <size_t>size)
        status = keep_only(n.children[0], start, below)
        free(below)
        if status != PUT_OK:
            return status
    for i in range(first, n.count):
        if keep[i - first]:
            if n.storage == FIXED_NODE or n.storage == BOOL_NODE:
                memmove(n.values + n.width * to, n.values + n.width * i, <size_t>n.width)
            if n.valid != NULL:
                set_bit(n.valid, to, (n.valid[i >> 3] >> (i & 7)) & 1)
            to += 1
    if n.ends != NULL:
        move_ends(n, first, keep)
    n.count = to
    return PUT_OK


cdef void move_ends(Node* n, int64_t first, const uint8_t* keep) noexcept nogil:
    """Move the ends of the values that stay, and their bytes where there are any."""
    cdef int64_t i
    cdef int64_t to = first
    cdef int64_t start = n.ends[first]          # of value i, before anything moved
    cdef int64_t end
    cdef int64_t at = n.ends[first]
    for i in range(first, n.count):
        end = n.ends[i + 1]
        if keep[i - first]:
            if n.storage == BYTES_NODE and at != start and end != start:
                memmove(n.values + at, n.values + start, <size_t>(end - start))
            at += end - start
            to += 1
            n.ends[to] = <int32_t>at
        start = end
    if n.storage == BYTES_NODE:
        n.used = at


cdef int drop_earlier_keys(Node* map_node) noexcept nogil:
    """Of the items put into a map since its last end, keep the last one of each key, in the order they came."""
    cdef Node* items = map_node.children[0]
    cdef int64_t first
    cdef int64_t size
    cdef int64_t dropped
    cdef uint8_t* keep
    cdef int status
    if map_node.hidden:
        return PUT_OK
    first = map_node.ends[map_node.count] if map_node.ends != NULL else 0
    size = items.count - first
    if size < 2 or (size <= FEW and few_differ(items.children[0], first, size)):
        return PUT_OK
    keep = <uint8_t*>malloc(<size_t>size)
    if keep == NULL:
        return PUT_MEMORY
    memset(keep, 1, <size_t>size)
    dropped = mark_sorted(items.children[0], first, size, keep)
    status = PUT_MEMORY if dropped < 0 else PUT_OK
    if dropped > 0:
        status = keep_only(items, first, keep)
    free(keep)
    return status


def keep_last_keys(Builder builder not None, int number=0):
    """Do it for a map of a builder, before the end of its list: for tests."""
    return drop_earlier_keys(&builder.nodes[number])
