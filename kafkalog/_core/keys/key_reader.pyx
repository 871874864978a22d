"""The last record of a key, in one compiled call, in a log that has not changed since its parts were looked at.

What this cannot decide, the look-up in `keys/lookup.py` does: a change of the log, a damaged index, two keys of one
hash, a record that is not where the index says.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset
from posix.types cimport off_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.fields cimport Fields
from kafkalog._core.batch.layout cimport TIMESTAMP_TYPE_BIT
from kafkalog._core.batch.pick cimport copied_out, find_record, timestamp_of
from kafkalog._core.batch.record cimport lone_record
from kafkalog._core.batch.sections cimport Section, Sections, record_in_section, section_with
from kafkalog._core.bytes.prefetch cimport kl_prefetch
from kafkalog._core.bytes.siphash cimport SipKey
from kafkalog._core.keys.key_index cimport DAMAGED_INDEX, KeyIndex, MarkedRange
from kafkalog._core.keys.key_map cimport KeyMap
from kafkalog._core.keys.key_walk cimport NO_OFFSET, hash_of_key, take_secret
from kafkalog._core.log.log_fields cimport LogFields
from kafkalog._core.log.slots cimport Slot, slot_get, slot_set

from functools import update_wrapper

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pread(int fd, void* into, size_t size, off_t position)

cdef extern from "Python.h":
    ctypedef object (*vectorcallfunc)(object called, PyObject** args, size_t given, PyObject* names)
    Py_ssize_t PyVectorcall_NARGS(size_t given)

cdef extern from *:
    """
    /* Replace the function that a call of `called` runs; its own one, NULL where it has none that can be replaced. */
    static vectorcallfunc kl_take_calls(PyObject *called, vectorcallfunc taker) {
        vectorcallfunc own = PyVectorcall_Function(called);
        if (own != NULL) memcpy((char *)called + Py_TYPE(called)->tp_vectorcall_offset, &taker, sizeof(taker));
        return own;
    }
    """
    vectorcallfunc kl_take_calls(object called, vectorcallfunc taker)

cdef enum:
    LINE_BYTES = 64
    FETCHED_BYTES = 448             # of a batch's sections, which are about as long: all lines come at once
    CALLS_BETWEEN_CHECKS = 255      # a mask
    LARGEST_SECTION = 4096          # that is read on the stack
    LARGEST_READ = 80 << 10         # a larger range may be many batches
    OFFSET_BYTES = 8                # the base offset of the next batch bears out that of the one before


@cython.final
cdef class Undecided:
    """The type of UNDECIDED, which says that the answer is not for a KeyReader to give."""

    def __reduce__(self):
        raise TypeError("UNDECIDED is one object: it is compared by identity and does not travel")


UNDECIDED = Undecided()

cdef Slot CLOSED, LAZY, FILE, USED, FD, LOOKUP, PLACE
CLOSED.name, LAZY.name, FILE.name, USED.name, FD.name = b"closed", b"_file", b"file", b"used", b"_fd"
LOOKUP.name, PLACE.name = b"_keys", b"place_of_reader"


@cython.final
cdef class ReadPart:
    """One part of a log: a segment with its index, or the log's end with its map.

    read: returns `size` bytes of the segment's file from a position. records: the FileRecords of the segment, which
    may change its file; None for one without a descriptor of the system.
    """

    cdef SipKey secret
    cdef int64_t base_offset
    cdef KeyIndex index
    cdef KeyMap map
    cdef object read
    cdef object records

    def __cinit__(self, secret, int64_t base_offset, index, read, records):
        take_secret(secret, &self.secret)
        self.base_offset = base_offset
        self.read = read
        self.records = records
        if isinstance(index, KeyIndex):
            self.index = index
        else:
            self.map = index

    cdef inline uint64_t hash_of(self, bytes key) noexcept:
        return hash_of_key(&self.secret, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    cdef inline int64_t last_in_map(self, bytes key) noexcept:
        return NO_OFFSET if self.map.count == 0 else self.map.last_below(self.hash_of(key), 0x7FFFFFFFFFFFFFFF)


@cython.final
cdef class ReaderPlace:
    """A KeyReader that may be replaced by another: `reader`, None while none can answer.

    passing: the errors, as for `except`, that the other way of looking up meets too, with file and offset.
    """

    cdef public KeyReader reader
    cdef object passing

    def __cinit__(self, passing):
        self.passing = passing

    def read(self, key):
        """As KeyReader.get, of a key of any type: UNDECIDED for what is no plain bytes object."""
        return self.answer(key)

    cdef object answer(self, object key):
        cdef KeyReader reader
        with cython.critical_section(self):
            reader = self.reader
        if reader is None or not PyBytes_CheckExact(key):
            return UNDECIDED
        try:
            return reader.answer(<bytes>key)
        except self.passing:
            return UNDECIDED


cdef vectorcallfunc usual_call = NULL


def read_first(usual):
    """The method `usual` of a log, a look-up by key that takes keywords, with a compiled answer for a key alone.

    `usual` is called where there are keywords, and for what the log's reader does not decide. A key alone is taken from
    the interpreter's own array of arguments: a tuple and a dict of them would be a tenth of the look-up.
    """
    global usual_call

    def get(log, *args, **options):
        return usual(log, *args, **options)

    usual_call = kl_take_calls(get, <vectorcallfunc>read_alone)
    return update_wrapper(get, usual)


cdef object read_alone(object called, PyObject** args, size_t given, PyObject* names):
    """The call of what `read_first` returns."""
    if PyVectorcall_NARGS(given) == 2 and names == NULL:
        lookup = slot_get(<object>args[0], &LOOKUP)
        if lookup is not None:
            found = (<ReaderPlace?>slot_get(lookup, &PLACE)).answer(<object>args[1])
            if found is not UNDECIDED:
                return found
    return usual_call(called, args, given, names)


@cython.final
cdef class KeyReader:
    """Look-ups in `parts`, the last one first, for as long as `source.state` is the `state` that they were made for.

    `state` is None until they are right. `source` is a log's LogFields, or has a `state` and `closed`. read_at_end:
    returns the record at an offset of the log's end, or None. limit: called now and then, to limit the memory of the
    indexes. Threads: any. Who changes the map of the end sets `state` to None first: no search is in it after that.
    """

    cdef object source
    cdef LogFields fields
    cdef object read_at_end
    cdef object limit
    cdef list parts
    cdef int64_t calls
    cdef public object state
    cdef public int64_t start_offset

    def __cinit__(self, source, list parts not None, read_at_end, limit):
        self.source = source
        self.fields = source if isinstance(source, LogFields) else None
        self.parts = [<ReadPart?>part for part in parts]
        self.read_at_end = read_at_end
        self.limit = limit

    cdef bint is_current(self, object state) except -1:
        """True while the log is open and has this state."""
        cdef LogFields fields = self.fields
        cdef bint is_same
        if fields is not None:
            with cython.critical_section(fields):
                is_same = fields._state is state
            return is_same and not slot_get(fields.health, &CLOSED)
        return self.source.state is state and not self.source.closed

    def get(self, bytes key not None):
        """The last record with this key, None if there is none, UNDECIDED if that is not for this class to say."""
        return self.answer(key)

    cdef object answer(self, bytes key):
        cdef Py_ssize_t i
        cdef ReadPart part
        cdef object state
        cdef int64_t offset = NO_OFFSET
        cdef int64_t start_offset, calls
        with cython.critical_section(self):
            state, start_offset = self.state, self.start_offset
            self.calls += 1
            calls = self.calls
        if not calls & CALLS_BETWEEN_CHECKS:
            self.limit()
        if state is None or not self.is_current(state):
            return UNDECIDED
        for i in range(len(self.parts) - 1, -1, -1):
            part = <ReadPart>self.parts[i]
            if part.map is not None:
                with cython.critical_section(self):
                    if self.state is not state:     # since the look at the source: the map may be growing
                        return UNDECIDED
                    offset = part.last_in_map(key)
                if offset >= start_offset:
                    return self.at_end(offset, key)
            elif part.index is not None:
                part.index.begin_search()           # its pages and sections stay
                try:
                    offset = part.index.last_below(part.hash_of(key), 0x7FFFFFFFFFFFFFFF)
                    if offset >= start_offset:
                        return self.in_segment(part, offset, key)
                finally:
                    part.index.end_search()
            else:
                return UNDECIDED
            if offset == DAMAGED_INDEX:
                return UNDECIDED
            if part.base_offset <= start_offset:
                break
        return None if self.is_current(state) else UNDECIDED

    cdef object at_end(self, int64_t offset, bytes key):
        record = self.read_at_end(offset)
        return UNDECIDED if record is None or record.key != key else record

    cdef object in_segment(self, ReadPart part, int64_t offset, bytes key):
        """The record at an offset of a segment if it has this key, else UNDECIDED."""
        cdef MarkedRange marked
        cdef int64_t number
        cdef const Sections* batch = part.index.sections.known(part.index.guess(offset))
        cdef const uint8_t* start
        cdef bytes data
        cdef BatchRow row
        cdef Fields fields
        if batch != NULL:
            fetch_sections(batch)
            if batch.row.base_offset <= offset <= batch.row.last_offset:
                return self.in_sections(part, batch, offset, key)
        number = part.index.mark_of(offset, &marked)
        if number < 0 or marked.size > LARGEST_READ:
            return UNDECIDED
        batch = part.index.sections.known(number)
        if batch != NULL:
            fetch_sections(batch)
            return self.in_sections(part, batch, offset, key)
        memset(&fields, 0, sizeof(Fields))
        data = part.read(marked.position, marked.size + OFFSET_BYTES)
        start = find_record(begin_of(data), begin_of(data) + len(data), offset, &row, &fields, marked.is_last)
        if start == NULL or not is_key(&fields, key):
            return UNDECIDED
        if row.size == marked.size:                 # the only batch
            if row.base_offset < marked.base_offset:
                return UNDECIDED
            row.position = marked.position
            part.index.sections.learn(number, begin_of(data), &row)
        return record_in(start, &row, &fields, offset, key)

    cdef object in_sections(self, ReadPart part, const Sections* batch, int64_t offset, bytes key):
        """As in_segment, in a batch that was verified whole before."""
        cdef const Section* section = section_with(batch, offset)
        cdef int64_t position, size
        cdef const uint8_t* start
        cdef uint8_t small[LARGEST_SECTION]
        cdef bytes data
        cdef Fields fields
        if section == NULL:
            return UNDECIDED
        memset(&fields, 0, sizeof(Fields))
        position = batch.row.position + section.at
        size = section[1].at - section.at
        if size <= LARGEST_SECTION and part.records is not None:
            if not read_into(part.records, small, size, position):
                return UNDECIDED
            start = record_in_section(batch, section, small, offset, &fields)
        else:
            data = part.read(position, size)
            if len(data) != size:
                return UNDECIDED
            start = record_in_section(batch, section, begin_of(data), offset, &fields)
        if start == NULL or not is_key(&fields, key):
            return UNDECIDED
        return record_in(start, &batch.row, &fields, offset, key)


cdef inline void fetch_sections(const Sections* batch) noexcept:
    cdef int at = 0
    while at < FETCHED_BYTES:
        kl_prefetch(<const uint8_t*>batch + at)
        at += LINE_BYTES


cdef object record_in(const uint8_t* start, const BatchRow* row, const Fields* f, int64_t offset, bytes key):
    """The record with this key: with `key` itself where that is a plain bytes object, and a copy of its value."""
    cdef bytes value = None
    if f.header_count or not PyBytes_CheckExact(key):
        return copied_out(start, row, f, offset)
    if f.value_size >= 0:
        value = PyBytes_FromStringAndSize(<const char*>f.value, f.value_size)
    return lone_record(
        key, value, offset, timestamp_of(row, f), row.attributes & TIMESTAMP_TYPE_BIT != 0, row.leader_epoch
    )


cdef bint read_into(object records, uint8_t* into, int64_t size, int64_t position) except -1:
    """Read `size` bytes of FileRecords; False if that takes more than one call. The file stays open: it is held."""
    cdef object lazy = slot_get(records, &LAZY)
    cdef object file = slot_get(lazy, &FILE)
    cdef Py_ssize_t done
    cdef int fd
    if file is None:
        file = lazy.opened()
    else:
        slot_set(lazy, &USED, True)
    fd = slot_get(file, &FD)
    with nogil:
        done = pread(fd, into, <size_t>size, <off_t>position)
    return done == size


cdef inline const uint8_t* begin_of(bytes data) noexcept:
    return <const uint8_t*>PyBytes_AS_STRING(data)


cdef inline bint is_key(const Fields* f, bytes key) noexcept:
    return f.key_size == PyBytes_GET_SIZE(key) and memcmp(f.key, PyBytes_AS_STRING(key), <size_t>f.key_size) == 0
