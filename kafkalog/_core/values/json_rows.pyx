"""Rows of JSON put into typed columns: only the wanted fields, without a tree and without a Python object for a row."""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from kafkalog._core.arrow.cells cimport SOUND, Slice, read_cell
from kafkalog._core.text.text_buffer cimport is_utf8, kl_likely, kl_unlikely
from kafkalog._core.values.builder cimport Builder, row_done, row_failed
from kafkalog._core.values.decimal_text cimport (
    NUMBER_FRACTION, NUMBER_LONG, NUMBER_OK, Number, make_double, make_int64, read_number,
)
from kafkalog._core.values.items cimport drop_earlier_keys
from kafkalog._core.values.json_text cimport (
    JSON_CONTROL, JSON_DEPTH, JSON_EMPTY, JSON_ENDS, JSON_ESCAPE, JSON_FORMAT, JSON_FRACTION, JSON_HEADER, JSON_LONG,
    JSON_MALFORMED, JSON_NO_HEADER, JSON_NUMBER, JSON_OK, JSON_RANGE, JSON_SURROGATE, JSON_SYNTAX, JSON_TRAILING,
    JSON_TYPE, JSON_UTF8, MOST_NESTED, Reader, next_byte, scan_colon, scan_number, scan_simple, scan_string, scan_word,
    skip_value, unescape,
)
from kafkalog._core.values.json_rows cimport (
    SPOT_BOOL, SPOT_DATE, SPOT_DOUBLE, SPOT_INT64, SPOT_JSON, SPOT_LIST, SPOT_MAP, SPOT_STRUCT, SPOT_TEXT, SPOT_TIME,
    Spot, hash_name,
)
from kafkalog._core.values.nodes cimport (
    PUT_CODES, PUT_ENDS, PUT_LIMIT, PUT_MEMORY, PUT_OK, Node, cut, end_list, end_struct, put_32, put_64, put_bool,
    put_bytes, put_double, put_null,
)
from kafkalog._core.values.rfc3339 cimport read_date, read_time
from kafkalog._core.values.value_column cimport ValueColumn

KINDS = ("bool", "int64", "double", "string", "json", "timestamp", "date", "struct", "list", "map")
FRAMINGS = ("auto", "raw", "registry")

cdef const char* KIND_TEXTS[10]
KIND_TEXTS[:] = [
    b"a bool", b"an int64", b"a double", b"a string", b"JSON", b"a time", b"a date", b"an object", b"an array",
    b"an object",
]
cdef const char* TEXTS[18]      # of the statuses from JSON_EMPTY on
TEXTS[:] = [
    b"the value is empty", b"the JSON ends too early", b"this is no JSON", b"there is more behind the JSON",
    b"the JSON is nested more than 1024 levels deep", b"JSON does not have this escape",
    b"half of a surrogate pair is alone", b"a control character stands in a string", b"the text is not UTF-8",
    b"this is no number of JSON", b"the number is beyond 64 bits or the range of a double",
    b"the number has a fraction", b"the number has more than 1100 characters", b"", b"the text is no time or date",
    b"there is no registry's header (a zero byte and a 4-byte id)", b"there is a registry's header",
    b"the Arrow column contradicts itself",
]

cdef enum:
    HEADER_BYTES = 5
    TEXT_BYTES = 600
    FRAMING_AUTO = 0
    FRAMING_RAW = 1
    FRAMING_REGISTRY = 2


cdef struct Run:
    Reader r
    const Spot* failed          # the innermost column around what is wrong
    const char* found           # of JSON_TYPE: what is there
    bint strict                 # a value that does not fit its column is an error, not null
    uint8_t* scratch            # a string without its escapes
    int64_t scratch_size


cdef int resolve(Run* run) noexcept nogil:
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
    """Which child a name belongs to, -1 for none."""
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


cdef int open_part(Reader* r, uint8_t closing) noexcept nogil:
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


cdef int read_object(Run* run, const Spot* spot, Node* node) noexcept nogil:
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


cdef int read_array(Run* run, const Spot* spot, Node* node) noexcept nogil:
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


cdef int read_map(Run* run, const Spot* spot, Node* node) noexcept nogil:
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


