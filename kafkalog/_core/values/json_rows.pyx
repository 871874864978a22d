"""Rows of JSON put into typed columns: only the wanted fields, without a tree and without a Python object for a row."""
cimport cython
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kafkalog._core.arrow.cells cimport SOUND, Slice, read_cell
from kafkalog._core.text.text_buffer cimport is_utf8, kl_likely
from kafkalog._core.values.builder cimport Builder, row_done, row_failed
from kafkalog._core.values.json_rows cimport SPOT_MAP, SPOT_STRUCT, Spot, hash_name
from kafkalog._core.values.json_steps cimport Run, find_child, read_value
from kafkalog._core.values.json_text cimport (
    JSON_EMPTY, JSON_HEADER, JSON_MALFORMED, JSON_NO_HEADER, JSON_OK, JSON_TRAILING, JSON_TYPE, Reader, next_byte,
)
from kafkalog._core.values.nodes cimport PUT_ENDS, PUT_LIMIT, Node, put_null
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
    """Describe what is wrong with a row: the path, the fault, and the byte."""
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
