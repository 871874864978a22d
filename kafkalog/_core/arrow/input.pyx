"""Arrow data that others made, taken in through the PyCapsule interface: moved here, looked at, released once.

pyarrow is not needed. A producer may need the interpreter lock for its next batch, or wait for a thread that needs it,
so it is asked without the lock.
"""
cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.string cimport memset, strerror


cdef int64_t MOST_ROWS = <int64_t>1 << 48   # more than memory can hold, and small enough to count bytes with


class BadArrow(ValueError):
    """Arrow data that cannot be taken: `kind` says why, `column` where (None: all of it), `row` in which (-1: in none).

    Kinds: malformed (it contradicts itself), stream (its producer failed), missing (there is no such column), type (the
    column is of another type), topic, partition, timestamp, headers, size (a cell cannot be part of a record). `hint`
    is what to do about it.
    """

    def __init__(self, message: str, kind: str, column: str | None = None, row: int = -1, hint: str | None = None):
        super().__init__(message)
        self.kind = kind
        self.column = column
        self.row = row
        self.hint = hint


@cython.final
cdef class HeldSchema:
    """A schema that was moved here, and is released with this object."""

    def __dealloc__(self):
        if self.schema.release != NULL:
            with nogil:
                self.schema.release(&self.schema)


@cython.final
cdef class HeldArray:
    """An array that was moved here, and is released with this object."""

    def __dealloc__(self):
        if self.array.release != NULL:
            with nogil:
                self.array.release(&self.array)


cdef bint shaped(const ArrowArray* array, int64_t buffers, int64_t children) noexcept nogil:
    """True where the array has its buffers and children, and lengths that may be; -1: as many buffers as it likes."""
    cdef int64_t i
    if array.release == NULL or array.length < 0 or array.offset < 0 or array.null_count < -1:
        return False
    if array.length > MOST_ROWS or array.offset > MOST_ROWS or array.null_count > array.length:
        return False
    if (array.n_buffers != buffers and buffers >= 0) or (array.n_buffers > 0 and array.buffers == NULL):
        return False
    if array.n_children != children or (children > 0 and array.children == NULL) or array.dictionary != NULL:
        return False
    for i in range(children):
        if array.children[i] == NULL:
            return False
    return True


cdef bint valid_of(const ArrowArray* array, const unsigned char** valid) noexcept nogil:
    """The validity map, NULL where nothing is null; False where there should be one and is none."""
    valid[0] = NULL
    if array.null_count != 0:
        valid[0] = <const unsigned char*>array.buffers[0]
    return valid[0] != NULL or array.null_count <= 0


cdef HeldSchema taken_schema(object capsule):
    """The schema in a capsule, which is left empty."""
    cdef ArrowSchema* source
    cdef HeldSchema held = HeldSchema.__new__(HeldSchema)
    if not PyCapsule_IsValid(capsule, "arrow_schema"):
        raise TypeError("__arrow_c_array__ gave no capsule of a schema")
    source = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if source.release == NULL:
        raise BadArrow("the Arrow schema was released already", "malformed")
    held.schema = source[0]
    source.release = NULL
    return held


cdef HeldArray taken_array(object capsule):
    """The array in a capsule, which is left empty."""
    cdef ArrowArray* source
    cdef HeldArray held = HeldArray.__new__(HeldArray)
    if not PyCapsule_IsValid(capsule, "arrow_array"):
        raise TypeError("__arrow_c_array__ gave no capsule of an array")
    source = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if source.release == NULL:
        raise BadArrow("the Arrow array was released already", "malformed")
    held.array = source[0]
    source.release = NULL
    return held


@cython.final
cdef class ArrowSource:
    """The record batches of `source`, which has `__arrow_c_stream__` or `__arrow_c_array__`, one after the other.

    What it holds is released with this object, in any thread. TypeError for an object that has neither, BadArrow where
    its capsules are empty or its producer fails. A source belongs to one thread at a time.
    """

    def __cinit__(self, source):
        memset(&self.stream, 0, sizeof(ArrowArrayStream))
        if hasattr(source, "__arrow_c_array__"):
            given = source.__arrow_c_array__()
            if not isinstance(given, tuple) or len(given) != 2:
                raise TypeError("__arrow_c_array__ gave no pair of capsules")
            self.schema = taken_schema(given[0])
            self.only = taken_array(given[1])
        elif hasattr(source, "__arrow_c_stream__"):
            self._take_stream(source.__arrow_c_stream__())
        else:
            raise TypeError(
                f"a {type(source).__name__} is no Arrow data: give a table, a record batch, a reader or a data frame, "
                "something with __arrow_c_stream__ or __arrow_c_array__"
            )

    @cython.critical_section
    def _take_stream(self, capsule):
        cdef ArrowArrayStream* source
        cdef HeldSchema schema = HeldSchema.__new__(HeldSchema)
        cdef int status
        if not PyCapsule_IsValid(capsule, "arrow_array_stream"):
            raise TypeError("__arrow_c_stream__ gave no capsule of a stream")
        source = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
        if source.release == NULL:
            raise BadArrow("the Arrow stream was released already", "malformed", hint="a stream can be read once")
        if source.get_schema == NULL or source.get_next == NULL:
            raise BadArrow("the Arrow stream has no functions to read it with", "malformed")
        self.stream = source[0]
        source.release = NULL
        with nogil:
            status = self.stream.get_schema(&self.stream, &schema.schema)
        if status != 0:
            schema.schema.release = NULL    # a failed call may have left anything there
            raise self._failed(status)
        if schema.schema.release == NULL:
            raise BadArrow("the Arrow stream gave an empty schema", "malformed")
        self.schema = schema

    def __dealloc__(self):
        if self.stream.release != NULL:
            with nogil:
                self.stream.release(&self.stream)

    cdef object _failed(self, int number):
        """The error of a producer that answered with `number`."""
        cdef const char* words = NULL
        if self.stream.get_last_error != NULL:
            words = self.stream.get_last_error(&self.stream)
        text = (<bytes>(words if words != NULL else strerror(number))).decode("utf-8", "replace")
        return BadArrow(f"the Arrow stream failed: {text}", "stream")

    @cython.critical_section
    cdef HeldArray next_array(self):
        """The next record batch, None at the end."""
        cdef HeldArray held
        cdef int status
        if self.busy:
            raise RuntimeError("this Arrow source is being read in another thread: it belongs to one at a time")
        if self.stream.release == NULL:
            held = self.only
            self.only = None
            return held
        held = HeldArray.__new__(HeldArray)
        self.busy = True
        try:
            with nogil:
                status = self.stream.get_next(&self.stream, &held.array)
            if status != 0:
                held.array.release = NULL
                raise self._failed(status)
        finally:
            self.busy = False
        return None if held.array.release == NULL else held
