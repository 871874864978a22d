"""Two ways to hold bytes: a buffer that somebody gave us, and a column of our own memory that others may look at."""
cimport cython
from cpython.buffer cimport (
    Py_buffer, PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE,
    PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_FromObject, PyMemoryView_GET_BUFFER


cdef enum:
    # what the three requests for one contiguous block add to a request for strides
    ASKS_CONTIGUOUS = (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES


@cython.final
@cython.no_gc_clear                 # the collector would drop the source without releasing its buffer
cdef class Held:
    """One Py_buffer, held for as long as this object lives."""

    def __dealloc__(self):
        if self.taken:
            PyBuffer_Release(&self.view)


cdef object take_view(object source, Py_buffer* view):
    """Fills `view`, for PyBuffer_Release later, with a contiguous buffer of `source`; TypeError where it has none.

    The caller keeps what is returned for as long. A memoryview has no buffer taken: a collector that finds it in a
    cycle clears it all the same, and giving the buffer back is a crash then. A second memoryview stands in for it.
    """
    cdef Py_buffer* second
    PyObject_GetBuffer(source, view, PyBUF_SIMPLE)
    if not PyMemoryView_Check(source):
        return None
    PyBuffer_Release(view)
    own = PyMemoryView_FromObject(source)
    second = PyMemoryView_GET_BUFFER(own)
    view.buf = second.buf
    view.len = second.len
    return own


cdef Held hold(object source):
    """Takes a contiguous buffer of `source`; TypeError where it has none."""
    cdef Held held = Held.__new__(Held)
    held.own = take_view(source, &held.view)
    held.taken = True
    held.data = <const uint8_t*>held.view.buf
    held.size = held.view.len
    return held


@cython.final
cdef class Column:
    """A read-only strided view of memory that `owner` keeps alive; exports the buffer protocol.

    `memoryview(column)` and `numpy.asarray(column)` copy nothing; `column[i]` and iteration give Python ints.
    """

    def __cinit__(self):
        self.data = <char*>b""
        self.stride = self.itemsize = 1
        self.format = b"b"

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index):
        return memoryview(self)[index]

    def __iter__(self):
        return iter(memoryview(self))

    def __repr__(self):
        return f"<Column of {self.count} {(<bytes>self.format).decode()}>"

    def __getbuffer__(self, Py_buffer* out, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("columns are read-only")
        if self.stride != self.itemsize and (flags & PyBUF_STRIDES != PyBUF_STRIDES or flags & ASKS_CONTIGUOUS):
            raise BufferError("this column has strides: ask for a strided buffer")
        out.buf = self.data
        out.obj = self
        out.len = self.count * self.itemsize
        out.readonly = 1
        out.itemsize = self.itemsize
        out.format = self.format if flags & PyBUF_FORMAT else NULL
        out.ndim = 1
        out.shape = &self.count
        out.strides = &self.stride if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        out.suboffsets = NULL
        out.internal = NULL


cdef Column column(object owner, void* data, Py_ssize_t count, Py_ssize_t stride, char kind):
    """A column of `count` values of struct kind q, i, I, h or b, `stride` bytes apart."""
    cdef Column c = Column.__new__(Column)
    c.owner = owner
    if count > 0:
        c.data = <char*>data
    c.count = count
    c.stride = stride
    if kind == c"q":
        c.itemsize = 8
        c.format = b"q"
    elif kind == c"i":
        c.itemsize = 4
        c.format = b"i"
    elif kind == c"I":
        c.itemsize = 4
        c.format = b"I"
    elif kind == c"h":
        c.itemsize = 2
        c.format = b"h"
    else:
        c.itemsize = 1
        c.format = b"b"
    return c
