"""Schemas and arrays of the Arrow C data interface made from pieces: each node owns what it shows, and releases it alone.

A consumer may move any child out of its parent and release it later, in any thread; so every node holds its memories
itself, and the parent owns no more than the place of the struct. Nothing here needs the GIL or a Python object.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkalog._core.arrow.abi cimport ARROW_FLAG_NULLABLE, ArrowArray, ArrowSchema
from kafkalog._core.arrow.memory cimport Memory, drop_memory, hold_memory, new_memory
from kafkalog._core.arrow.pieces cimport (
    HEADER_KEY_OFFSETS, HEADER_LISTS, HEADER_VALUE_OFFSETS, HEADERS, KEY, KEY_OFFSETS, KINDS, OFFSET, PARTITION,
    ROWS_VALID, TIMESTAMP, TIMESTAMP_TYPE, TOPIC, TOPIC_OFFSETS, VALUE, VALUE_OFFSETS, Piece, fixed_slot, width_of,
)

cdef enum:
    # how a column of bytes or text is laid out
    PLAIN = 0                   # ends of 32 bits
    LARGE = 1                   # ends of 64 bits
    VIEWS = 2                   # sixteen bytes a value, short values inside
    SHORT_VIEW = 12             # the most bytes of a value that lies inside its view
    ZONE_BYTES = 64


cdef struct Shape:
    # which columns, and how: what a schema says
    int32_t count
    int32_t alone               # 1: the only column itself, not a struct of columns
    int32_t kinds[KINDS]
    int32_t layouts[KINDS]
    int64_t per_ms              # units of the timestamp column in a millisecond: 1, 1000 or 1000000
    char timestamp_format[ZONE_BYTES]


cdef struct SchemaNode:
    ArrowSchema* children[KINDS]
    ArrowSchema places[KINDS]
    char format[ZONE_BYTES]


cdef struct ArrayNode:
    const void* buffers[4]
    Memory* held[4]
    int64_t sizes[1]            # of the data buffers behind views
    ArrowArray* children[KINDS]
    ArrowArray places[KINDS]


cdef inline void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release != NULL:
            schema.children[i].release(schema.children[i])
    free(schema.private_data)
    schema.release = NULL


cdef inline void release_array(ArrowArray* array) noexcept nogil:
    cdef ArrayNode* node = <ArrayNode*>array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    for i in range(4):
        drop_memory(node.held[i])
    free(node)
    array.release = NULL


cdef inline const char* name_of(int kind) noexcept nogil:
    if kind == KEY:
        return "key"
    if kind == VALUE:
        return "value"
    if kind == TOPIC:
        return "topic"
    if kind == PARTITION:
        return "partition"
    if kind == OFFSET:
        return "offset"
    if kind == TIMESTAMP:
        return "timestamp"
    return "timestampType" if kind == TIMESTAMP_TYPE else "headers"


cdef inline const char* format_of(const Shape* shape, int i) noexcept nogil:
    cdef int kind = shape.kinds[i]
    cdef int layout = shape.layouts[i]
    if kind == KEY or kind == VALUE:
        return "z" if layout == PLAIN else "Z" if layout == LARGE else "vz"
    if kind == TOPIC:
        return "u" if layout == PLAIN else "U" if layout == LARGE else "vu"
    if kind == OFFSET:
        return "l"
    if kind == TIMESTAMP:
        return shape.timestamp_format
    return "+l" if kind == HEADERS else "i"


cdef inline SchemaNode* schema_node(
    ArrowSchema* out, const char* name, const char* format, int children, bint nullable
) noexcept nogil:
    """Makes `out` a schema with room for children, which are not there yet; NULL without memory."""
    cdef SchemaNode* node = <SchemaNode*>calloc(1, sizeof(SchemaNode))
    cdef int i = 0
    if node == NULL:
        return NULL
    while format[i] != 0 and i < ZONE_BYTES - 1:
        node.format[i] = format[i]
        i += 1
    for i in range(children):
        node.children[i] = &node.places[i]
    out.format = node.format
    out.name = name
    out.metadata = NULL
    out.flags = ARROW_FLAG_NULLABLE if nullable else 0
    out.n_children = children
    out.children = node.children if children else NULL
    out.dictionary = NULL
    out.private_data = node
    out.release = release_schema
    return node


cdef inline bint header_schema(ArrowSchema* out) noexcept nogil:
    """list<item: struct<key: utf8, value: binary>> as a child of `out`."""
    cdef ArrowSchema* item = out.children[0]
    return (
        schema_node(item, "item", "+s", 2, True) != NULL
        and schema_node(item.children[0], "key", "u", 0, True) != NULL
        and schema_node(item.children[1], "value", "z", 0, True) != NULL
    )


cdef inline bint column_schema(ArrowSchema* out, const Shape* shape, int i) noexcept nogil:
    cdef int kind = shape.kinds[i]
    if schema_node(out, name_of(kind), format_of(shape, i), 1 if kind == HEADERS else 0, True) == NULL:
        return False
    return kind != HEADERS or header_schema(out)


cdef inline bint make_schema(ArrowSchema* out, const Shape* shape) noexcept nogil:
    """The schema of a shape; False without memory, `out` is released then."""
    cdef int i
    cdef bint made
    out.release = NULL
    if shape.alone:
        made = column_schema(out, shape, 0)
    else:
        made = schema_node(out, "", "+s", shape.count, False) != NULL
        for i in range(shape.count):
            made = made and column_schema(out.children[i], shape, i)
    if not made and out.release != NULL:
        out.release(out)
    return made


cdef inline ArrayNode* array_node(
    ArrowArray* out, int64_t length, int64_t offset, int buffers, int children
) noexcept nogil:
    """Makes `out` an array of `length` values from `offset` on, buffers still to be set; NULL without memory."""
    cdef ArrayNode* node = <ArrayNode*>calloc(1, sizeof(ArrayNode))
    cdef int i
    if node == NULL:
        return NULL
    for i in range(children):
        node.children[i] = &node.places[i]
    out.length = length
    out.null_count = 0
    out.offset = offset
    out.n_buffers = buffers
    out.n_children = children
    out.buffers = node.buffers
    out.children = node.children if children else NULL
    out.dictionary = NULL
    out.private_data = node
    out.release = release_array
    return node


cdef inline void show(ArrayNode* node, int i, Memory* memory) noexcept nogil:
    """Buffer `i` is this memory, which the node holds from now on; NULL is no buffer."""
    node.held[i] = hold_memory(memory)
    node.buffers[i] = memory.data if memory != NULL else NULL


cdef inline void show_valid(ArrowArray* out, ArrayNode* node, Memory* valid, int64_t nulls, bint all_rows) noexcept nogil:
    """Buffer 0 is the validity map of a column with so many nulls, of which a part of the rows may have fewer."""
    if nulls:
        show(node, 0, valid)
        out.null_count = nulls if all_rows else -1


cdef inline Memory* large_ends(Memory* ends, int64_t first, int64_t count) noexcept nogil:
    """The ends of `count` values as 64-bit numbers; NULL without memory."""
    cdef Memory* out = new_memory(8 * (count + 1))
    cdef int64_t i
    if out != NULL:
        for i in range(count + 1):
            (<int64_t*>out.data)[i] = (<int32_t*>ends.data)[first + i]
    return out


cdef inline Memory* views_of(Memory* ends, Memory* data, int64_t first, int64_t count) noexcept nogil:
    """Views of `count` values: length, then either the bytes, or four of them, buffer 0, and where it begins there."""
    cdef Memory* out = new_memory(16 * count)
    cdef int64_t i
    cdef int32_t at
    cdef int32_t size
    cdef int32_t* view
    if out == NULL:
        return NULL
    for i in range(count):
        view = <int32_t*>out.data + 4 * i
        at = (<int32_t*>ends.data)[first + i]
        size = (<int32_t*>ends.data)[first + i + 1] - at
        view[0] = size
        view[1] = view[2] = view[3] = 0
        if size <= SHORT_VIEW:
            memcpy(view + 1, data.data + at, <size_t>size)
        else:
            memcpy(view + 1, data.data + at, 4)
            view[3] = at
    return out


cdef inline bint bytes_array(
    ArrowArray* out, Piece* piece, int slot, Memory* valid, int64_t nulls, int64_t first, int64_t count, int layout
) noexcept nogil:
    """A column of bytes or text whose ends and data are the slots `slot` and `slot` + 1."""
    cdef Memory* ends = piece.slots[slot]
    cdef Memory* data = piece.slots[slot + 1]
    cdef Memory* made = NULL
    cdef ArrayNode* node
    # what is made here begins at the first value, so a validity map that does not begin there keeps the old offset
    cdef int64_t lead = first if layout == PLAIN or nulls else 0
    if layout != PLAIN:
        made = (
            large_ends(ends, first - lead, count + lead) if layout == LARGE
            else views_of(ends, data, first - lead, count + lead)
        )
        if made == NULL:
            return False
    node = array_node(out, count, lead, 4 if layout == VIEWS else 3, 0)
    if node != NULL:
        show_valid(out, node, valid, nulls, count == piece.rows)
        show(node, 1, ends if layout == PLAIN else made)
        show(node, 2, data)
        if layout == VIEWS:
            node.sizes[0] = (<int32_t*>ends.data)[first + count]
            node.buffers[3] = node.sizes
    drop_memory(made)
    return node != NULL


cdef inline bint fixed_array(
    ArrowArray* out, Piece* piece, int kind, int64_t first, int64_t count, int64_t scale
) noexcept nogil:
    """A column with one value a row; `scale` is what the values are multiplied with."""
    cdef int slot = fixed_slot(kind)
    cdef Memory* memory = piece.slots[slot]
    cdef Memory* scaled = NULL
    cdef ArrayNode* node
    cdef int64_t i
    # the validity map begins with the piece
    cdef int64_t lead = first if piece.absent else 0
    cdef int64_t start = piece.first + first - lead
    if scale != 1:
        scaled = new_memory(8 * (lead + count))
        if scaled == NULL:
            return False
        for i in range(lead + count):
            (<int64_t*>scaled.data)[i] = (<int64_t*>memory.data)[start + i] * scale
        memory = scaled
        start = 0
    node = array_node(out, count, lead, 2, 0)
    if node != NULL:
        show_valid(out, node, piece.slots[ROWS_VALID], piece.absent, count == piece.rows)
        show(node, 1, memory)
        node.buffers[1] = memory.data + start * width_of(slot)
    drop_memory(scaled)
    return node != NULL


cdef inline bint times_fit(const Shape* shape, Piece* piece, int64_t first, int64_t count) noexcept nogil:
    """False where a time of these rows is beyond what the unit asked for can say: 290,000 years in microseconds."""
    cdef int64_t most = 9223372036854775  # 2^63 - 1 microseconds; the only other unit
    cdef int64_t* times
    cdef int64_t i
    cdef int column
    if shape.per_ms == 1:
        return True
    for column in range(shape.count):
        if shape.kinds[column] == TIMESTAMP:
            times = <int64_t*>piece.slots[fixed_slot(TIMESTAMP)].data + piece.first + first
            for i in range(count):
                if times[i] > most or times[i] < -most:
                    return False
    return True


cdef inline bint header_array(ArrowArray* out, Piece* piece, int64_t first, int64_t count) noexcept nogil:
    cdef ArrayNode* node = array_node(out, count, first, 2, 1)
    cdef ArrowArray* item
    if node == NULL:
        return False
    show_valid(out, node, piece.slots[ROWS_VALID], piece.absent, count == piece.rows)
    show(node, 1, piece.slots[HEADER_LISTS])
    item = out.children[0]
    if array_node(item, piece.headers, 0, 1, 2) == NULL:
        return False
    return bytes_array(
        item.children[0], piece, HEADER_KEY_OFFSETS, NULL, 0, 0, piece.headers, PLAIN
    ) and bytes_array(
        item.children[1], piece, HEADER_VALUE_OFFSETS, piece.slots[HEADER_VALUE_OFFSETS + 2],
        piece.header_value_nulls, 0, piece.headers, PLAIN,
    )


cdef inline bint column_array(
    ArrowArray* out, const Shape* shape, int i, Piece* piece, int64_t first, int64_t count
) noexcept nogil:
    cdef int kind = shape.kinds[i]
    cdef int layout = shape.layouts[i]
    if kind == KEY:
        return bytes_array(out, piece, KEY_OFFSETS, piece.slots[KEY_OFFSETS + 2], piece.key_nulls, first, count, layout)
    if kind == VALUE:
        return bytes_array(
            out, piece, VALUE_OFFSETS, piece.slots[VALUE_OFFSETS + 2], piece.value_nulls, first, count, layout
        )
    if kind == TOPIC:  # every row that is there has the same
        return bytes_array(
            out, piece, TOPIC_OFFSETS, piece.slots[ROWS_VALID], piece.absent, first if piece.absent else 0, count, layout
        )
    if kind == HEADERS:
        return header_array(out, piece, first, count)
    return fixed_array(out, piece, kind, first, count, shape.per_ms if kind == TIMESTAMP else 1)


cdef inline bint make_array(
    ArrowArray* out, const Shape* shape, Piece* piece, int64_t first, int64_t count
) noexcept nogil:
    """Rows [first, first + count) of a piece in a shape; False without memory, `out` is released then."""
    cdef int i
    cdef bint made
    out.release = NULL
    if shape.alone:
        made = column_array(out, shape, 0, piece, first, count)
    else:
        made = array_node(out, count, 0, 1, shape.count) != NULL
        for i in range(shape.count):
            made = made and column_array(out.children[i], shape, i, piece, first, count)
    if not made and out.release != NULL:
        out.release(out)
    return made
