"""A message of Kafka's, read by the plan of its fields: KIP-482's formats, and those before it.

What is read is not trusted: every length is compared with the bytes at hand before anything is made of it, every count
also with how many elements a message may have, and structures lie in one another only as deep as the plan says.
There are two dialects: of the protocol, whose values are named tuples, and of records in logs (groups, transactions,
metadata), whose values are dicts, as the reference's tools show them.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from cpython.sequence cimport PySequence_GetSlice
from cpython.tuple cimport PyTuple_New
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkalog._core.batch.layout cimport ERR_SHORT, OK
from kafkalog._core.bytes.buffers cimport take_view
from kafkalog._core.bytes.cursor cimport Cursor, skip, take_uvarint
from kafkalog._core.bytes.endian cimport load16, load32, load64, loadu32
from kafkalog._core.messages.fields cimport (
    BOOL, F64, I8, I16, I32, MOST_TEXT_BYTES, STRUCT, TEXT, TIME, U16, U32, UUID, UUID_BYTES, Field, describe,
    in_order, size_of,
)
from kafkalog._core.text.text_buffer cimport is_utf8

from kafkalog._core.text.text_buffer import java_text

cdef extern from *:
    """
    /* a tuple of a derived class, all of its places empty; `kl_place` fills one, and once more where it has to */
    static CYTHON_INLINE PyObject *kl_empty_tuple(PyObject *type, Py_ssize_t size) {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    }
    static CYTHON_INLINE void kl_place(PyObject *tuple, Py_ssize_t at, PyObject *value) {
        PyObject *before = PyTuple_GET_ITEM(tuple, at);
        Py_INCREF(value);
        PyTuple_SET_ITEM(tuple, at, value);
        Py_XDECREF(before);
    }
    #define kl_is_empty(tuple, at) (PyTuple_GET_ITEM(tuple, at) == NULL)
    #define kl_at(tuple, at) PyTuple_GET_ITEM(tuple, at)
    """
    object kl_empty_tuple(object type, Py_ssize_t size)
    void kl_place(object tuple, Py_ssize_t at, object value)
    bint kl_is_empty(object tuple, Py_ssize_t at)
    PyObject* kl_at(object tuple, Py_ssize_t at)

MAX_ELEMENTS = 1_000_000
"""Array items and tagged fields of one message: what a broker of 4.4 takes in one array, in less than 256 bytes each."""
MAX_TAGS = 10_000
"""Tagged fields of one structure."""
MAX_STRING_BYTES = MOST_TEXT_BYTES
cdef object MISSING = object()
cdef int64_t MOST_ELEMENTS = <int64_t>1 << 62
cdef int64_t MOST_TAGS = MAX_TAGS

cdef enum Fault:
    ENDS = 0                        # at the end of the bytes
    ENDS_IN_ID
    IS_NULL
    BEYOND                          # a value of so many bytes, where so many are left
    TEXT_TOO_LONG                   # of so many bytes, where so many are taken
    TOO_FEW_BYTES                   # for so many elements, where so many are left
    TOO_MANY_ELEMENTS
    LONG_VARINT                     # of that value, as far as it was read
    TAG_BEYOND                      # the tag, of so many bytes
    TAG_SIZE                        # the tag, of so many bytes, and so many that were read
    BEHIND                          # so many bytes after the message
    NEGATIVE                        # a size
    NEWER                           # a structure of a version that is not known

FAULTS = (
    "ends", "ends in id", "null", "beyond", "text too long", "too few bytes", "too many elements", "long varint",
    "tag beyond", "tag size", "behind", "negative", "newer",
)
"""Faults of a message: a dialect has words for each, with {name} of the field and up to three numbers."""


@cython.final
cdef class Dialect:
    """Reader of messages of one kind.

    `words` are by the names of FAULTS, `problem` makes an exception of words and a position, `make_id` makes a value of
    a uuid's 16 bytes. `of_records`: as the reference reads what lies in its logs.
    """
    cdef tuple words
    cdef object problem
    cdef object make_id
    cdef bint of_records

    def __cinit__(self, words, problem, make_id, of_records=False):
        self.words = tuple([words.get(name, "") for name in FAULTS])
        self.problem, self.make_id, self.of_records = problem, make_id, of_records


@cython.final
cdef class Reading:
    """A message that is being read: how far it is, and how many elements more it may have."""
    cdef Cursor c
    cdef const uint8_t* start
    cdef int64_t elements
    cdef object frame
    cdef object view                # of the frame; made where a value is a part of it

    cdef object part(self, Py_ssize_t size):
        """The next bytes, as a view of the frame: `size` was compared with what is left."""
        cdef Py_ssize_t at = self.c.p - self.start
        if self.view is None:
            self.view = PyMemoryView_FromObject(self.frame)
        skip(&self.c, size)
        return PySequence_GetSlice(self.view, at, at + size)


@cython.final
cdef class MessageReader:
    """The plan of a message, or of a structure in one, as it is read.

    `type` is the named tuple that its values come in; None for records, which come in dicts. A row of `rows` is (name,
    kind, whether it is an array, whether it may be null, its tag or None, the reader of a structure or None, what is
    read where a tag is absent: a record leaves out what has this value). `refused` are tags that are an error, with
    its words.
    """
    cdef readonly object type
    cdef Dialect dialect
    cdef Field* fields
    cdef Py_ssize_t* places         # of the fields, in the order of the rows
    cdef Py_ssize_t count
    cdef Py_ssize_t plain           # how many have no tag; they come first
    cdef bint is_flexible
    cdef bint of_records
    cdef int least
    cdef tuple names
    cdef tuple inner
    cdef tuple absent
    cdef tuple order                # the names by place
    cdef dict refused

    def __cinit__(self, type, is_flexible, rows, Dialect dialect not None, refused=None):
        cdef Py_ssize_t i
        self.order = tuple([row[0] for row in rows])
        if dialect.of_records != (type is None) or type is not None and not (
            issubclass(type, tuple) and sorted(type._fields) == sorted(self.order)
        ):
            raise TypeError("the values of a message come in a named tuple of its fields, those of a record in a dict")
        if type is not None:
            self.order = type._fields
        rows = in_order(rows)
        self.type, self.is_flexible, self.dialect, self.refused = type, is_flexible, dialect, dict(refused or {})
        self.of_records = dialect.of_records
        self.count = len(rows)
        self.plain = sum([row[4] is None for row in rows])
        self.fields = <Field*>calloc(<size_t>self.count + 1, sizeof(Field))
        self.places = <Py_ssize_t*>calloc(<size_t>self.count + 1, sizeof(Py_ssize_t))
        if self.fields == NULL or self.places == NULL:
            raise MemoryError
        self.names = tuple([row[0] for row in rows])
        self.inner = tuple([row[5] for row in rows])
        self.absent = tuple([row[6] for row in rows])
        self.least = 1 if is_flexible else 0
        for i in range(self.count):
            self.places[i] = self.order.index(self.names[i])
            self.take_row(i, rows[i])
        self.least = max(self.least, 1)  # or a count could not be checked by it

    cdef int take_row(self, Py_ssize_t i, row) except -1:
        cdef Field* f = &self.fields[i]
        describe(f, row, self.is_flexible, 1)
        if f.kind == STRUCT and not (self.of_records and self.inner[i] is None):
            f.least = (<MessageReader?>self.inner[i]).least
        if self.of_records:
            f.least = 1             # all that the reference asks for
        if i < self.plain and f.is_array:
            self.least += 1 if self.is_flexible else 4
        elif i < self.plain:
            self.least += 1 if f.kind == STRUCT and f.is_nullable else f.least
        return 0

    def __dealloc__(self):
        free(self.fields)
        free(self.places)

    def read(self, frame, Py_ssize_t position, int64_t max_elements=MAX_ELEMENTS, bint is_whole=False):
        """The message that begins at `position`; bytes are views of the frame, but copies in a record.

        Bytes behind it are ignored, unless it has to go to the frame's end.
        """
        return self.read_from(frame, position, max_elements, is_whole)[0]

    def read_from(self, frame, Py_ssize_t position, int64_t max_elements=MAX_ELEMENTS, bint is_whole=False):
        """(the message, where it ends), as `read`."""
        cdef Reading r = Reading.__new__(Reading)
        cdef Py_buffer view
        r.frame = frame
        kept = take_view(frame, &view)
        try:
            r.start = <const uint8_t*>view.buf
            r.c.p = r.start
            r.c.end = r.start + view.len
            r.elements = MOST_ELEMENTS if self.of_records else max_elements
            if skip(&r.c, position) != OK:
                fault(self, r, ENDS, "")
            value = read_struct(self, r)
            if is_whole and r.c.p != r.c.end:
                fault(self, r, BEHIND, "", r.c.end - r.c.p)
            return value, r.c.p - r.start
        finally:
            if kept is None:
                PyBuffer_Release(&view)


cdef int fault(
    MessageReader plan, Reading r, Fault what, name, int64_t first=0, int64_t second=0, int64_t third=0
) except -1:
    position = r.c.end - r.start if what == ENDS else r.c.p - r.start
    raise plan.dialect.problem(plan.dialect.words[what].format(first, second, third, name=name), position)


cdef int64_t read_unsigned(MessageReader plan, Reading r) except -0x80000001:
    """A length or a number; signed in a record."""
    cdef uint32_t value = 0
    cdef const uint8_t* begin = r.c.p
    cdef int status = take_uvarint(&r.c, &value)
    if status != OK:
        if status == ERR_SHORT:
            fault(plan, r, ENDS, "")
        value = (begin[0] & 0x7F) | <uint32_t>(begin[1] & 0x7F) << 7 | <uint32_t>(begin[2] & 0x7F) << 14
        value |= <uint32_t>(begin[3] & 0x7F) << 21 | <uint32_t>begin[4] << 28
        fault(plan, r, LONG_VARINT, "", value)
    return <int32_t>value if plan.of_records else <int64_t>value


cdef int64_t read_size(MessageReader plan, Reading r, bint is_short) except -2:
    """A length or a count; -1 is null."""
    cdef int64_t size
    if plan.is_flexible:
        size = read_unsigned(plan, r) - 1
    else:
        if skip(&r.c, 2 if is_short else 4) != OK:
            fault(plan, r, ENDS, "")
        size = load16(r.c.p - 2) if is_short else load32(r.c.p - 4)
    return max(size, <int64_t>-1)


cdef int take_elements(MessageReader plan, Reading r, int64_t count, int least) except -1:
    if count * least > r.c.end - r.c.p:
        fault(plan, r, TOO_FEW_BYTES, "", count, r.c.end - r.c.p)
    r.elements -= count
    if r.elements < 0:
        fault(plan, r, TOO_MANY_ELEMENTS, "")
    return 0


cdef object read_struct(MessageReader plan, Reading r):
    cdef Py_ssize_t i
    values = PyTuple_New(plan.count) if plan.of_records else kl_empty_tuple(plan.type, plan.count)
    for i in range(plan.plain):
        kl_place(values, plan.places[i], read_field(plan, i, r))
    if plan.is_flexible:
        if r.c.p < r.c.end and r.c.p[0] == 0:
            skip(&r.c, 1)
        else:
            read_tags(plan, r, values)
    if plan.of_records:
        return as_record(plan, values)
    for i in range(plan.plain, plan.count):
        if kl_is_empty(values, plan.places[i]):
            kl_place(values, plan.places[i], plan.absent[i])
    return values


cdef dict as_record(MessageReader plan, values):
    """The values by name, without tagged ones that are absent, or have their default."""
    cdef Py_ssize_t i
    cdef dict found = {}
    for i in range(plan.plain, plan.count):
        if not kl_is_empty(values, plan.places[i]) and <object>kl_at(values, plan.places[i]) == plan.absent[i]:
            kl_place(values, plan.places[i], MISSING)
    for i in range(plan.count):
        if not kl_is_empty(values, i) and kl_at(values, i) != <PyObject*>MISSING:
            found[plan.order[i]] = <object>kl_at(values, i)
    return found


cdef int read_tags(MessageReader plan, Reading r, values) except -1:
    """The tagged fields at the end of a structure; those that the plan does not know are passed over."""
    cdef Py_ssize_t i
    cdef int64_t tag, size
    cdef const uint8_t* begin
    cdef int64_t left = read_unsigned(plan, r)
    if not plan.of_records:
        take_elements(plan, r, left, 2)
        if left > MOST_TAGS:
            fault(plan, r, TOO_MANY_ELEMENTS, "")
    while left > 0:
        left -= 1
        tag = read_unsigned(plan, r)
        size = read_unsigned(plan, r)
        if size > r.c.end - r.c.p and not plan.of_records:
            fault(plan, r, TAG_BEYOND, "", tag, size)
        begin = r.c.p
        for i in range(plan.plain, plan.count):
            if plan.fields[i].tag == tag:
                kl_place(values, plan.places[i], read_field(plan, i, r))
                if r.c.p - begin != size and not plan.of_records:
                    fault(plan, r, TAG_SIZE, "", tag, size, r.c.p - begin)
                break
        else:
            pass_over(plan, r, tag, size)
    return 0


cdef int pass_over(MessageReader plan, Reading r, int64_t tag, int64_t size) except -1:
    if plan.of_records:
        if tag in plan.refused:
            raise plan.dialect.problem(plan.refused[tag], r.c.p - r.start)
        if size < 0:
            fault(plan, r, NEGATIVE, "", size)
        if size > r.c.end - r.c.p:
            fault(plan, r, BEYOND, "", size, r.c.end - r.c.p)
    skip(&r.c, size)
    return 0


cdef object read_field(MessageReader plan, Py_ssize_t i, Reading r):
    cdef Field* f = &plan.fields[i]
    cdef int64_t count
    cdef Py_ssize_t at
    if not f.is_array:
        return read_value(plan, i, r)
    count = read_size(plan, r, False)
    if count < 0:
        if not f.is_nullable:
            fault(plan, r, IS_NULL, plan.names[i])
        return None
    take_elements(plan, r, count, f.least)
    if plan.of_records:
        return [read_value(plan, i, r) for at in range(count)]
    values = PyTuple_New(count)
    for at in range(count):
        kl_place(values, at, read_value(plan, i, r))
    return values


cdef object read_value(MessageReader plan, Py_ssize_t i, Reading r):
    """One value: a field that is no array, or an item of one."""
    cdef Field* f = &plan.fields[i]
    if f.kind <= TIME:
        return read_number(plan, f.kind, r)
    if f.kind == STRUCT:
        if f.is_nullable and not f.is_array and is_null(plan, f, r):
            return None
        if plan.inner[i] is None:
            fault(plan, r, NEWER, plan.names[i])
        return read_struct(<MessageReader>plan.inner[i], r)
    if f.kind != UUID:
        return read_sized(plan, i, r)
    if skip(&r.c, UUID_BYTES) != OK:
        fault(plan, r, ENDS_IN_ID, "")
    if not plan.of_records and load64(r.c.p - 16) == 0 and load64(r.c.p - 8) == 0:
        return None
    return plan.dialect.make_id(PyBytes_FromStringAndSize(<const char*>r.c.p - UUID_BYTES, UUID_BYTES))


cdef bint is_null(MessageReader plan, Field* f, Reading r) except -1:
    """True for a null structure, by its byte or, in a record's tag, by its size; a tag is absent instead."""
    if f.has_tag:
        return plan.of_records and read_unsigned(plan, r) <= 0
    if skip(&r.c, 1) != OK:
        fault(plan, r, ENDS, "")
    return (r.c.p - 1)[0] >= 0x80


