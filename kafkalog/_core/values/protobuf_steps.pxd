"""The steps that put a Protobuf message into its columns, field by field, without the GIL."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from kafkalog._core.text.text_buffer cimport kl_likely, kl_unlikely
from kafkalog._core.values.items cimport drop_earlier_keys
from kafkalog._core.values.nodes cimport (
    BOOL_NODE, FIXED_NODE, PUT_OK, Node, cut, end_list, end_struct, more_bytes, put_bool, put_bytes, put_fixed,
    put_null, put_text, put_value,
)
from kafkalog._core.values.protobuf_rows cimport (
    ABSENT_DEFAULT, ABSENT_EMPTY, ABSENT_ERROR, KIND_BOOL, KIND_BYTES, KIND_CUT, KIND_ENUM, KIND_INT32, KIND_INT64,
    KIND_MESSAGE, KIND_SINT32, KIND_SINT64, KIND_TEXT, KIND_TIME, KIND_UINT32, KIND_UINT64, KIND_WRAPPER, LABEL_MAP,
    LABEL_ONE, Field, Message,
)
from kafkalog._core.values.protobuf_wire cimport (
    WIRE_64, WIRE_BYTES, WIRE_END_GROUP, WIRE_ENDS, WIRE_GROUP_END, WIRE_OK, WIRE_RANGE, WIRE_REQUIRED, WIRE_TYPE,
    WIRE_VARINT, Wire, read_length, read_tag, read_varint, skip_field,
)


cdef struct Moment:
    int64_t seconds
    int64_t nanos


cdef struct Run:
    const Field* failed         # the innermost field around what is wrong
    const uint8_t* at           # where
    uint8_t* seen               # by node: a message without an end, 1 where any of it came
    Moment* moments             # by node: the time that came last
    int node_count
    int index_count
    int32_t* indexes


# Values

cdef inline int put_enum(Node* n, const Field* f, int32_t number) noexcept nogil:
    """Put the name of a number, or the number itself as text where it has none."""
    cdef int low = 0
    cdef int high = f.word_count
    cdef int middle
    cdef char text[16]
    if n.hidden:
        return put_value(n, number)
    if 0 <= number < high and f.words[number].number == number:
        return put_bytes(n, f.words[number].text, f.words[number].size)
    while low < high:
        middle = (low + high) >> 1
        if f.words[middle].number < number:
            low = middle + 1
        else:
            high = middle
    if low < f.word_count and f.words[low].number == number:
        return put_bytes(n, f.words[low].text, f.words[low].size)
    return put_bytes(n, <const uint8_t*>text, snprintf(text, 16, b"%d", number))


cdef inline int put_varint(Node* n, const Field* f, uint64_t v) noexcept nogil:
    cdef int kind = f.kind
    if kind == KIND_INT32 or kind == KIND_UINT32:
        return put_value(n, <int32_t>v)
    if kind == KIND_INT64 or kind == KIND_UINT64:
        return put_value(n, <int64_t>v)
    if kind == KIND_BOOL:
        return put_bool(n, v != 0)
    if kind == KIND_SINT32:
        return put_value(n, <int32_t>((<uint32_t>v >> 1) ^ (~(<uint32_t>v & 1) + 1)))
    if kind == KIND_SINT64:
        return put_value(n, <int64_t>((v >> 1) ^ (~(v & 1) + 1)))
    return put_enum(n, f, <int32_t>v)


cdef inline int read_number(const Field* f, Node* n, Wire* w) noexcept nogil:
    """Read a number of the field's kind into its column."""
    cdef uint64_t v = 0
    cdef int size
    cdef int status
    if f.wire == WIRE_VARINT:
        status = read_varint(w, &v)
        return put_varint(n, f, v) if status == WIRE_OK else status
    size = 8 if f.wire == WIRE_64 else 4
    if w.end - w.p < size:
        return WIRE_ENDS
    status = put_fixed(n, w.p)
    w.p += size
    return status


cdef inline int read_packed(Run* run, const Field* f, Node* n, Wire* w) noexcept nogil:
    cdef Wire inner
    cdef int64_t size = 0
    cdef int status = read_length(w, &inner.p, &size)
    if status != WIRE_OK:
        return status
    inner.end = inner.p + size
    while inner.p < inner.end:
        status = read_number(f, n, &inner)
        if status != WIRE_OK:
            run.at = inner.p
            return status
    return WIRE_OK


