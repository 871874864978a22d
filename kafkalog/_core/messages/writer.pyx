"""A message of Kafka's, written by the plan of its fields: KIP-482's formats, and those before it.

There are two dialects: of the protocol, where a tree has what the newest version has and a version takes of it what it
knows, and of records in logs (groups, transactions, metadata), where it has all the fields of its version and no other.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove

from kafkalog._core.batch.emit cimport put_uvarint, uvarint_size
from kafkalog._core.bytes.endian cimport store16, store32, store64
from kafkalog._core.messages.fields cimport (
    BOOL, F64, I8, I16, I32, MOST_TEXT_BYTES, STRUCT, TEXT, TIME, U16, U32, UUID, UUID_BYTES, Field, describe,
    in_order, size_of,
)

from collections.abc import Mapping

cdef extern from *:
    """
    /* what a dict has for a key, with a reference to it, since other threads may change the dict; else `missing` */
    static CYTHON_INLINE PyObject *kl_item(PyObject *mapping, PyObject *key, PyObject *missing) {
        PyObject *found = NULL;
    #if PY_VERSION_HEX >= 0x030D0000
        if (PyDict_GetItemRef(mapping, key, &found) != 0)
            return found;
    #else
        found = PyDict_GetItemWithError(mapping, key);
        if (found != NULL || PyErr_Occurred())
            return Py_XNewRef(found);
    #endif
        return Py_NewRef(missing);
    }
    """
    object kl_item(object mapping, object key, object missing)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

REQUIRED = object()
"""Stands for the default of a field that has to be given."""

cdef bytes NO_ID = bytes(UUID_BYTES)
cdef object MISSING = object()

cdef enum:
    FIRST_ROOM = 256
    MOST_TAGGED = 127               # of a structure, so that their number is one byte
    MOST = 0x7FFFFFFE


@cython.final
cdef class Out:
    """Bytes that are being written."""
    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef Py_ssize_t room
    cdef list pieces                # what is whole already, and ranges of files; None where there are to be none

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t* take(self, Py_ssize_t size) except NULL:
        """Return the address for the next `size` bytes."""
        cdef Py_ssize_t room
        cdef void* grown
        if size > self.room - self.used:
            room = max(self.used + size, 2 * self.room, <Py_ssize_t>FIRST_ROOM)
            grown = realloc(self.data, <size_t>room)
            if grown == NULL:
                raise MemoryError
            self.data, self.room = <uint8_t*>grown, room
        self.used += size
        return self.data + self.used - size

    cdef int put(self, const void* source, Py_ssize_t size) except -1:
        if size:
            memcpy(self.take(size), source, <size_t>size)
        return 0

    cdef int put_before(self, Py_ssize_t at, int64_t first, int64_t second) except -1:
        """Put one number, or two, before what was written from `at` on; -1 is none."""
        cdef Py_ssize_t size = self.used - at
        cdef Py_ssize_t head = uvarint_size(<uint32_t>first) + (0 if second < 0 else uvarint_size(<uint32_t>second))
        cdef uint8_t* p
        self.take(head)
        p = self.data + at
        memmove(p + head, p, <size_t>size)
        p = put_uvarint(p, <uint32_t>first)
        if second >= 0:
            put_uvarint(p, <uint32_t>second)
        return 0

    cdef bytes take_bytes(self):
        data = PyBytes_FromStringAndSize(<const char*>self.data, self.used)
        self.used = 0
        return data


@cython.final
cdef class MessageWriter:
    """The plan of a message, or of a structure in one, as it is written.

    A row of `rows` is (name, kind, whether it is an array, whether it may be null, its tag or None, the writer of a
    structure or None, the value that is written where none is given, or REQUIRED). A tagged field is written where its
    value is not its default. `problem` makes an exception of words and a hint; `raw_id` makes 16 bytes of an id, or
    gives None for what is none; without it ids are UUIDs, None for zeros. `where` is given for a record, and says of
    what version: no field may be missing then.
    """
    cdef readonly str name
    cdef Field* fields
    cdef Py_ssize_t count
    cdef Py_ssize_t plain           # how many have no tag; they come first
    cdef bint is_flexible
    cdef bint of_records
    cdef tuple names
    cdef tuple kinds
    cdef tuple inner
    cdef tuple defaults
    cdef tuple known                # the names in the order of the rows
    cdef list given                 # the bytes of defaults; None for REQUIRED, and for the null of a tag
    cdef object problem
    cdef object raw_id
    cdef str where

    def __cinit__(self, str name, is_flexible, rows, problem, raw_id=None, str where=None):
        cdef Py_ssize_t i
        self.known = tuple([row[0] for row in rows])
        rows = in_order(rows)
        self.name, self.is_flexible, self.count = name, is_flexible, len(rows)
        self.problem, self.raw_id, self.where, self.of_records = problem, raw_id, where, where is not None
        self.plain = sum([row[4] is None for row in rows])
        if self.count - self.plain > (MOST_TAGGED if is_flexible else 0):
            raise ValueError(f"{name} cannot have {self.count - self.plain} tagged fields")
        self.fields = <Field*>calloc(<size_t>self.count + 1, sizeof(Field))
        if self.fields == NULL:
            raise MemoryError
        self.names = tuple([row[0] for row in rows])
        self.kinds = tuple([row[1] for row in rows])
        self.inner = tuple([row[5] for row in rows])
        self.defaults = tuple([row[6] for row in rows])
        self.given = [None] * self.count
        for i in range(self.count):
            describe(&self.fields[i], rows[i], is_flexible, 1)
            if self.fields[i].kind == STRUCT and not isinstance(self.inner[i], MessageWriter):
                raise TypeError(f"{self.names[i]} of {name} needs the writer of its structure")
            if not self.of_records:
                self.take_default(i)

    def __dealloc__(self):
        free(self.fields)

    cdef int take_default(self, Py_ssize_t i) except -1:
        cdef Out out
        if self.defaults[i] is not REQUIRED and not (i >= self.plain and self.defaults[i] is None):
            out = Out.__new__(Out)
            write_field(self, i, out, self.defaults[i])
            self.given[i] = out.take_bytes()
        return 0

    def write(self, tree, bytes head=b""):
        """The bytes of a tree of values by name, behind `head`. Times are ms, error codes numbers, an id may be None.

        KeyError for a field that has no default and is not in `tree`; what `problem` makes for a value that its field
        does not take, and for a field that a record needs or does not have.
        """
        cdef Out out = Out.__new__(Out)
        out.put(<const char*>head, len(head))
        write_struct(self, out, tree)
        return out.take_bytes()

    def write_pieces(self, tree, bytes head=b""):
        """Write a message in pieces, as `write` does: a range of a file of `size` bytes stays a piece."""
        cdef Out out = Out.__new__(Out)
        out.pieces = []
        out.put(<const char*>head, len(head))
        write_struct(self, out, tree)
        if out.used:
            out.pieces.append(out.take_bytes())
        return out.pieces


cdef int refuse(MessageWriter plan, words, hint=None) except -1:
    raise plan.problem(words, hint)


cdef int write_struct(MessageWriter plan, Out out, tree) except -1:
    cdef Py_ssize_t i, at
    if type(tree) is not dict:
        if not isinstance(tree, Mapping):
            refuse(plan, f"{plan.name} is a {type(tree).__name__}: give a dict of its fields")
        tree = dict(tree)
    if plan.of_records:
        for given in tree:
            if given not in plan.known:
                words = f"{plan.name} has no field {given!r} in version {plan.where}"
                refuse(plan, words, f"it has {', '.join(plan.known)}")
    for i in range(plan.plain):
        value = kl_item(tree, plan.names[i], MISSING)
        if value is not MISSING:
            write_field(plan, i, out, value)
        else:
            write_default(plan, i, out)
    if plan.is_flexible:
        at = out.used
        out.take(1)[0] = 0
        for i in range(plan.plain, plan.count):
            value = kl_item(tree, plan.names[i], MISSING)
            if value is not MISSING and write_tag(plan, i, out, value):
                out.data[at] += 1
    return 0


cdef int write_default(MessageWriter plan, Py_ssize_t i, Out out) except -1:
    cdef bytes given
    if plan.of_records:
        refuse(plan, f"{plan.name} needs the field {plan.names[i]!r}")
    if plan.given[i] is None:
        raise KeyError(f"{plan.name} has no {plan.names[i]}")
    given = plan.given[i]
    return out.put(<const char*>given, len(given))


cdef bint write_tag(MessageWriter plan, Py_ssize_t i, Out out, value) except -1:
    """True where a tagged field is written: one that is not its default."""
    cdef Py_ssize_t at = out.used
    cdef Py_ssize_t size
    cdef bytes given
    if plan.of_records:
        if value == plan.defaults[i]:
            return False
    elif value is None and plan.given[i] is None:
        return False
    write_field(plan, i, out, value)
    size = out.used - at
    if plan.given[i] is not None:
        given = plan.given[i]
        if len(given) == size and memcmp(<const char*>given, out.data + at, <size_t>size) == 0:
            out.used = at
            return False
    out.put_before(at, plan.fields[i].tag, size)
    return True


cdef int write_size(MessageWriter plan, Out out, Py_ssize_t size, bint is_text, name) except -1:
    """A length or a count; -1 is null."""
    cdef Py_ssize_t most = MOST_TEXT_BYTES if is_text and (plan.of_records or not plan.is_flexible) else MOST
    if size > most:
        refuse(plan, f"{name} has {size} {'bytes' if is_text else 'elements'}, at most {most} can be written")
    if plan.is_flexible:
        put_uvarint(out.take(uvarint_size(<uint32_t>(size + 1))), <uint32_t>(size + 1))
    elif is_text:
        store16(out.take(2), <int16_t>size)
    else:
        store32(out.take(4), <int32_t>size)
    return 0


cdef int write_field(MessageWriter plan, Py_ssize_t i, Out out, value) except -1:
    cdef Field* f = &plan.fields[i]
    if not f.is_array:
        return write_value(plan, i, out, value)
    if value is None and (f.is_nullable or not plan.of_records):
        return write_size(plan, out, -1, False, plan.names[i])
    if not isinstance(value, (list, tuple)):
        if plan.of_records:
            refuse(plan, f"{plan.names[i]} is a {type(value).__name__}: give a list")
        value = list(value)
    write_size(plan, out, len(value), False, plan.names[i])
    for item in value:
        write_value(plan, i, out, item)
    return 0


cdef int write_value(MessageWriter plan, Py_ssize_t i, Out out, value) except -1:
    """One value: a field that is no array, or an item of one."""
    cdef Field* f = &plan.fields[i]
    if f.kind == BOOL and not plan.of_records:
        return put_number(BOOL, out, 1 if value else 0)
    if value is None and (plan.of_records or f.kind > UUID or f.kind < TIME):
        # a tag of the protocol says null by its absence
        if f.kind <= UUID or not f.is_nullable or f.is_array or f.has_tag and not plan.of_records:
            refuse(plan, f"{plan.names[i]} cannot be null")
        if f.kind != STRUCT:
            return write_size(plan, out, -1, f.kind == TEXT, plan.names[i])
        out.take(1)[0] = 0 if f.has_tag else 0xFF
        return 0
    if f.kind == UUID:
        return write_id(plan, i, out, value)
    if f.kind <= TIME:
        return write_number(plan, i, out, value)
    if f.kind != STRUCT:
        return write_sized(plan, i, out, value)
    return write_inner(plan, i, out, value)


cdef int write_inner(MessageWriter plan, Py_ssize_t i, Out out, value) except -1:
    """A structure; one that may be null has a mark in front: a byte, or in a record's tag its size."""
    cdef Field* f = &plan.fields[i]
    cdef Py_ssize_t at = out.used
    cdef bint is_marked = f.is_nullable and not f.is_array
    if is_marked and not f.has_tag:
        out.take(1)[0] = 1
    write_struct(<MessageWriter>plan.inner[i], out, value)
    if is_marked and f.has_tag and plan.of_records:
        out.put_before(at, out.used - at + 1, -1)
    return 0


