"""Rows of Arrow data as records: which column is what, of which types, and each record batch held against that."""
cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strcmp

from kafkalog._core.arrow.cells cimport ENDS32, ENDS64, NOTHING, VIEWS, Cells, Lists, Numbers, at32, at64, is_set
from kafkalog._core.arrow.input cimport ArrowSource, HeldArray, shaped, valid_of

from kafkalog._core.arrow.input import BadArrow

ROLE_NAMES = ("value", "key", "topic", "partition", "headers", "timestamp")

cdef dict TYPE_WORDS = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "e": "float16", "f": "float32", "g": "float64", "z": "binary", "Z": "large_binary",
    "vz": "binary_view", "u": "string", "U": "large_string", "vu": "string_view", "tdD": "date32", "tdm": "date64",
    "+s": "struct", "+l": "list", "+L": "large_list", "+m": "map", "+r": "run_end_encoded", "+vl": "list_view",
}
cdef dict WANTED = {
    "value": "binary or string", "key": "binary or string", "topic": "string", "partition": "int32",
    "headers": "list<struct<key: string, value: binary>>", "timestamp": "timestamp, or int64 milliseconds",
}


cdef str type_words(const ArrowSchema* schema):
    """The type of a column as its user knows it."""
    cdef str text = (<bytes>schema.format).decode("ascii", "replace") if schema.format != NULL else "?"
    if schema.dictionary != NULL:
        return "dictionary"
    if text[:2] == "ts":
        return "timestamp"
    if text[:2] == "w:":
        return "fixed_size_binary"
    return TYPE_WORDS.get(text, repr(text[:40]))


cdef str name_of(const ArrowSchema* schema):
    return "" if schema.name == NULL else (<bytes>schema.name).decode("utf-8", "replace")


cdef object wrong_type(const ArrowSchema* schema, str role):
    shown = name_of(schema)
    return BadArrow(
        f"column {shown!r} is {type_words(schema)}, and {role} must be {WANTED[role]}", "type", shown, hint="cast it"
    )


cdef int bytes_layout(const ArrowSchema* schema, bint text_only) noexcept:
    """The layout of a column of bytes or text, NOTHING for one of type null, -1 for any other."""
    cdef const char* f = schema.format
    cdef int layout = ENDS32
    if f == NULL or schema.dictionary != NULL or schema.n_children != 0:
        return -1
    if f[0] == c"n" and f[1] == 0:
        return NOTHING
    if f[0] == c"v":
        layout = VIEWS
        f += 1
    elif f[0] == c"Z" or f[0] == c"U":
        layout = ENDS64
    if (f[0] == 0) or f[1] != 0:
        return -1
    if f[0] == c"u" or (f[0] == c"U" and layout == ENDS64):
        return layout
    if (f[0] == c"z" or (f[0] == c"Z" and layout == ENDS64)) and not text_only:
        return layout
    return -1


cdef int number_width(const ArrowSchema* schema) noexcept:
    """Bytes of a signed whole number, 0 for the type null, -1 for any other."""
    cdef const char* f = schema.format
    if f == NULL or schema.dictionary != NULL or f[0] == 0 or f[1] != 0:
        return -1
    if f[0] == c"n":
        return 0
    return 1 if f[0] == c"c" else 2 if f[0] == c"s" else 4 if f[0] == c"i" else 8 if f[0] == c"l" else -1


cdef int64_t units_of(const ArrowSchema* schema) noexcept:
    """Units in a millisecond of a column of times, -1000 for seconds; 0 for what is no time."""
    cdef const char* f = schema.format
    if f == NULL or schema.dictionary != NULL:
        return 0
    if f[0] == c"l" and f[1] == 0:
        return 1
    if f[0] != c"t" or f[1] != c"s" or f[2] == 0 or f[3] != c":":
        return 0
    return -1000 if f[2] == c"s" else 1 if f[2] == c"m" else 1000 if f[2] == c"u" else 1_000_000 if f[2] == c"n" else 0


cdef bint has_children(const ArrowSchema* schema, int64_t count) noexcept:
    cdef int64_t i
    if schema.n_children != count or schema.children == NULL:
        return False
    for i in range(count):
        if schema.children[i] == NULL:
            return False
    return True


