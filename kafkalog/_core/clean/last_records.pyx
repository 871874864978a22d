"""The batches with the last sequence number of each active producer, which a cleaner must keep (CLN-11)."""
from bisect import bisect_left

cimport cython
from libc.stdlib cimport free, malloc

from kafkalog._core.batch.layout cimport CONTROL_BIT
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.log.ids cimport IdPlace, drop_ids, make_ids, number_of, place_of_id


@cython.final
cdef class LastRecords:
    """The last records of producers, each (producer id, last data offset or -1, epoch), to ask of batches.

    A producer's last batch is known by its offset: sequences come again. One of which only a marker is left is known
    by its epoch, which still fences.
    """

    def __cinit__(self, producers=()):
        cdef list all_of_them = list(producers)
        cdef Py_ssize_t number
        make_ids(&self.ids)
        self.offsets = sorted(offset for _, offset, _ in all_of_them if offset >= 0)
        if not all_of_them:
            return
        self.records = <LastRecord*>malloc(<size_t>len(all_of_them) * sizeof(LastRecord))
        if self.records == NULL:
            raise MemoryError
        for producer_id, last_data_offset, producer_epoch in all_of_them:
            number = number_of(&self.ids, producer_id)
            if number < 0:
                raise MemoryError
            self.records[number] = LastRecord(last_data_offset, producer_epoch)

    def __dealloc__(self):
        free(self.records)
        drop_ids(&self.ids)

    def __len__(self) -> int:
        return self.ids.count

    cdef bint holds(self, const BatchRow* row) noexcept nogil:
        """True for the batch that has the last sequence, or the epoch, of its producer."""
        cdef IdPlace* place
        cdef LastRecord* record
        if row.magic < 2 or row.producer_id < 0 or self.ids.count == 0:
            return False
        place = place_of_id(&self.ids, row.producer_id)
        if place.number == 0:
            return False
        record = &self.records[place.number - 1]
        if record.last_data_offset >= 0:
            return row.last_offset == record.last_data_offset
        return row.attributes & CONTROL_BIT and row.producer_epoch == record.producer_epoch

    def any_in(self, int64_t first_offset, int64_t last_offset) -> bool:
        """True where the last data of a producer ends in [first_offset, last_offset]."""
        cdef Py_ssize_t place = bisect_left(self.offsets, first_offset)
        return place < len(self.offsets) and self.offsets[place] <= last_offset

    def is_last(self, BatchTable table not None, Py_ssize_t i) -> bool:
        """True for a row whose batch has the last sequence, or the epoch, of its producer."""
        return self.holds(table.row_at(i))
