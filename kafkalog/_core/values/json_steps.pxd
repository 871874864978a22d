"""The steps that put a JSON value into its columns, without the GIL."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp

from kafkalog._core.text.text_buffer cimport kl_likely, kl_unlikely
from kafkalog._core.values.decimal_text cimport (
    NUMBER_FRACTION, NUMBER_LONG, NUMBER_OK, Number, make_double, make_int64,
)
from kafkalog._core.values.items cimport drop_earlier_keys
from kafkalog._core.values.json_rows cimport (
    SPOT_BOOL, SPOT_DATE, SPOT_DOUBLE, SPOT_INT64, SPOT_JSON, SPOT_LIST, SPOT_MAP, SPOT_STRUCT, SPOT_TEXT, SPOT_TIME,
    Spot, hash_name,
)
from kafkalog._core.values.json_text cimport (
    JSON_DEPTH, JSON_ENDS, JSON_FORMAT, JSON_FRACTION, JSON_LONG, JSON_OK, JSON_RANGE, JSON_SYNTAX, JSON_TYPE,
    MOST_NESTED, Reader, next_byte, scan_colon, scan_number, scan_simple, scan_string, scan_word, skip_value, unescape,
)
from kafkalog._core.values.nodes cimport (
    PUT_MEMORY, PUT_OK, Node, cut, end_list, end_struct, put_bool, put_bytes, put_null, put_value,
)
from kafkalog._core.values.rfc3339 cimport read_date, read_time


cdef struct Run:
    Reader r
    const Spot* failed          # the innermost column around what is wrong
    const char* found           # of JSON_TYPE: what is there
    bint strict                 # a value that does not fit its column is an error, not null
    uint8_t* scratch            # a string without its escapes
    int64_t scratch_size


cdef inline int resolve(Run* run) noexcept nogil:
    """Make the text that was scanned last one without escapes, in the scratch memory."""
    cdef Reader* r = &run.r
    cdef uint8_t* more
    if not r.escaped:
        return JSON_OK
    if run.scratch_size < r.size:
        more = <uint8_t*>realloc(run.scratch, <size_t>(2 * r.size))
        if more == NULL:
            return PUT_MEMORY
        run.scratch = more
        run.scratch_size = 2 * r.size
    r.size = unescape(r.text, r.size, run.scratch)
    r.text = run.scratch
    return JSON_OK


cdef inline int find_child(const Spot* spot, const uint8_t* name, int64_t size) noexcept nogil:
    """Return the index of the child with this name, -1 for none."""
    cdef int at
    cdef int child
    if spot.child_count == 0:
        return -1
    at = <int>(hash_name(name, size) & <unsigned int>spot.mask)
    while True:
        child = spot.places[at]
        if child < 0:
            return -1
        if spot.children[child].name_size == size and memcmp(spot.children[child].name, name, <size_t>size) == 0:
            return child
        at = (at + 1) & spot.mask


cdef inline int read_name(Run* run, const Spot* spot, int guess, int* child) noexcept nogil:
    """Read a name and its colon; `child` is the one it names, -1 for one that is not wanted."""
    cdef Reader* r = &run.r
    cdef const Spot* likely
    cdef int status
    if kl_unlikely(r.p[0] != 34):
        return JSON_SYNTAX
    child[0] = -1
    if guess < spot.child_count:
        likely = spot.children[guess]
        if (
            r.end - r.p > likely.name_size + 2 and likely.plain and r.p[likely.name_size + 1] == 34
            and memcmp(r.p + 1, likely.name, <size_t>likely.name_size) == 0
        ):
            child[0] = guess
            r.p += likely.name_size + 2
    if child[0] < 0:
        status = scan_string(r)
        if status == JSON_OK:
            status = resolve(run)
        if status != JSON_OK:
            return status
        child[0] = find_child(spot, r.text, r.size)
    if kl_likely(r.end - r.p >= 2 and r.p[0] == 58 and r.p[1] > 32):
        r.p += 1
        return JSON_OK
    return scan_colon(r)


cdef inline int next_part(Reader* r, uint8_t closing) noexcept nogil:
    """Go over a comma, to the byte that follows; or over the closing bracket, which is -1."""
    if not next_byte(r):
        return JSON_ENDS
    if r.p[0] == closing:
        r.p += 1
        return -1
    if r.p[0] != 44:
        return JSON_SYNTAX
    r.p += 1
    return JSON_OK if next_byte(r) else JSON_ENDS


cdef inline int open_part(Reader* r, uint8_t closing) noexcept nogil:
    """Go over an opening bracket; -1 where the closing one follows."""
    r.p += 1
    if r.depth >= MOST_NESTED:
        return JSON_DEPTH
    r.depth += 1
    if not next_byte(r):
        return JSON_ENDS
    if r.p[0] == closing:
        r.p += 1
        return -1
    return JSON_OK


cdef inline int read_object(Run* run, const Spot* spot, Node* node) noexcept nogil:
    """Put an object into a struct; of a name that comes twice the last value counts."""
    cdef Reader* r = &run.r
    cdef int guess = 0
    cdef int child = -1
    cdef int status = open_part(r, 125)
    while status == JSON_OK:
        status = read_name(run, spot, guess, &child)
        if kl_unlikely(status != JSON_OK):
            break
        if child >= 0:
            guess = child + 1
            if kl_unlikely(node.children[child].count > node.count):
                cut(node.children[child], node.count)
            status = read_value(run, spot.children[child], node.children[child])
        else:
            status = skip_value(r)
        if kl_likely(status == JSON_OK):
            status = next_part(r, 125)
    if status != -1:
        return status
    r.depth -= 1
    for child in range(spot.child_count):
        if node.children[child].count == node.count:
            status = put_null(node.children[child])
            if status != PUT_OK:
                return status
    return end_struct(node)


cdef inline int read_array(Run* run, const Spot* spot, Node* node) noexcept nogil:
    cdef Reader* r = &run.r
    cdef int status = open_part(r, 93)
    while status == JSON_OK:
        status = read_value(run, spot.children[0], node.children[0])
        if status == JSON_OK:
            status = next_part(r, 93)
    if status != -1:
        return status
    r.depth -= 1
    return end_list(node)


cdef inline int read_map(Run* run, const Spot* spot, Node* node) noexcept nogil:
    """Put an object into a map: its names are keys."""
    cdef Reader* r = &run.r
    cdef Node* items = node.children[0]
    cdef int status = open_part(r, 125)
    while status == JSON_OK:
        if r.p[0] != 34:
            return JSON_SYNTAX
        status = scan_string(r)
        if status == JSON_OK:
            status = resolve(run)
        if status == JSON_OK:
            status = put_bytes(items.children[0], r.text, r.size)
        if status == JSON_OK:
            status = scan_colon(r)
        if status == JSON_OK:
            status = read_value(run, spot.children[0], items.children[1])
        if status == JSON_OK:
            status = end_struct(items)
        if status == JSON_OK:
            status = next_part(r, 125)
    if status != -1:
        return status
    r.depth -= 1
    status = drop_earlier_keys(node)
    return end_list(node) if status == PUT_OK else status


cdef inline int read_text(Run* run, const Spot* spot, Node* node) noexcept nogil:
    """Put a string, or the time or date that it is."""
    cdef Reader* r = &run.r
    cdef const uint8_t* start = r.p
    cdef int64_t value = 0
    cdef int status = scan_string(r)
    if status == JSON_OK:
        status = resolve(run)
    if status != JSON_OK:
        return status
    if spot.kind == SPOT_TEXT:
        return put_bytes(node, r.text, r.size)
    if spot.kind == SPOT_TIME and read_time(r.text, r.size, &value):
        return put_value(node, value)
    if spot.kind == SPOT_DATE and read_date(r.text, r.size, &value):
        return put_value(node, <int32_t>value)
    r.p = start
    return JSON_FORMAT


cdef inline int read_number_value(Run* run, const Spot* spot, Node* node) noexcept nogil:
    cdef Reader* r = &run.r
    cdef Number n
    cdef int64_t v = 0
    cdef double d = 0
    cdef int status = scan_number(r, &n)
    if status != JSON_OK:
        return status
    if spot.kind == SPOT_INT64:
        status = make_int64(&n, &v)
        if kl_likely(status == NUMBER_OK):
            return put_value(node, v)
    else:
        status = make_double(&n, &d)
        if kl_likely(status == NUMBER_OK):
            return put_value(node, d)
    r.p = n.start
    if status == NUMBER_LONG:
        return JSON_LONG
    return JSON_FRACTION if status == NUMBER_FRACTION else JSON_RANGE


cdef inline int read_raw(Run* run, Node* node) noexcept nogil:
    cdef const uint8_t* start = run.r.p
    cdef int status = skip_value(&run.r)
    return put_bytes(node, start, run.r.p - start) if status == JSON_OK else status


cdef inline int refuse_kind(Run* run) noexcept nogil:
    """A value of another kind: what it is, for the text; or that it is no JSON at all."""
    cdef const uint8_t* start = run.r.p
    cdef uint8_t c = start[0]
    cdef int status = JSON_OK
    if c != 123 and c != 91:
        status = scan_simple(&run.r)
    if status != JSON_OK:
        return status
    run.r.p = start
    if c == 123:
        run.found = b"an object"
    elif c == 91:
        run.found = b"an array"
    elif c == 34:
        run.found = b"a string"
    elif c == 116 or c == 102:
        run.found = b"a bool"
    else:
        run.found = b"a number"
    return JSON_TYPE


cdef inline int read_value(Run* run, const Spot* spot, Node* node) noexcept nogil:
    """Put the value at the reader into its column."""
    cdef Reader* r = &run.r
    cdef uint8_t c = r.p[0]
    cdef int kind = spot.kind
    cdef int status
    if c == 110:
        status = scan_word(r, b"null", 4)
        if status == JSON_OK:
            status = put_null(node)
    elif c == 34 and (kind == SPOT_TEXT or kind == SPOT_TIME or kind == SPOT_DATE):
        status = read_text(run, spot, node)
    elif (c == 45 or 48 <= c <= 57) and (kind == SPOT_INT64 or kind == SPOT_DOUBLE):
        status = read_number_value(run, spot, node)
    elif (c == 116 or c == 102) and kind == SPOT_BOOL:
        status = scan_simple(r)
        if status == JSON_OK:
            status = put_bool(node, c == 116)
    elif c == 123 and kind == SPOT_STRUCT:
        status = read_object(run, spot, node)
    elif c == 123 and kind == SPOT_MAP:
        status = read_map(run, spot, node)
    elif c == 91 and kind == SPOT_LIST:
        status = read_array(run, spot, node)
    elif kind == SPOT_JSON:
        status = read_raw(run, node)
    else:
        status = refuse_kind(run)
    if kl_likely(status == JSON_OK):
        return status
    if not run.strict and JSON_RANGE <= status <= JSON_FORMAT:
        return skip_misfit(run, node)
    if run.failed == NULL:
        run.failed = spot
    return status


cdef inline int skip_misfit(Run* run, Node* node) noexcept nogil:
    """Put a null for the value at the reader, which is JSON and does not fit its column."""
    cdef int status = skip_value(&run.r)
    return put_null(node) if status == JSON_OK else status