cdef int read_headers_type(const ArrowSchema* schema, Role* role) except -1:
    """Fills the layouts of a column of headers; BadArrow for another type."""
    cdef const ArrowSchema* item
    if schema.format == NULL or schema.dictionary != NULL:
        raise wrong_type(schema, "headers")
    if strcmp(schema.format, "n") == 0:
        role.layout = NOTHING
        return 0
    role.layout = ENDS32 if strcmp(schema.format, "+l") == 0 else ENDS64 if strcmp(schema.format, "+L") == 0 else -1
    if role.layout < 0 or not has_children(schema, 1):
        raise wrong_type(schema, "headers")
    item = schema.children[0]
    if item.format == NULL or strcmp(item.format, "+s") != 0 or item.dictionary != NULL or not has_children(item, 2):
        raise wrong_type(schema, "headers")
    if name_of(item.children[0]) != "key" or name_of(item.children[1]) != "value":
        raise wrong_type(schema, "headers")
    role.key_layout = bytes_layout(item.children[0], True)
    role.value_layout = bytes_layout(item.children[1], False)
    if role.key_layout <= 0 or role.value_layout < 0:
        raise wrong_type(schema, "headers")
    return 0


cdef int read_type(Role* r, int number, const ArrowSchema* schema, int64_t place) except -1:
    """Fills a role from its column; BadArrow for one of a wrong type."""
    cdef str role = ROLE_NAMES[number]
    if number == HEADERS:
        read_headers_type(schema, r)
    elif number == PARTITION:
        r.width = number_width(schema)
    elif number == TIMESTAMP:
        r.per_ms = units_of(schema)
        r.width = 0 if number_width(schema) == 0 else 8
    else:
        r.layout = bytes_layout(schema, number == TOPIC)
    if r.width < 0 or r.layout < 0 or (number == TIMESTAMP and r.width > 0 and r.per_ms == 0):
        raise wrong_type(schema, role)
    if number == VALUE and r.layout == NOTHING:
        raise wrong_type(schema, role)
    if r.width or r.layout:
        r.child = place
    return 0


@cython.final
cdef class RowPlan:
    """Find the columns of `source` that hold the parts of a record; other columns are ignored.

    `names` says what a part is called where that is not its own name ({"value": "payload"}); None leaves a part out.
    BadArrow for data that is no table, without a value column (kind missing), without one that `names` names, with two
    of a name, or with one of a wrong type (kind type). `columns` is {part: column} of what was found.
    """

    def __cinit__(self, ArrowSource source not None, names: dict[str, str | None] | None = None):
        cdef const ArrowSchema* schema = &source.schema.schema
        cdef dict wanted = {role: role for role in ROLE_NAMES}
        if schema.format == NULL or strcmp(schema.format, "+s") != 0:
            raise BadArrow(f"the Arrow data is {type_words(schema)}, no table", "type", hint="give one with columns")
        if not has_children(schema, schema.n_children) and schema.n_children != 0:
            raise BadArrow("the Arrow schema contradicts itself", "malformed")
        unknown = set(names or ()) - set(ROLE_NAMES)
        if unknown:
            raise BadArrow(
                f"{sorted(unknown)} are no parts of a record", "missing", hint=f"known are {', '.join(ROLE_NAMES)}"
            )
        wanted.update(names or {})
        self.schema = source.schema
        self.columns = {}
        found = positions(schema)
        for i, role in enumerate(ROLE_NAMES):
            self.roles[i].child = -1
            column = wanted[role]
            if column is None:
                continue
            places = found.get(column, [])
            if len(places) > 1:
                raise BadArrow(f"{len(places)} columns are named {column!r}", "type", column, hint="rename one")
            if places:
                read_type(&self.roles[i], i, schema.children[<int64_t>places[0]], places[0])
                self.columns[role] = column
            elif role == "value" or (names is not None and role in names):
                shown = ", ".join(map(repr, list(found)[:20])) or "none at all"
                raise BadArrow(
                    f"there is no column {column!r} for the {role}", "missing", column, hint=f"the columns are {shown}"
                )

    def __repr__(self):
        return f"<RowPlan {', '.join(f'{role}={column!r}' for role, column in self.columns.items())}>"


cdef dict positions(const ArrowSchema* schema):
    """{name: [places of columns with that name]}."""
    cdef int64_t i
    cdef dict found = {}
    for i in range(schema.n_children):
        found.setdefault(name_of(schema.children[i]), []).append(i)
    return found


