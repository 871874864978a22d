"""Rows of Protobuf messages put into typed columns: the wanted fields by their numbers, without an object for a row."""
from operator import itemgetter

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kafkalog._core.arrow.cells cimport SOUND, Slice, read_cell
from kafkalog._core.text.text_buffer cimport kl_likely
from kafkalog._core.values.builder cimport Builder, row_done, row_failed, shown_field
from kafkalog._core.values.nodes cimport PUT_ENDS, PUT_LIMIT, PUT_UTF8, Node, put_null
from kafkalog._core.values.protobuf_rows cimport (
    ABSENT_DEFAULT, KIND_BYTES, KIND_ENUM, KIND_MESSAGE, KIND_NOWHERE, KIND_WRAPPER, LABEL_MANY, LABEL_MAP, LABEL_ONE,
    Field, Message, Word,
)
from kafkalog._core.values.protobuf_steps cimport Moment, Run, close_message, read_message
from kafkalog._core.values.protobuf_wire cimport (
    WIRE_32, WIRE_64, WIRE_BYTES, WIRE_ENDS, WIRE_GROUP, WIRE_HEADER, WIRE_INDEXES, WIRE_LENGTH, WIRE_MALFORMED,
    WIRE_OK, WIRE_OTHER, WIRE_REQUIRED, WIRE_UTF8, WIRE_VARINT, Wire, read_varint,
)
from kafkalog._core.values.value_column cimport ValueColumn

KINDS = (
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "bool", "enum", "string", "bytes",
    "message", "timestamp", "duration", "wrapper", "cut", "nowhere",
)
LABELS = ("one", "many", "map")
ABSENTS = ("null", "default", "error", "empty")
FRAMINGS = ("auto", "raw", "registry", "delimited")

cdef const char* TEXTS[14]      # of the statuses from WIRE_ENDS on
TEXTS[:] = [
    b"the message ends within a field", b"a number has too many bytes", b"this is no tag of a field",
    b"the wire type is not the field's", b"a group ends that did not begin",
    b"groups are nested more than 100 levels deep", b"the text is not UTF-8", b"a required field is missing",
    b"the time is beyond its column", b"there is no registry's header (a zero byte, a 4-byte id, indexes)",
    b"the indexes of the message's type are not such numbers", b"the message is of another type of its schema",
    b"the length before the message is not that of the row", b"the Arrow column contradicts itself",
]

cdef enum:
    HEADER_BYTES = 5
    TEXT_BYTES = 600
    MOST_DENSE = 1024
    MOST_INDEXES = 32
    FRAMING_AUTO = 0
    FRAMING_RAW = 1
    FRAMING_REGISTRY = 2
    FRAMING_DELIMITED = 3


# Rows

cdef int read_indexes(Run* run, Wire* w) noexcept nogil:
    """Go over the indexes of the message's type; WIRE_OTHER where the columns are of another one."""
    cdef uint64_t v = 0
    cdef int64_t count
    cdef int64_t i
    cdef bint same
    if read_varint(w, &v) != WIRE_OK or v & 1 or v > 2 * <uint64_t>(w.end - w.p):
        return WIRE_INDEXES
    count = <int64_t>(v >> 1)
    same = run.index_count <= 0 or count == run.index_count or (
        count == 0 and run.index_count == 1 and run.indexes[0] == 0
    )
    for i in range(count):
        if read_varint(w, &v) != WIRE_OK or v & 1:
            return WIRE_INDEXES
        if i < run.index_count and v >> 1 != <uint64_t>run.indexes[i]:
            same = False
    return WIRE_OK if same else WIRE_OTHER


cdef int read_row(Run* run, const Slice* row, int framing, const Message* m, Node* node) noexcept nogil:
    cdef Wire w
    cdef uint64_t v = 0
    cdef int status = WIRE_OK
    w.p = row.data
    w.end = row.data + row.size
    run.failed = NULL
    run.at = NULL
    if framing == FRAMING_REGISTRY or (framing == FRAMING_AUTO and row.size > 0 and row.data[0] == 0):
        if row.size <= HEADER_BYTES or row.data[0] != 0:
            return WIRE_HEADER
        w.p += HEADER_BYTES
        status = read_indexes(run, &w)
    elif framing == FRAMING_DELIMITED:
        status = read_varint(&w, &v)
        if status == WIRE_OK and v != <uint64_t>(w.end - w.p):
            status = WIRE_LENGTH
    if status == WIRE_OK:
        status = read_message(run, m, node, &w, 0)
    if status == WIRE_OK:
        status = close_message(run, m, node)
    if run.at == NULL:
        run.at = w.p
    return status