cdef object read_number(MessageReader plan, int kind, Reading r):
    cdef const uint8_t* p = r.c.p
    cdef int64_t bits
    cdef double number
    if skip(&r.c, size_of(kind)) != OK:
        fault(plan, r, ENDS, "")
    if kind == I32:
        return load32(p)
    if kind == I16:
        return load16(p)
    if kind == I8:
        return <int8_t>p[0]
    if kind == BOOL:
        return p[0] != 0
    if kind == U16:
        return <uint16_t>load16(p)
    if kind == U32:
        return loadu32(p)
    bits = load64(p)
    if kind != F64:
        return bits
    memcpy(&number, &bits, sizeof(double))
    return number


cdef object read_sized(MessageReader plan, Py_ssize_t i, Reading r):
    """Text or bytes."""
    cdef Field* f = &plan.fields[i]
    cdef bint is_text = f.kind == TEXT
    cdef int64_t size = read_size(plan, r, is_text)
    cdef bint is_beyond = size > r.c.end - r.c.p
    if size < 0 and f.is_nullable and not f.is_array:
        return None
    name = f"{plan.names[i]} element" if plan.of_records and f.is_array else plan.names[i]
    if size < 0:
        fault(plan, r, IS_NULL, name)
    if is_text and size > MOST_TEXT_BYTES and (plan.of_records or not is_beyond):
        fault(plan, r, TEXT_TOO_LONG, name, size, MOST_TEXT_BYTES)
    if is_beyond:
        fault(plan, r, BEYOND, name, size, r.c.end - r.c.p)
    if not is_text and not plan.of_records:
        return r.part(size)
    skip(&r.c, size)
    if not is_text:
        return PyBytes_FromStringAndSize(<const char*>r.c.p - size, size)
    if plan.of_records and not is_utf8(r.c.p - size, <size_t>size):
        return java_text(PyBytes_FromStringAndSize(<const char*>r.c.p - size, size)).decode()
    return PyUnicode_DecodeUTF8(<const char*>r.c.p - size, size, "replace")
