"""Batches of producers in a stretch of a log, gathered without the GIL for `Producers.take_over`.

A stretch knows nothing of those before it, so several may be gathered at once and taken over in order: the last
batches of each producer, the epoch it began with, and where transactions begin and end.
"""
cimport cython
from libc.stdlib cimport free
from libc.string cimport memmove, memset

from kafkalog._core.batch.layout cimport CONTROL_BIT, TRANSACTIONAL_BIT
from kafkalog._core.batch.marker cimport COMMIT, read_marker
from kafkalog._core.bytes.room cimport room_for_one
from kafkalog._core.bytes.wrap cimport subtracted
from kafkalog._core.log.ids cimport drop_ids, make_ids, number_of
from kafkalog._core.log.producer_state cimport Batch, last_sequence_of, WINDOW


@cython.final
cdef class ProducerTrace:
    """The producers of a stretch in the order in which they appear, and the steps of their transactions."""

    def __cinit__(self):
        self.latest = -1
        make_ids(&self.ids)

    def __dealloc__(self):
        drop_ids(&self.ids)
        free(self.all)
        free(self.steps)

    @property
    def producer_ids(self) -> list[int]:
        """Ids of the producers, in order of appearance."""
        return [self.all[i].producer_id for i in range(self.ids.count)]

    def __repr__(self):
        return f"<ProducerTrace of {self.ids.count} producers, {self.step_count} steps of transactions>"

    cdef int note(self, const BatchRow* row, const uint8_t* batch) noexcept nogil:
        """Takes a batch of a producer, in format v2; `batch` are its bytes, NULL where only a marker's are of use.

        -1 without memory. The rules are those of `Producers.stage` for replicated batches (PSM-3, PSM-5, PSM-12).
        """
        cdef Traced* t
        cdef Batch* last
        if row.attributes & CONTROL_BIT:
            return 0 if row.count == 0 or batch == NULL else self.note_marker(row, batch)
        t = self.traced(row)
        if t == NULL:
            return -1
        if t.count == WINDOW:
            memmove(&t.window[0], &t.window[1], (WINDOW - 1) * sizeof(Batch))
            t.count -= 1
        last = &t.window[t.count]
        last.last_sequence = last_sequence_of(row)
        last.last_offset = row.last_offset
        last.offset_delta = <int32_t>subtracted(row.last_offset, row.base_offset)
        last.timestamp = row.max_timestamp
        t.count += 1
        t.last_timestamp = row.max_timestamp
        if row.attributes & TRANSACTIONAL_BIT and not t.is_open:
            t.is_open = True
            return self.note_step(row.base_offset, TXN_BEGINS)
        return 0

    cdef int note_marker(self, const BatchRow* row, const uint8_t* batch) noexcept nogil:
        cdef Traced* t
        cdef int64_t timestamp = -1
        cdef int32_t coordinator_epoch = -1
        cdef int kind = read_marker(batch, row.size, row, &coordinator_epoch, &timestamp)
        if kind > COMMIT:               # nothing that a producer's state hangs on
            return 0
        t = self.traced(row)
        if t == NULL:
            return -1
        t.has_marker = True
        t.coordinator_epoch = coordinator_epoch
        t.last_timestamp = timestamp
        t.is_open = False
        return self.note_step(row.base_offset, kind)

    cdef int note_step(self, int64_t offset, int step) noexcept nogil:
        """A step of the producer that `traced` found last."""
        cdef TxnStep* steps = <TxnStep*>room_for_one(self.steps, self.step_count, &self.step_room, sizeof(TxnStep))
        if steps == NULL:
            return -1
        self.steps = steps
        steps = &self.steps[self.step_count]
        steps.offset, steps.producer, steps.step = offset, <int32_t>self.latest, step
        self.step_count += 1
        return 0

    cdef Traced* traced(self, const BatchRow* row) noexcept nogil:
        """The producer of a batch, with the batch's epoch; NULL without memory."""
        cdef Traced* t
        cdef Py_ssize_t known = self.ids.count
        if self.latest < 0 or self.all[self.latest].producer_id != row.producer_id:
            t = <Traced*>room_for_one(self.all, known, &self.room, sizeof(Traced))
            if t == NULL:
                return NULL
            self.all = t
            self.latest = number_of(&self.ids, row.producer_id)
            if self.latest < 0:
                return NULL
            if self.latest == known:
                t = &self.all[known]
                memset(t, 0, sizeof(Traced))
                t.producer_id = row.producer_id
                t.first_epoch = t.epoch = row.producer_epoch
                t.coordinator_epoch = -1
        t = &self.all[self.latest]
        if t.epoch != row.producer_epoch:
            t.epoch = row.producer_epoch
            t.count = 0
            t.was_reset = True
        return t