cdef int read_text(Run* run, const Spot* spot, Node* node) noexcept nogil:
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
        return put_64(node, value)
    if spot.kind == SPOT_DATE and read_date(r.text, r.size, &value):
        return put_32(node, <int32_t>value)
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
            return put_64(node, v)
    else:
        status = make_double(&n, &d)
        if kl_likely(status == NUMBER_OK):
            return put_double(node, d)
    r.p = n.start
    if status == NUMBER_LONG:
        return JSON_LONG
    return JSON_FRACTION if status == NUMBER_FRACTION else JSON_RANGE


cdef int read_raw(Run* run, Node* node) noexcept nogil:
    cdef const uint8_t* start = run.r.p
    cdef int status = skip_value(&run.r)
    return put_bytes(node, start, run.r.p - start) if status == JSON_OK else status


cdef int refuse_kind(Run* run) noexcept nogil:
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


cdef int read_value(Run* run, const Spot* spot, Node* node) noexcept nogil:
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


cdef int skip_misfit(Run* run, Node* node) noexcept nogil:
    """Put a null for the value at the reader, which is JSON and does not fit its column."""
    cdef int status = skip_value(&run.r)
    return put_null(node) if status == JSON_OK else status


cdef int read_row(Run* run, const Slice* row, int framing, const Spot* spot, Node* node) noexcept nogil:
    """Put the JSON of a row, all of it."""
    cdef Reader* r = &run.r
    cdef int status
    cdef bint headed = row.size > 0 and row.data[0] == 0
    r.p = row.data
    r.end = row.data + row.size
    r.depth = 0
    run.failed = NULL
    if framing == FRAMING_REGISTRY and (not headed or row.size < HEADER_BYTES):
        return JSON_HEADER
    if headed:
        if framing == FRAMING_RAW:
            return JSON_NO_HEADER
        if row.size < HEADER_BYTES:
            return JSON_HEADER
        r.p += HEADER_BYTES
    if not next_byte(r):
        return JSON_EMPTY
    status = read_value(run, spot, node)
    if status == JSON_OK and next_byte(r):
        return JSON_TRAILING
    return status


cdef void say(const Run* run, const Slice* row, int status, char* text) noexcept nogil:
    """What is wrong with a row: the path, what it is, and at which byte."""
    cdef const char* path = b""
    cdef const char* between = b""
    cdef long long at = run.r.p - row.data if row.data != NULL else 0
    if run.failed != NULL and run.failed.path[0] != 0:
        path = run.failed.path
        between = b": "
    if status == PUT_LIMIT or status == PUT_ENDS:
        snprintf(text, TEXT_BYTES, b"%s%sthe value is larger than the limit of memory", path, between)
    elif status == JSON_TYPE:
        snprintf(
            text, TEXT_BYTES, b"%s%s%s where %s is expected, at byte %lld", path, between, run.found,
            KIND_TEXTS[run.failed.kind], at,
        )
    elif JSON_EMPTY <= status <= JSON_MALFORMED:
        snprintf(text, TEXT_BYTES, b"%s%s%s, at byte %lld", path, between, TEXTS[status - JSON_EMPTY], at)
    else:
        snprintf(text, TEXT_BYTES, b"%s%sit has no place in the columns", path, between)


cdef void read_rows(
    ValueColumn values, int framing, const Spot* spot, Builder b, Run* run
) noexcept nogil:
    cdef int64_t i
    cdef int status
    cdef Slice row
    cdef char text[TEXT_BYTES]
    for i in range(values.count):
        if read_cell(&values.cells, i, &row) != SOUND:
            row.data = NULL
            row.size = 0
            run.failed = NULL
            run.r.p = NULL
            status = JSON_MALFORMED
        elif row.size < 0:
            status = put_null(b.nodes)
        else:
            status = read_row(run, &row, framing, spot, b.nodes)
        if kl_likely(status == JSON_OK):
            row_done(b)
            continue
        say(run, &row, status, text)
        if not row_failed(b, status, text):
            return