cdef void say(const Run* run, const Slice* row, int status, char* text) noexcept nogil:
    """Describe what is wrong with a row: the path, the fault, and the byte."""
    cdef const char* path = b""
    cdef const char* between = b""
    cdef long long at = run.at - row.data if run.at != NULL else 0
    if run.failed != NULL:
        path = run.failed.path
        between = b": "
    if status == PUT_UTF8:
        status = WIRE_UTF8
    if status == PUT_LIMIT or status == PUT_ENDS:
        snprintf(text, TEXT_BYTES, b"%s%sthe value is larger than the limit of memory", path, between)
    elif status == WIRE_REQUIRED:
        snprintf(text, TEXT_BYTES, b"%s%s%s", path, between, TEXTS[status - WIRE_ENDS])
    elif WIRE_ENDS <= status <= WIRE_MALFORMED:
        snprintf(text, TEXT_BYTES, b"%s%s%s, at byte %lld", path, between, TEXTS[status - WIRE_ENDS], at)
    else:
        snprintf(text, TEXT_BYTES, b"%s%sit has no place in the columns", path, between)


cdef void read_rows(ValueColumn values, int framing, const Message* m, Builder b, Run* run) noexcept nogil:
    cdef int64_t i
    cdef int status
    cdef Slice row
    cdef char text[TEXT_BYTES]
    for i in range(values.count):
        if read_cell(&values.cells, i, &row) != SOUND:
            run.failed = NULL
            run.at = NULL
            status = WIRE_MALFORMED
        elif row.size < 0:
            status = put_null(b.nodes)
        else:
            status = read_row(run, &row, framing, m, b.nodes)
        if kl_likely(status == WIRE_OK):
            row_done(b)
            continue
        say(run, &row, status, text)
        memset(run.seen, 0, run.node_count)
        if not row_failed(b, status, text):
            return


# Programs

cdef int WIRES[18]
WIRES[:] = [
    WIRE_VARINT, WIRE_VARINT, WIRE_VARINT, WIRE_VARINT, WIRE_VARINT, WIRE_VARINT, WIRE_32, WIRE_64, WIRE_VARINT,
    WIRE_VARINT, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES,
]

cdef tuple FORMATS = (
    ("i",), ("l",), ("I",), ("L",), ("i",), ("l",), ("i", "I", "f"), ("l", "L", "g"), ("b",), ("u",), ("u",), ("z",),
    ("+s",), ("tsu:UTC", "tsn:UTC"), ("tDu", "tDn"), None, ("z",), (),
)