cdef bint bind_cells(Cells* c, const ArrowArray* array, int layout, int64_t first, int64_t rows) noexcept nogil:
    """Makes `c` the cells of rows [first, first + rows) of a column; False where the column contradicts itself."""
    if not shaped(array, -1 if layout == VIEWS else 3, 0) or array.n_buffers < 3 or not valid_of(array, &c.valid):
        return False
    if array.length < first + rows:
        return False
    c.first = array.offset + first
    c.layout = layout
    c.ends = <const uint8_t*>array.buffers[1]
    if layout == VIEWS:
        c.block_count = array.n_buffers - 3
        if c.block_count and array.buffers[array.n_buffers - 1] == NULL:
            return False
        c.blocks = array.buffers + 2
        c.block_sizes = <const uint8_t*>array.buffers[array.n_buffers - 1]
        return c.ends != NULL or rows == 0
    c.data = <const uint8_t*>array.buffers[2]
    if rows == 0:
        return True                     # an empty column may have no ends at all
    if c.ends == NULL:
        return False
    c.last = at32(c.ends, c.first + rows) if layout == ENDS32 else at64(c.ends, c.first + rows)
    return True


cdef bint bind_numbers(Numbers* c, const ArrowArray* array, int width, int64_t first, int64_t rows) noexcept nogil:
    if not shaped(array, 2, 0) or not valid_of(array, &c.valid) or array.length < first + rows:
        return False
    c.first = array.offset + first
    c.width = width
    c.data = <const uint8_t*>array.buffers[1]
    return c.data != NULL or rows == 0


cdef bint bind_lists(Lists* c, const ArrowArray* array, const Role* role, int64_t first, int64_t rows) noexcept nogil:
    cdef const ArrowArray* item
    if not shaped(array, 2, 1) or not valid_of(array, &c.valid) or array.length < first + rows:
        return False
    item = array.children[0]
    if not shaped(item, 1, 2) or not valid_of(item, &c.items_valid):
        return False
    c.layout = role.layout
    c.first = array.offset + first
    c.ends = <const uint8_t*>array.buffers[1]
    c.items = item.length
    c.items_first = item.offset
    if c.ends == NULL and rows > 0:
        return False
    return bind_cells(&c.key, item.children[0], role.key_layout, item.offset, item.length) and (
        role.value_layout == NOTHING or bind_cells(&c.value, item.children[1], role.value_layout, item.offset, item.length)
    )


cdef bint none_null(const ArrowArray* array) noexcept nogil:
    """True where no row of the table itself is null."""
    cdef const uint8_t* valid
    cdef int64_t i
    if not valid_of(array, &valid):
        return False
    if valid != NULL:
        for i in range(array.length):
            if not is_set(valid, array.offset + i):
                return False
    return True


@cython.final
cdef class Rows:
    """The rows of one record batch, which it holds; made by `next_rows`."""

    def __len__(self) -> int:
        return self.count


cdef int bind(Rows rows) except -1:
    """Finds the columns of the record batch that `rows` hold."""
    cdef const ArrowArray* array = &rows.held.array
    cdef RowPlan plan = rows.plan
    cdef int i
    if not shaped(array, 1, plan.schema.schema.n_children):
        raise BadArrow("an Arrow record batch contradicts its schema", "malformed")
    if not none_null(array):
        raise BadArrow("a row of the Arrow data itself is null", "malformed", hint="take only the valid ones")
    rows.count = array.length
    rows.per_ms = plan.roles[TIMESTAMP].per_ms
    for i in range(ROLES):
        if plan.roles[i].child >= 0 and not bind_role(rows, i, array.children[plan.roles[i].child], array.offset):
            column = plan.columns[ROLE_NAMES[i]]
            raise BadArrow(f"column {column!r} of an Arrow record batch contradicts itself", "malformed", column)
    return 0


cdef bint bind_role(Rows rows, int i, const ArrowArray* array, int64_t first) noexcept:
    cdef const Role* role = &rows.plan.roles[i]
    if i == HEADERS:
        return bind_lists(&rows.headers, array, role, first, rows.count)
    if i == PARTITION:
        return bind_numbers(&rows.partition, array, role.width, first, rows.count)
    if i == TIMESTAMP:
        return bind_numbers(&rows.timestamp, array, role.width, first, rows.count)
    return bind_cells(
        &rows.value if i == VALUE else &rows.key if i == KEY else &rows.topic, array, role.layout, first, rows.count
    )


def next_rows(ArrowSource source not None, RowPlan plan not None) -> Rows | None:
    """The rows of the next record batch of a source, None at the end; BadArrow for one that contradicts itself.

    What can be seen without the bytes of every row is checked here, the rest by who reads them. Their memory stays
    for as long as the rows do.
    """
    cdef HeldArray held
    cdef Rows rows
    if plan.schema is not source.schema:
        raise ValueError("the plan was made for another source")
    held = source.next_array()
    if held is None:
        return None
    rows = Rows.__new__(Rows)
    rows.held = held
    rows.plan = plan
    bind(rows)
    return rows
