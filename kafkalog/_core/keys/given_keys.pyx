"""The keys of one look-up of many: bytes objects of a list, or the cells of Arrow data where they lie."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc

from kafkalog._core.arrow.cells cimport NOTHING, SOUND, Cells, Slice, read_cell
from kafkalog._core.arrow.input cimport ArrowSource, HeldArray
from kafkalog._core.arrow.rows cimport bind_cells, bytes_layout
from kafkalog._core.bytes.large_pages cimport kl_want_huge
from kafkalog._core.bytes.siphash cimport SipKey
from kafkalog._core.keys.key_walk cimport HASHED_TOGETHER, hash_together, take_secret

from kafkalog._core.arrow.input import BadArrow

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object one)


@cython.final
cdef class GivenKeys:
    """The bytes objects of a list, in their order, which is copied; TypeError for anything else in it.

    The copy is in no cycle: the collector, which would look at a million keys, is not to.
    """

    def __cinit__(self, list keys=None):
        cdef Py_ssize_t i
        if keys is None:
            return
        self.objects = keys[:]          # no one else changes this one
        self.make_room(len(self.objects))
        for i in range(len(self.objects)):
            key = self.objects[i]
            if not PyBytes_CheckExact(key):
                raise TypeError("a key is no bytes object")
            self.slices[i] = Slice(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        self.count = len(self.objects)
        PyObject_GC_UnTrack(self.objects)

    def __dealloc__(self):
        free(self.slices)

    cdef int make_room(self, Py_ssize_t room) except -1:
        cdef void* more
        if room <= self.room:
            return 0
        more = realloc(self.slices, <size_t>room * sizeof(Slice))
        if more == NULL:
            raise MemoryError("no memory for the keys")
        self.slices = <Slice*>more
        kl_want_huge(more, <size_t>room * sizeof(Slice))
        self.room = room
        return 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, Py_ssize_t i) -> bytes:
        if not 0 <= i < self.count:
            raise IndexError(f"key {i} of {self.count}")
        return self.at(i)

    cdef bytes at(self, Py_ssize_t i):
        if self.objects is not None:
            return <bytes>self.objects[i]
        return PyBytes_FromStringAndSize(<const char*>self.slices[i].data, self.slices[i].size)

    cdef bytes hashes(self, object secret):
        """Return the hash of each key by a secret, eight bytes each."""
        cdef SipKey own
        cdef bytes out = PyBytes_FromStringAndSize(NULL, 8 * self.count)
        cdef uint64_t* hashes = <uint64_t*>PyBytes_AS_STRING(out)
        cdef const uint8_t* data[HASHED_TOGETHER]
        cdef Py_ssize_t sizes[HASHED_TOGETHER]
        cdef Py_ssize_t done = 0
        cdef Py_ssize_t i, n
        take_secret(secret, &own)
        with nogil:
            while done < self.count:
                n = min(self.count - done, <Py_ssize_t>HASHED_TOGETHER)
                for i in range(n):
                    data[i], sizes[i] = self.slices[done + i].data, self.slices[done + i].size
                hash_together(&own, data, sizes, n, hashes + done)
                done += n
        return out


def arrow_keys(given) -> GivenKeys | None:
    """The cells of Arrow data that is one column of binary or strings, of any layout; None for another type.

    Nothing is copied. TypeError for a null, BadArrow for what contradicts itself or is no Arrow data after all.
    """
    cdef ArrowSource source = ArrowSource(given)
    cdef int layout = bytes_layout(&source.schema.schema, False)
    cdef GivenKeys keys = GivenKeys()
    cdef HeldArray held
    if layout < 0 or layout == NOTHING:
        return None
    keys.arrays = []
    while True:
        held = source.next_array()
        if held is None:
            return keys
        take_cells(keys, held, layout)
        keys.arrays.append(held)


cdef int take_cells(GivenKeys keys, HeldArray held, int layout) except -1:
    """Put the cells of one array behind those there are."""
    cdef Cells cells
    cdef int64_t rows = held.array.length
    cdef int64_t i = 0
    cdef int64_t first = keys.count
    cdef int status = SOUND
    if not bind_cells(&cells, &held.array, layout, 0, rows):
        raise BadArrow("the Arrow array of keys contradicts itself", "malformed")
    keys.make_room(max(first + rows, min(2 * keys.room, first + 4 * rows)))
    with nogil:
        while i < rows:
            status = read_cell(&cells, i, &keys.slices[first + i])
            if status != SOUND or keys.slices[first + i].size < 0:
                break
            if keys.slices[first + i].size == 0:
                keys.slices[first + i].data = <const uint8_t*>b""
            i += 1
    if status != SOUND:
        raise BadArrow("the Arrow array of keys contradicts itself", "malformed", None, first + i)
    if i < rows:
        raise TypeError(f"key {first + i} is null: a record without a key cannot be looked up, give bytes")
    keys.count += rows
    return 0


def hash_keys(secret, keys not None) -> bytes:
    """The hashes of GivenKeys, or of a list of bytes objects, eight bytes each; TypeError for anything else in it."""
    return (<GivenKeys>keys if isinstance(keys, GivenKeys) else GivenKeys(keys)).hashes(secret)