cdef inline int read_moment(Run* run, const Field* f, Node* n, Wire* w) noexcept nogil:
    """Put a Timestamp or Duration; what came before of the same one counts on."""
    cdef Moment* moment = &run.moments[n.number]
    cdef uint32_t number = 0
    cdef int wire = 0
    cdef int status
    cdef uint64_t v = 0
    cdef int64_t most = 9223372030 if f.unit == 1 else 9223372036850
    cdef int64_t units
    cdef int64_t rest
    while w.p < w.end:
        status = read_tag(w, &number, &wire)
        if status == WIRE_OK and number <= 2:
            status = read_varint(w, &v) if wire == WIRE_VARINT else WIRE_TYPE
            if number == 1:
                moment.seconds = <int64_t>v
            else:
                moment.nanos = <int32_t>v
        elif status == WIRE_OK:
            status = skip_field(w, number, wire)
        if status != WIRE_OK:
            return status
    if moment.seconds > most or moment.seconds < -most:
        return WIRE_RANGE
    units = moment.nanos // f.unit
    rest = moment.nanos - units * f.unit
    if rest < 0 and f.kind == KIND_TIME:
        units -= 1              # a time is rounded down, a duration towards zero
    return put_value(n, <int64_t>(moment.seconds * (1000000000 // f.unit) + units))


cdef inline int read_wrapper(Run* run, const Field* f, Node* n, int64_t at, Wire* w) noexcept nogil:
    """Put the value of a wrapper; an empty one has the default, or what came before of the same one."""
    cdef const Field* inner = f.message.fields
    cdef uint32_t number = 0
    cdef int wire = 0
    cdef int status
    while w.p < w.end:
        status = read_tag(w, &number, &wire)
        if status == WIRE_OK:
            if number == 1:
                status = read_one(run, inner, n, at, wire, w)
            else:
                status = skip_field(w, number, wire)
        if status != WIRE_OK:
            return status
    return put_fallback(n, inner) if n.count == at else WIRE_OK


cdef inline int append_cut(Node* n, int64_t at, const uint8_t* data, int64_t size) noexcept nogil:
    """Put bytes behind those that are there: messages in a row are one message, merged."""
    cdef int status = PUT_OK
    if n.count == at or n.hidden:
        n.count = at
        return put_bytes(n, data, size)
    if size > n.capacity - n.used:
        status = more_bytes(n, size)
    if status == PUT_OK and size:
        memcpy(n.values + n.used, data, <size_t>size)
        n.used += size
        n.ends[n.count] = <int32_t>n.used
    return status


cdef inline int read_group_bytes(const Field* f, Wire* w, const uint8_t** data, int64_t* size) noexcept nogil:
    """Go over the rest of a group; what is in it, without its end."""
    cdef uint32_t number = 0
    cdef int wire = 0
    cdef int status
    data[0] = w.p
    while True:
        size[0] = w.p - data[0]
        status = read_tag(w, &number, &wire)
        if status == WIRE_OK and wire == WIRE_GROUP_END:
            return WIRE_OK if number == f.number else WIRE_END_GROUP
        if status == WIRE_OK:
            status = skip_field(w, number, wire)
        if status != WIRE_OK:
            return status


cdef inline int put_fallback(Node* n, const Field* f) noexcept nogil:
    if n.storage == BOOL_NODE:
        return put_bool(n, f.fallback[0] != 0)
    if n.storage == FIXED_NODE:
        return put_fixed(n, f.fallback)
    return put_bytes(n, f.fallback, f.fallback_size)


cdef inline int read_one(Run* run, const Field* f, Node* n, int64_t at, int wire, Wire* w) noexcept nogil:
    """Read a value into a column that has `at` of them, and replace a further one; a message is merged."""
    cdef Wire inner
    cdef const uint8_t* data = NULL
    cdef int64_t size = 0
    cdef int status
    if kl_unlikely(wire != f.wire):
        return WIRE_TYPE
    if f.kind <= KIND_ENUM:
        if kl_unlikely(n.count > at):
            cut(n, at)
        return read_number(f, n, w)
    if f.is_group and f.kind == KIND_MESSAGE:
        run.seen[n.number] = 1
        return read_message(run, f.message, n, w, f.number)
    status = read_group_bytes(f, w, &data, &size) if f.is_group else read_length(w, &data, &size)
    if status != WIRE_OK:
        return status
    if f.kind == KIND_CUT:
        return append_cut(n, at, data, size)
    if f.kind == KIND_TEXT or f.kind == KIND_BYTES:
        if kl_unlikely(n.count > at):
            cut(n, at)
        return put_text(n, data, size) if f.kind == KIND_TEXT else put_bytes(n, data, size)
    inner.p = data
    inner.end = data + size
    if f.kind == KIND_MESSAGE:
        run.seen[n.number] = 1
        return read_message(run, f.message, n, &inner, 0)
    if f.kind == KIND_WRAPPER:
        status = read_wrapper(run, f, n, at, &inner)
    else:
        if n.count > at:
            cut(n, at)
        else:
            memset(&run.moments[n.number], 0, sizeof(Moment))
        status = read_moment(run, f, n, &inner)
    if status != WIRE_OK:
        run.at = inner.p
    return status


# Messages

cdef inline int find_field(const Message* m, uint32_t number) noexcept nogil:
    cdef int low = 0
    cdef int high = m.count
    cdef int middle
    if number < m.dense:
        return m.places[number]
    while low < high:
        middle = (low + high) >> 1
        if m.fields[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return low if low < m.count and m.fields[low].number == number else -1


cdef inline void forget(Run* run, const Message* m, Node* node) noexcept nogil:
    """Nothing came of a message, nor of those in it."""
    cdef int i
    cdef const Field* f
    run.seen[node.number] = 0
    for i in range(m.count):
        f = &m.fields[i]
        if f.kind == KIND_MESSAGE and f.label == LABEL_ONE and run.seen[node.children[f.child].number]:
            forget(run, f.message, node.children[f.child])


cdef inline void clear_others(Run* run, const Message* m, const Field* f, Node* node) noexcept nogil:
    """Remove the values of the other members of a oneof."""
    cdef int i
    cdef const Field* other
    cdef Node* n
    for i in range(m.count):
        other = &m.fields[i]
        if other.oneof != f.oneof or other == f or other.child < 0:
            continue
        n = node.children[other.child]
        if other.kind == KIND_MESSAGE:
            if run.seen[n.number]:
                forget(run, other.message, n)
                cut(n, node.count)
        elif n.count > node.count:
            cut(n, node.count)


cdef inline int read_many(Run* run, const Field* f, Node* items, int wire, Wire* w) noexcept nogil:
    """Read an item of a repeated field, an entry of a map, or a pack of numbers."""
    cdef int status
    if wire == WIRE_BYTES and f.kind <= KIND_ENUM:
        return read_packed(run, f, items, w)
    status = read_one(run, f, items, items.count, wire, w)
    if status == WIRE_OK and f.kind == KIND_MESSAGE:
        status = close_message(run, f.message, items)
    return status


cdef inline int read_message(Run* run, const Message* m, Node* node, Wire* w, uint32_t group) noexcept nogil:
    """Read the fields of a message up to its end, or to that of its group; `close_message` makes it a value."""
    cdef uint32_t number = 0
    cdef int wire = 0
    cdef int i = 0
    cdef int status
    cdef const Field* f
    while w.p < w.end:
        status = read_tag(w, &number, &wire)
        if kl_unlikely(status != WIRE_OK):
            return status
        if kl_unlikely(wire == WIRE_GROUP_END):
            return WIRE_OK if number == group else WIRE_END_GROUP
        if i >= m.count or m.fields[i].number != number:
            i = find_field(m, number)
            if i < 0:
                i = 0
                status = skip_field(w, number, wire)
                if status != WIRE_OK:
                    return status
                continue
        f = &m.fields[i]
        if f.oneof:
            clear_others(run, m, f, node)
        if f.child < 0:
            status = skip_field(w, number, wire)
        elif f.label == LABEL_ONE:
            status = read_one(run, f, node.children[f.child], node.count, wire, w)
        else:
            status = read_many(run, f, node.children[f.child].children[0], wire, w)
        if kl_unlikely(status != WIRE_OK):
            if run.failed == NULL:
                run.failed = f
                if run.at == NULL:
                    run.at = w.p
            return status
        if f.label == LABEL_ONE or f.wire == WIRE_VARINT:
            i += 1
    return WIRE_ENDS if group else WIRE_OK


cdef inline int close_one(Run* run, const Field* f, Node* n, int64_t at) noexcept nogil:
    """End a field that has one value, or give it what stands for none."""
    if f.kind == KIND_MESSAGE:
        if run.seen[n.number] or f.absent == ABSENT_EMPTY:
            return close_message(run, f.message, n)
    elif kl_likely(n.count > at):
        return PUT_OK
    if f.absent == ABSENT_DEFAULT:
        return put_fallback(n, f)
    return WIRE_REQUIRED if f.absent == ABSENT_ERROR else put_null(n)


cdef inline int close_message(Run* run, const Message* m, Node* node) noexcept nogil:
    """End every field of a message, and make it a value of its column."""
    cdef int i
    cdef int status
    cdef const Field* f
    cdef Node* n
    run.seen[node.number] = 0
    for i in range(m.count):
        f = &m.fields[i]
        if f.child < 0:
            continue
        n = node.children[f.child]
        if f.label == LABEL_ONE:
            status = close_one(run, f, n, node.count)
        else:
            status = drop_earlier_keys(n) if f.label == LABEL_MAP else PUT_OK
            if status == PUT_OK:
                status = end_list(n)
        if kl_unlikely(status != PUT_OK):
            if run.failed == NULL:
                run.failed = f
            return status
    return end_struct(node)