cdef int write_id(MessageWriter plan, Py_ssize_t i, Out out, value) except -1:
    if plan.raw_id is not None:
        raw = plan.raw_id(value)
    elif value is None:
        raw = NO_ID
    else:
        number = getattr(value, "int", None)
        raw = number.to_bytes(UUID_BYTES, "big") if isinstance(number, int) else None
    if not isinstance(raw, bytes) or len(raw) != UUID_BYTES:
        form = "22 characters of URL-safe base64" if plan.of_records else "a UUID, or None"
        refuse(plan, f"{plan.names[i]} is {value!r}: a uuid is {form}")
    return out.put(<const char*><bytes>raw, UUID_BYTES)


cdef int write_number(MessageWriter plan, Py_ssize_t i, Out out, value) except -1:
    cdef int kind = plan.fields[i].kind
    cdef double number = 0
    cdef int64_t bits = -1
    cdef int overflow = 0
    if value is None:
        return put_number(kind, out, -1)
    if not isinstance(value, (int, float)) or isinstance(value, float) and kind != F64:
        refuse(plan, f"{plan.names[i]} is a {type(value).__name__}: give a number")
    if kind == BOOL:
        return put_number(kind, out, 1 if value else 0)
    if kind == F64:
        try:
            number = value
        except OverflowError:
            refuse(plan, f"{plan.names[i]} is {value}, which does not fit the type f64")
        memcpy(&bits, &number, sizeof(double))
        return put_number(kind, out, bits)
    bits = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or not fits(kind, bits):
        refuse(plan, f"{plan.names[i]} is {value}, which does not fit the type {plan.kinds[i]}")
    return put_number(kind, out, max(bits, <int64_t>-1) if kind == TIME else bits)