@cython.final
cdef class JsonRows:
    """A decoder of JSON. `fields` is the tree of a Builder, `spots` what each of its columns takes, in the same order:

    (kind, name, path, children), with a kind of KINDS; the children of a map are its value's alone.

    `framing` is one of FRAMINGS. If not `strict`, a value of another kind than its column, or beyond its type, is null
    there. A decoder never changes, so several threads may use it.
    """
    cdef Spot* spots
    cdef int count
    cdef int framing
    cdef bint strict
    cdef tuple fields
    cdef list kept

    def __cinit__(self, tuple fields not None, tuple spots not None, str framing="auto", bint strict=True):
        cdef int at = 0
        self.strict = strict
        self.framing = FRAMINGS.index(framing)
        self.fields = fields
        self.kept = []
        self.count = count_spots(spots)
        self.spots = <Spot*>calloc(self.count, sizeof(Spot))
        if self.spots == NULL:
            raise MemoryError
        self._fill(&at, spots, fields, 0)

    def __dealloc__(self):
        cdef int i
        if self.spots != NULL:
            for i in range(self.count):
                free(self.spots[i].children)
                free(self.spots[i].places)
            free(self.spots)

    cdef Spot* _fill(self, int* at, tuple given, tuple field, int depth) except NULL:
        cdef Spot* spot = &self.spots[at[0]]
        cdef bytes name = given[1].encode("utf-8", "surrogatepass")
        cdef bytes path = given[2].encode("utf-8", "replace")[:300].decode("utf-8", "ignore").encode()
        cdef int i
        if depth > 64:
            raise ValueError("the columns are nested more than 64 levels deep")
        spot.kind = KINDS.index(given[0])
        check_field(spot.kind, field, len(given[3]))
        at[0] += 1
        self.kept += [name, path]
        spot.name = name
        spot.name_size = len(name)
        spot.plain = is_utf8(name, <size_t>len(name)) and stands_plain(name)
        spot.path = path
        spot.child_count = <int>len(given[3])
        if spot.child_count:
            spot.children = <Spot**>calloc(spot.child_count, sizeof(Spot*))
            if spot.children == NULL:
                raise MemoryError
        for i in range(spot.child_count):
            below = field[3][0][3][1] if spot.kind == SPOT_MAP else field[3][i]
            spot.children[i] = self._fill(at, given[3][i], below, depth + 1)
        if spot.kind == SPOT_STRUCT:
            place_names(spot)
        return spot

    def decode(self, column, int64_t most_bytes=1 << 30):
        """Return a Builder with a row for each of the column's; its `stopped` says whether all of them were put."""
        cdef ValueColumn values = column if isinstance(column, ValueColumn) else ValueColumn(column)
        cdef Builder builder = Builder(self.fields, most_bytes)
        cdef Run run
        memset(&run, 0, sizeof(Run))
        run.strict = self.strict
        with nogil:
            read_rows(values, self.framing, self.spots, builder, &run)
            free(run.scratch)
        return builder


cdef tuple FORMATS = ("b", "l", "g", "u", "u", "tsu:UTC", "tdD", "+s", "+l", "+m")


cdef int check_field(int kind, tuple field, int64_t children) except -1:
    """ValueError where a column is not what its kind puts."""
    cdef int64_t wanted = len(field[3])
    if field[1] != FORMATS[kind] or field[4] or children != wanted:
        raise ValueError(f"{KINDS[kind]} does not go into a column of {field[1]!r} with {wanted} children")
    if kind == SPOT_MAP and field[3][0][3][0][1] != "u":
        raise ValueError("the keys of a map are text")
    return 0


cdef bint stands_plain(bytes name) except -1:
    """True for a name without quotes, backslashes and control characters."""
    for c in name:
        if c < 32 or c == 34 or c == 92:
            return False
    return True


cdef int count_spots(tuple given) except -1:
    cdef int total = 1
    for child in given[3]:
        total += count_spots(child)
    return total


cdef int place_names(Spot* spot) except -1:
    """Make the table by which a struct's children are found; ValueError for a name that comes twice."""
    cdef int size = 2
    cdef int i
    cdef int at
    while size < 2 * spot.child_count + 1:
        size *= 2
    spot.places = <int32_t*>calloc(size, sizeof(int32_t))
    if spot.places == NULL:
        raise MemoryError
    spot.mask = size - 1
    memset(spot.places, 0xFF, size * sizeof(int32_t))
    for i in range(spot.child_count):
        if find_child(spot, spot.children[i].name, spot.children[i].name_size) >= 0:
            raise ValueError(f"two fields are called {spot.children[i].name[:spot.children[i].name_size]!r}")
        at = <int>(hash_name(spot.children[i].name, spot.children[i].name_size) & <unsigned int>spot.mask)
        while spot.places[at] >= 0:
            at = (at + 1) & spot.mask
        spot.places[at] = i
    return 0
