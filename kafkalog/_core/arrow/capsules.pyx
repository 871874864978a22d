"""Columns handed to readers of Arrow: capsules of the Arrow C data and stream interfaces, pyarrow not needed.

What a stream of finished columns gives, and all that a consumer releases, needs no GIL. A stream that reads as it goes
takes the GIL for each record batch.
"""
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINVAL, EIO, ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strcmp, strlen, strncmp

from kafkalog._core.arrow.abi cimport ArrowArray, ArrowArrayStream, ArrowSchema
from kafkalog._core.arrow.columns cimport Columns
from kafkalog._core.arrow.free cimport free_array, free_schema
from kafkalog._core.arrow.nodes cimport LARGE, PLAIN, VIEWS, ZONE_BYTES, Shape, make_array, make_schema, name_of, times_fit
from kafkalog._core.arrow.pieces cimport KEY, KINDS, TIMESTAMP, TOPIC, VALUE, Piece, drop_piece

cdef extern from "Python.h":
    bint Py_IsInitialized() noexcept nogil
    void PyErr_SetInterrupt() noexcept

cdef extern from "errno.h":
    int ECANCELED
    int ERANGE

cdef const char* UNFIT = "a timestamp does not fit the unit asked for: take milliseconds"

cdef struct Finished:
    # a stream over pieces that are there; `first` and `last` count rows from the first piece on
    Shape shape
    int64_t count
    int64_t next
    int64_t first
    int64_t last
    int64_t start               # the first row of the next piece
    Piece** pieces
    const char* error           # of the last call

cdef struct Reading:
    # a stream over Columns that a Python iterator gives
    Shape shape
    PyObject* source            # NULL at the end
    PyObject* current           # Columns whose pieces are given one after the other
    int64_t next
    char* error


cdef int shape_of(Shape* shape, bytes kinds, bint alone) except -1:
    """The shape that columns have unless a consumer asks for another one."""
    cdef Py_ssize_t i
    memset(shape, 0, sizeof(Shape))
    if len(set(kinds)) != len(kinds) or (kinds and max(kinds) >= KINDS) or (alone and len(kinds) != 1):
        raise ValueError(f"{kinds!r} are no columns")
    shape.count = <int>len(kinds)
    shape.alone = alone
    for i in range(len(kinds)):
        shape.kinds[i] = kinds[i]
    shape.per_ms = 1
    memcpy(shape.timestamp_format, b"tsm:UTC", 8)
    return 0


cdef int layout_of(const char* format, char plain, char large) noexcept:
    """The layout that a format asks for; -1 for another type."""
    if format[0] == plain and format[1] == 0:
        return PLAIN
    if format[0] == large and format[1] == 0:
        return LARGE
    if format[0] == c"v" and format[1] == plain and format[2] == 0:
        return VIEWS
    return -1


cdef void wish(Shape* shape, int i, const char* format) noexcept:
    """Gives column `i` the form asked for where it is one of the same values; any other wish is passed over."""
    cdef int kind = shape.kinds[i]
    cdef int layout = -1
    if kind == KEY or kind == VALUE:
        layout = layout_of(format, c"z", c"Z")
    elif kind == TOPIC:
        layout = layout_of(format, c"u", c"U")
    elif kind == TIMESTAMP and strlen(format) < ZONE_BYTES and strlen(format) > 4:
        # with a time zone a timestamp is the same moment in any; without one it would be another type
        if strncmp(format, "tsm:", 4) == 0 or strncmp(format, "tsu:", 4) == 0:
            shape.per_ms = 1 if format[2] == c"m" else 1000
            memcpy(shape.timestamp_format, format, strlen(format) + 1)
    if layout >= 0:
        shape.layouts[i] = layout


cdef int ask(Shape* shape, object requested) except -1:
    """Goes by the schema that a consumer asks for, a capsule or None; ValueError for one with other columns."""
    cdef ArrowSchema* schema
    cdef int i
    if requested is None:
        return 0
    if not PyCapsule_IsValid(requested, "arrow_schema"):
        raise TypeError("requested_schema is no capsule of an Arrow schema")
    schema = <ArrowSchema*>PyCapsule_GetPointer(requested, "arrow_schema")
    if schema.release == NULL:
        raise ValueError("the requested schema was released")
    if schema.format == NULL:
        raise ValueError("the requested schema has no type: its producer did not finish it")
    if shape.alone:
        wish(shape, 0, schema.format)
        return 0
    if strcmp(schema.format, "+s") != 0 or schema.n_children != shape.count:
        raise ValueError(f"the requested schema has {schema.n_children} columns, the data has {shape.count}")
    for i in range(shape.count):
        if schema.children[i].name == NULL or strcmp(schema.children[i].name, name_of(shape.kinds[i])) != 0:
            raise ValueError(
                f"column {i} of the requested schema is not {name_of(shape.kinds[i]).decode()!r}: columns are chosen "
                "where the data is read, not by the schema"
            )
        if schema.children[i].format != NULL:
            wish(shape, i, schema.children[i].format)
    return 0