@cython.final
@cython.no_gc_clear                 # the collector would drop the list of what is to be freed
cdef class ProtobufRows:
    """A decoder of one message type. `fields` is the tree of a Builder, a struct; `message` is a tuple of fields:

    (number, kind, label, absent, child, oneof, is_group, message or None, default, words, path), with the words of
    KINDS, LABELS and ABSENTS; `child` is the place of its column, or of what stands for a field without one, `default` bytes as they lie in the column, `words`
    pairs of number and name. A wrapper's message is the one field of its value. The entry of a map is a message.

    `framing` is one of FRAMINGS, `indexes` those of the message's type in its file, for the registry's framing; ()
    accepts all. A decoder never changes, so several threads may use it.
    """
    cdef list messages              # addresses, to be freed
    cdef list kept
    cdef tuple fields
    cdef Message* root
    cdef int framing
    cdef int index_count
    cdef int32_t indexes[MOST_INDEXES]

    def __cinit__(self, tuple fields not None, tuple message not None, str framing="auto", tuple indexes=()):
        cdef int i
        self.messages = []
        self.kept = []
        self.fields = fields
        self.framing = FRAMINGS.index(framing)
        if len(indexes) > MOST_INDEXES:
            raise ValueError(f"there are more than {MOST_INDEXES} indexes")
        self.index_count = <int>len(indexes)
        for i in range(self.index_count):
            self.indexes[i] = indexes[i]
        if fields[1] != "+s":
            raise ValueError(f"a message goes into a struct, not {fields[1]!r}")
        self.root = self._message(message, fields, 0)

    def __dealloc__(self):
        cdef Message* m
        cdef int i
        if self.messages is None:
            return  # the arguments were refused
        for address in self.messages:
            m = <Message*><size_t>address
            if m.fields != NULL:
                for i in range(m.count):
                    free(m.fields[i].words)
            free(m.fields)
            free(m.places)
            free(m)

    cdef Message* _message(self, tuple given, tuple field, int depth) except NULL:
        cdef Message* m = <Message*>calloc(1, sizeof(Message))
        cdef int i
        if m == NULL:
            raise MemoryError
        self.messages.append(<size_t>m)
        if depth > 64:
            raise ValueError("the messages are nested more than 64 levels deep")
        given = tuple(sorted(given, key=itemgetter(0)))
        m.fields = <Field*>calloc(len(given) + 1, sizeof(Field))
        if m.fields == NULL:
            raise MemoryError
        m.count = <int>len(given)
        children = set()
        for i in range(m.count):
            place = given[i][4]
            if place >= 0:
                if place >= len(field[3]) or place in children:
                    raise ValueError(f"field {given[i][0]} has no column {place} of its own")
                children.add(place)
            if i and given[i][0] == given[i - 1][0]:
                raise ValueError(f"there are two fields with number {given[i][0]}")
            self._field(&m.fields[i], given[i], shown_field(field[3][place])[0] if place >= 0 else None, depth)
        if len(children) != len(field[3]):
            raise ValueError("there is a column without a field")
        place_numbers(m)
        return m

    cdef int _field(self, Field* f, tuple given, tuple column, int depth) except -1:
        number, kind, label, absent, f.child, f.oneof, f.is_group, message, fallback, words, path = given
        f.number = number
        f.kind = KINDS.index(kind)
        f.label = LABELS.index(label)
        f.absent = ABSENTS.index(absent)
        f.wire = WIRE_GROUP if f.is_group else WIRES[f.kind]
        path = path.encode("utf-8", "replace")[:300].decode("utf-8", "ignore").encode()
        self.kept += [path, fallback]
        f.path = path
        f.fallback = fallback
        f.fallback_size = len(fallback)
        if (f.child < 0) != (f.kind == KIND_NOWHERE):
            raise ValueError(f"field {number} has a column, or has none, against its kind")
        if f.kind == KIND_NOWHERE:
            return 0
        if f.label != LABEL_ONE:
            if column[1] != ("+l" if f.label == LABEL_MANY else "+m"):
                raise ValueError(f"field {number} is {label}, and its column {column[1]!r}")
            column = column[3][0]
        self._check(f, column, message)
        if f.kind == KIND_MESSAGE:
            f.message = self._message(message, column, depth + 1)
        elif f.kind == KIND_WRAPPER:
            f.message = self._message(message, ("", "+s", True, (column,), ()), depth + 1)
        if f.kind == KIND_ENUM:
            self._words(f, sorted(words, key=itemgetter(0)))
        return 0

    cdef int _check(self, Field* f, tuple column, message) except -1:
        """ValueError where a column is not what the field puts."""
        formats = FORMATS[f.kind]
        if (formats is not None and column[1] not in formats) or column[4]:
            raise ValueError(f"field {f.number} is {KINDS[f.kind]}, and its column {column[1]!r}")
        if f.kind == KIND_WRAPPER and (
            len(message) != 1 or message[0][0] != 1 or KINDS.index(message[0][1]) > KIND_BYTES
            or message[0][2] != "one" or message[0][5] or message[0][6]
        ):
            raise ValueError(f"field {f.number} is no wrapper")
        if f.label == LABEL_MAP and (f.kind != KIND_MESSAGE or len(column[3]) != 2 or f.is_group):
            raise ValueError(f"field {f.number} is a map without keys and values")
        if f.absent == ABSENT_DEFAULT:
            check_fallback(f, column[1])
        f.unit = 1 if column[1] == "tsn:UTC" or column[1] == "tDn" else 1000
        return 0

    cdef int _words(self, Field* f, list words) except -1:
        """Keep the first name of each number."""
        cdef int32_t number
        f.words = <Word*>calloc(len(words) + 1, sizeof(Word))
        if f.words == NULL:
            raise MemoryError
        for number, word in words:
            if f.word_count and f.words[f.word_count - 1].number == number:
                continue
            text = word.encode()
            self.kept.append(text)
            f.words[f.word_count].number = number
            f.words[f.word_count].text = text
            f.words[f.word_count].size = len(text)
            f.word_count += 1
        return 0

    def decode(self, column, int64_t most_bytes=1 << 30):
        """Return a Builder with a row for each of the column's; its `stopped` says whether all of them were put."""
        cdef ValueColumn values = column if isinstance(column, ValueColumn) else ValueColumn(column)
        cdef Builder builder = Builder(self.fields, most_bytes)
        cdef Run run
        memset(&run, 0, sizeof(Run))
        run.node_count = <int>builder.node_count
        run.seen = <uint8_t*>calloc(builder.node_count, 1)
        run.moments = <Moment*>calloc(builder.node_count, sizeof(Moment))
        run.index_count = self.index_count
        run.indexes = self.indexes
        try:
            if run.seen == NULL or run.moments == NULL:
                raise MemoryError
            with nogil:
                read_rows(values, self.framing, self.root, builder, &run)
        finally:
            free(run.seen)
            free(run.moments)
        return builder


cdef dict WIDTHS = {"i": 4, "I": 4, "f": 4, "l": 8, "L": 8, "g": 8, "b": 1}


cdef int check_fallback(const Field* f, str format) except -1:
    cdef int64_t width = WIDTHS.get(format, 8 if format[0] == "t" else -1)
    if f.kind == KIND_MESSAGE:
        raise ValueError(f"field {f.number} can have no default")
    if width >= 0 and f.fallback_size != width:
        raise ValueError(f"the default of field {f.number} has {f.fallback_size} bytes, not {width}")
    return 0


cdef int place_numbers(Message* m) except -1:
    """Make the table of small numbers."""
    cdef uint32_t i
    cdef int at
    m.dense = 0
    for at in range(m.count):
        if m.fields[at].number < MOST_DENSE:
            m.dense = m.fields[at].number + 1
    m.places = <int32_t*>calloc(m.dense + 1, sizeof(int32_t))
    if m.places == NULL:
        raise MemoryError
    for i in range(m.dense):
        m.places[i] = -1
    for at in range(m.count):
        if m.fields[at].number < MOST_DENSE:
            m.places[m.fields[at].number] = at
    return 0
