"""Batches whose records were compressed, as uncompressed ones: one buffer of plain batches and the table that goes with it.

All that reads plain batches (decode, check, render) then reads these. The rows keep everything their headers said but
the codec, the place and the size. Codecs are called from Python; they write straight into this buffer.
"""
cimport cython
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.layout cimport CODEC_MASK, LOG_OVERHEAD, OK, SIZE_AT, V2_ATTRIBUTES_AT, V2_RECORDS_AT
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.batch.unpack cimport Unpacker
from kafkalog._core.batch.wrapper cimport settle, wrapper_payload
from kafkalog._core.bytes.endian cimport store16, store32
from kafkalog._core.bytes.store cimport Block, Store


@cython.final
@cython.no_gc_clear     # clearing would drop the chunk, and its bytes with it
cdef class Arena:
    """The rows of a batch table, one after the other from `first` on, made plain.

    `source` is the chunk that `batches` was scanned from, with the same `base_position`. `fill` does row after row;
    step by step, each is either copied (`copy_plain`) or begun (`begin` gives its compressed bytes), filled through
    `store`, and ended (`end` gives a status of decode.STATUS_TEXT) or cancelled. `finish` hands out the buffer, and
    `table` is its batch table: row i of it is row `first` + i of `batches`. An arena belongs to one thread.
    """
    cdef object source
    cdef const uint8_t* data
    cdef Py_ssize_t size_of_source
    cdef BatchTable batches
    cdef int64_t base_position
    cdef Py_ssize_t row_start       # of the row that was begun; -1 between rows
    cdef readonly Py_ssize_t first
    cdef readonly Store store
    cdef readonly BatchTable table
    cdef readonly int status
    cdef readonly Py_ssize_t payload_position
    cdef const uint8_t* payload     # of the row that was begun
    cdef int64_t payload_size

    def __cinit__(self, source, BatchTable batches not None, Py_ssize_t first, *, int64_t base_position=0, Py_ssize_t capacity=0):
        # a memoryview of our own, without a buffer taken of it: see buffers.take_view
        self.source = memoryview(source).cast("B")
        self.data = <const uint8_t*>PyMemoryView_GET_BUFFER(self.source).buf
        self.size_of_source = PyMemoryView_GET_BUFFER(self.source).len
        self.batches = batches
        self.first = first
        self.base_position = base_position
        self.row_start = -1
        self.store = Store(capacity)
        self.table = BatchTable.__new__(BatchTable)

    @property
    def rows(self) -> int:
        """Rows ended so far."""
        return self.table.count

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.store.size

    cdef const uint8_t* batch_at(self, Py_ssize_t i) except NULL:
        """The bytes of a source row, which must lie in the chunk whole and be the next one."""
        cdef BatchRow* row = self.batches.row_at(i)
        cdef int64_t at = place_of(row, self.base_position, self.size_of_source)
        if at < 0:
            raise ValueError(f"batch {i} of the table lies outside the {self.size_of_source} bytes given")
        if self.first < 0 or self.row_start >= 0 or i != self.first + self.table.count:
            raise ValueError(f"batch {i} is not the next one of this arena")
        return self.data + at

    cdef BatchRow* add_row(self, BatchRow* source, Py_ssize_t start) except NULL:
        """One more row of the new table: the old one without codec, in its new place."""
        cdef BatchRow* row
        if self.table.count == self.table.capacity and self.table.grow() < 0:
            raise MemoryError
        row = &self.table.rows[self.table.count]
        row[0] = source[0]
        row.attributes &= ~CODEC_MASK
        row.position = start
        row.size = self.store.size - start
        self.table.count += 1
        return row

    @cython.critical_section
    cpdef Py_ssize_t copy_plain(self, Py_ssize_t i, Py_ssize_t last) except -1:
        """Copies the rows from `i` on that need no decompression, and returns the first that does, or `last`.

        A v2 batch that declares no records, or is shorter than its header, needs none.
        """
        cdef BatchRow* row
        cdef const uint8_t* p
        cdef Py_ssize_t size
        cdef Py_ssize_t start
        while i < last:
            row = self.batches.row_at(i)
            size = <Py_ssize_t>row.size
            if row.attributes & CODEC_MASK:
                if row.magic < 2 or (row.count > 0 and size >= V2_RECORDS_AT):
                    return i
                size = min(size, V2_RECORDS_AT)
            p = self.batch_at(i)
            start = self.store.size
            self.store.put(p, size)
            self.add_row(row, start)
            i += 1
        return last

    @cython.critical_section
    def fill(self, Unpacker unpacker not None, Py_ssize_t last, *, Py_ssize_t enough, int64_t limit_bytes) -> int:
        """Makes rows plain up to `last`, or until there are `enough` bytes. 0, or why the row after `rows` cannot be.

        That is a status of `unpacker`, which gave one batch at most `limit_bytes`, or one of decode.STATUS_TEXT.
        """
        cdef int status
        cdef Py_ssize_t i
        while self.store.size < enough:
            i = self.copy_plain(self.first + self.table.count, last)
            if i == last:
                break
            status = self.begin_row(i)
            if status == OK:
                status = self.unpack(unpacker, i, limit_bytes)
            if status == OK:
                status = self.end()
            if status != OK:
                return status
        return OK

    cdef int unpack(self, Unpacker unpacker, Py_ssize_t i, int64_t limit_bytes) except -1:
        """Decompresses into the row that was begun, or cancels it."""
        cdef BatchRow* row = self.batches.row_at(i)
        cdef int status = -1
        try:
            status = unpacker.run(
                self.store, row.attributes & CODEC_MASK, self.source, self.payload, <Py_ssize_t>self.payload_size,
                row.magic, limit_bytes,
            )
        finally:
            if status != OK:
                self.cancel()
        return status

    cdef int begin_row(self, Py_ssize_t i) except -1:
        """OK with `payload` set, or why a v0 or v1 message does not hold any."""
        cdef BatchRow* row = self.batches.row_at(i)
        cdef const uint8_t* p = self.batch_at(i)
        if row.magic >= 2:
            if row.size < V2_RECORDS_AT:
                raise ValueError(f"batch {i} is shorter than its header")
            self.row_start = self.store.size
            self.store.put(p, V2_RECORDS_AT)
            self.payload = p + V2_RECORDS_AT
            self.payload_size = row.size - V2_RECORDS_AT
        else:
            self.status = wrapper_payload(p, row, &self.payload, &self.payload_size)
            if self.status != OK:
                return self.status
            self.row_start = self.store.size
        self.payload_position = self.payload - p
        return OK

    @cython.critical_section
    def begin(self, Py_ssize_t i) -> memoryview | None:
        """The compressed bytes of row `i`, whose decompressed ones go into `store` next.

        `payload_position` is where they begin in the batch. None where a v0 or v1 message does not hold any; `status`
        then says why.
        """
        cdef Py_ssize_t at
        if self.begin_row(i) != OK:
            return None
        at = self.payload - self.data
        return self.source[at:at + self.payload_size]

    @cython.critical_section
    cpdef int end(self) except -1:
        """Ends the row that was begun and returns 0, or why its inner messages are unsound; it is then cancelled."""
        cdef Py_ssize_t start = self.row_start
        cdef Py_ssize_t number = self.table.count
        cdef BatchRow* row
        cdef BatchRow settled
        cdef Block block
        cdef uint8_t* p
        if start < 0:
            raise ValueError("no batch was begun")
        row = self.batches.row_at(self.first + self.table.count)
        if self.store.size < start + (V2_RECORDS_AT if row.magic >= 2 else 0):
            raise ValueError("the store was emptied while a batch was begun")
        row = self.add_row(row, start)
        p = self.store.data + start
        self.status = OK
        if row.magic < 2:
            settled = row[0]
            self.store.reserve(0)   # a store that never held anything has no block
            block = self.store.block
            p = self.store.data + start
            block.exports += 1      # the bytes stay where they are until it is released
            with nogil:
                self.status = settle(p, settled.size, &settled)
            block.exports -= 1
            if self.row_start != start or self.table.count != number + 1:
                raise ValueError("the arena was used by another thread")
            self.table.rows[number] = settled
        else:
            store32(p + SIZE_AT, <int32_t>(row.size - LOG_OVERHEAD))
            store16(p + V2_ATTRIBUTES_AT, row.attributes)
        if self.status != OK:
            self.table.count -= 1
            self.cancel()
        self.row_start = -1
        return self.status

    @cython.critical_section
    cpdef object cancel(self):
        """Forgets the batch that was begun, with what was written for it."""
        if self.row_start >= 0:
            self.store.cut(self.row_start)
            self.row_start = -1

    @cython.critical_section
    def finish(self) -> Block:
        """The buffer, for `decode` with `table`; the arena takes no more."""
        cdef Block out
        self.cancel()
        self.table.valid_bytes = self.table.stop_position = self.store.size
        self.table.summarise()
        out = self.store.take()
        self.first = -1
        return out