cdef void free_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef object schema_capsule(const Shape* shape):
    cdef ArrowSchema* schema = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError
    capsule = PyCapsule_New(schema, "arrow_schema", free_schema)
    if not make_schema(schema, shape):
        raise MemoryError
    return capsule


def schema_of(bytes kinds not None, bint alone=False):
    """A schema capsule of the columns `kinds`; `alone`: of the only one, not of a struct."""
    cdef Shape shape
    shape_of(&shape, kinds, alone)
    return schema_capsule(&shape)


def array_of(Columns columns not None, int64_t first, int64_t last, requested=None, *, bint alone=False):
    """Rows [first, last) of columns that are one piece, or none, as a schema and an array capsule.

    `requested` is a schema capsule or None; ValueError where it has other columns.
    """
    cdef Shape shape
    cdef ArrowArray* array
    cdef bint fits, made
    cdef Piece* piece
    if columns.count > 1:
        raise ValueError(f"{columns.count} record batches are no array: take them one by one, or as a stream")
    if not 0 <= first <= last <= len(columns):
        raise IndexError(f"rows {first} to {last} of {len(columns)}")
    if columns.count == 0:
        raise ValueError("there are no records, so there is no record batch: take a stream")
    shape_of(&shape, columns.kinds, alone)
    ask(&shape, requested)
    schema = schema_capsule(&shape)
    array = <ArrowArray*>calloc(1, sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError
    capsule = PyCapsule_New(array, "arrow_array", free_array)
    piece = columns.hold(0)
    with nogil:
        fits = times_fit(&shape, piece, first, last - first)
        made = fits and make_array(array, &shape, piece, first, last - first)
        drop_piece(piece)
    if not fits:
        raise ValueError(UNFIT.decode())
    if not made:
        raise MemoryError
    return schema, capsule


# A stream over finished pieces: nothing in it is a Python object

cdef int finished_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    return 0 if make_schema(out, &(<Finished*>stream.private_data).shape) else ENOMEM


cdef int finished_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    cdef Finished* f = <Finished*>stream.private_data
    cdef Piece* piece
    cdef int64_t first
    cdef int64_t last
    while f.next < f.count:
        piece = f.pieces[f.next]
        first = max(f.first - f.start, 0)
        last = min(f.last - f.start, piece.rows)
        if first < last:
            if not times_fit(&f.shape, piece, first, last - first):
                f.error = UNFIT
                return ERANGE
            if not make_array(out, &f.shape, piece, first, last - first):
                return ENOMEM
            f.next += 1
            f.start += piece.rows
            return 0
        f.next += 1
        f.start += piece.rows
    out.release = NULL
    return 0


cdef const char* finished_error(ArrowArrayStream* stream) noexcept nogil:
    cdef Finished* f = <Finished*>stream.private_data
    if f.error != NULL:
        return f.error
    return "no memory for the columns"


cdef void finished_release(ArrowArrayStream* stream) noexcept nogil:
    cdef Finished* f = <Finished*>stream.private_data
    cdef int64_t i
    for i in range(f.count):
        drop_piece(f.pieces[i])
    free(f.pieces)
    free(f)
    stream.release = NULL


cdef object stream_capsule(ArrowArrayStream** stream):
    stream[0] = <ArrowArrayStream*>calloc(1, sizeof(ArrowArrayStream))
    if stream[0] == NULL:
        raise MemoryError
    return PyCapsule_New(stream[0], "arrow_array_stream", free_stream)


def stream_of(Columns columns not None, int64_t first, int64_t last, requested=None, *, bint alone=False):
    """Rows [first, last) as a stream capsule, a record batch for each piece; arguments as for `array_of`."""
    cdef Shape shape
    cdef ArrowArrayStream* stream = NULL
    cdef Finished* f
    cdef Py_ssize_t i
    if not 0 <= first <= last <= len(columns):
        raise IndexError(f"rows {first} to {last} of {len(columns)}")
    shape_of(&shape, columns.kinds, alone)
    ask(&shape, requested)
    capsule = stream_capsule(&stream)
    f = <Finished*>calloc(1, sizeof(Finished))
    if f == NULL:
        raise MemoryError
    f.pieces = <Piece**>calloc(max(columns.count, 1), sizeof(Piece*))
    if f.pieces == NULL:
        free(f)
        raise MemoryError
    f.shape = shape
    f.count = columns.count
    f.first = first
    f.last = last
    for i in range(columns.count):
        f.pieces[i] = columns.hold(i)
    stream.private_data = f
    stream.get_schema = finished_schema
    stream.get_next = finished_next
    stream.get_last_error = finished_error
    stream.release = finished_release
    return capsule


# A stream that reads as it goes

cdef int reading_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept nogil:
    return 0 if make_schema(out, &(<Reading*>stream.private_data).shape) else ENOMEM


cdef int reading_next(ArrowArrayStream* stream, ArrowArray* out) noexcept nogil:
    out.release = NULL
    if not Py_IsInitialized():
        return ECANCELED
    return read_next(<Reading*>stream.private_data, out)


cdef int read_next(Reading* r, ArrowArray* out) noexcept with gil:
    """One record batch; at the end none. What the iterator raises becomes the stream's error."""
    cdef Columns columns
    cdef Piece* piece
    cdef bint fits, made
    free(r.error)
    r.error = NULL
    try:
        while True:
            if r.current != NULL:
                columns = <Columns>r.current
                if r.next < columns.count:
                    piece = columns.hold(r.next)
                    fits = times_fit(&r.shape, piece, 0, piece.rows)
                    made = fits and make_array(out, &r.shape, piece, 0, piece.rows)
                    drop_piece(piece)
                    if not fits:
                        raise ValueError(UNFIT.decode())
                    if not made:
                        raise MemoryError("no memory for the columns")
                    r.next += 1
                    return 0
                drop_object(&r.current)
            if r.source == NULL:
                return 0
            found = next(<object>r.source, None)
            if found is None:
                drop_object(&r.source)
                return 0
            columns = found
            if columns.kinds != bytes([r.shape.kinds[i] for i in range(r.shape.count)]):
                raise ValueError(f"{columns!r} are not the columns of this stream")
            Py_INCREF(columns)
            r.current = <PyObject*>columns
            r.next = 0
    except BaseException as error:
        drop_object(&r.source)  # it is at its end: a second call would find nothing
        return failed(r, error)


cdef int failed(Reading* r, object error) noexcept:
    """Keeps the text of an error, and gives the number that a C caller sees."""
    cdef bytes text
    cdef Py_ssize_t size
    try:
        text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        size = len(text)
        r.error = <char*>malloc(<size_t>size + 1)
        if r.error != NULL:
            memcpy(r.error, <const char*>text, <size_t>size + 1)
    except BaseException:
        pass
    if isinstance(error, KeyboardInterrupt):
        PyErr_SetInterrupt()  # the consumer knows errors of its own only: let the main thread meet it again
    if isinstance(error, MemoryError):
        return ENOMEM
    if isinstance(error, OSError):
        return EIO
    return EINVAL if isinstance(error, Exception) else ECANCELED


cdef void drop_object(PyObject** kept) noexcept:
    cdef PyObject* it = kept[0]
    if it != NULL:
        kept[0] = NULL
        Py_DECREF(<object>it)


cdef const char* reading_error(ArrowArrayStream* stream) noexcept nogil:
    cdef Reading* r = <Reading*>stream.private_data
    if r.error != NULL:
        return r.error
    return "the interpreter has ended"


cdef void reading_release(ArrowArrayStream* stream) noexcept nogil:
    cdef Reading* r = <Reading*>stream.private_data
    if Py_IsInitialized():
        drop_reading(r)
    free(r.error)
    free(r)
    stream.release = NULL


cdef void drop_reading(Reading* r) noexcept with gil:
    drop_object(&r.current)
    drop_object(&r.source)


def stream_from(source, bytes kinds not None, requested=None):
    """A stream capsule over an iterator of Columns of `kinds`, which is asked for the next ones when the consumer asks.

    The iterator is dropped at its end, at an error, whose text the consumer is given, and with the stream.
    """
    cdef Shape shape
    cdef ArrowArrayStream* stream = NULL
    cdef Reading* r
    shape_of(&shape, kinds, False)
    ask(&shape, requested)
    iterator = iter(source)
    capsule = stream_capsule(&stream)
    r = <Reading*>calloc(1, sizeof(Reading))
    if r == NULL:
        raise MemoryError
    r.shape = shape
    Py_INCREF(iterator)
    r.source = <PyObject*>iterator
    stream.private_data = r
    stream.get_schema = reading_schema
    stream.get_next = reading_next
    stream.get_last_error = reading_error
    stream.release = reading_release
    return capsule