cdef int put_number(int kind, Out out, int64_t bits) except -1:
    cdef int size = size_of(kind)
    if size == 8:
        store64(out.take(8), bits)
    elif size == 4:
        store32(out.take(4), <int32_t>bits)
    elif size == 2:
        store16(out.take(2), <int16_t>bits)
    else:
        out.take(1)[0] = <uint8_t>bits
    return 0


cdef inline bint fits(int kind, int64_t value) noexcept:
    if kind == I32:
        return value == <int32_t>value
    if kind == I16:
        return value == <int16_t>value
    if kind == I8:
        return value == <int8_t>value
    if kind == U32:
        return value == <uint32_t>value
    return kind != U16 or value == <uint16_t>value


cdef int write_sized(MessageWriter plan, Py_ssize_t i, Out out, value) except -1:
    """Text or bytes."""
    cdef Py_ssize_t size = 0
    cdef const char* text
    cdef Py_buffer view
    if plan.fields[i].kind == TEXT:
        if not isinstance(value, str):
            refuse(plan, f"{plan.names[i]} is a {type(value).__name__}: give a str")
        text = PyUnicode_AsUTF8AndSize(value, &size)
        write_size(plan, out, size, True, plan.names[i])
        return out.put(text, size)
    if out.pieces is not None and hasattr(value, "size"):
        write_size(plan, out, value.size, False, plan.names[i])
        if value.size:
            out.pieces += (out.take_bytes(), value)
        return 0
    if not isinstance(value, (bytes, bytearray, memoryview)):
        refuse(plan, f"{plan.names[i]} is a {type(value).__name__}: give bytes")
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        write_size(plan, out, view.len, False, plan.names[i])
        return out.put(view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
