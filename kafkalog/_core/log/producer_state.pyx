"""State of one producer in a log: epoch, the last five batches, the open transaction (checklist PSM)."""
cimport cython

from kafkalog._core.bytes.wrap cimport subtracted

cdef enum:
    LAST_SEQUENCE = 0x7FFFFFFF


cdef inline int32_t first_sequence_of(const Batch* b) noexcept:
    """The sequence of the first record of a batch, with the wrap from 0 back to 2147483647."""
    cdef int64_t first = <int64_t>b.last_sequence - b.offset_delta
    return <int32_t>(first if first >= 0 else first + LAST_SEQUENCE + 1)


@cython.final
cdef class ProducerState:
    """One producer as the log knows it; unknown values are -1, times are ms.

    `batches` holds at most the last five as (first sequence, last sequence, first offset, last offset, timestamp),
    oldest first: what a resent batch is compared with. Without any, the producer is known from a marker alone.
    """

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = -1,
        last_sequence: int = -1,
        last_offset: int = -1,
        offset_delta: int = 0,
        timestamp: int = -1,
        coordinator_epoch: int = -1,
        current_txn_first_offset: int = -1,
    ):
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.count = 0
        self.was_unknown = producer_epoch == -1
        if last_offset >= 0:
            self.count = 1
            self.window[0].last_sequence = last_sequence
            self.window[0].last_offset = last_offset
            self.window[0].offset_delta = offset_delta
            self.window[0].timestamp = timestamp

    @property
    def batches(self) -> list:
        cdef int i
        found = []
        for i in range(self.count):
            b = self.window[i]
            found.append(
                (
                    first_sequence_of(&self.window[i]), b.last_sequence, subtracted(b.last_offset, b.offset_delta),
                    b.last_offset, b.timestamp,
                )
            )
        return found

    @property
    def first_sequence(self) -> int:
        """The first sequence of the oldest batch remembered."""
        return first_sequence_of(&self.window[0]) if self.count else -1

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch."""
        return self.window[self.count - 1].last_sequence if self.count else -1

    @property
    def last_offset(self) -> int:
        """The last offset of the newest batch."""
        return self.window[self.count - 1].last_offset if self.count else -1

    @property
    def last_offset_delta(self) -> int:
        """Last less first offset of the newest batch; 0 without one."""
        return self.window[self.count - 1].offset_delta if self.count else 0

    def entry(self) -> tuple:
        """The fields of a snapshot's entry, in its order (format.md section 7)."""
        return (
            self.producer_id, self.producer_epoch, self.last_sequence, self.last_offset, self.last_offset_delta,
            self.last_timestamp, self.coordinator_epoch, self.current_txn_first_offset,
        )

    cdef ProducerState copy(self):
        cdef ProducerState s = ProducerState.__new__(ProducerState)
        s.window = self.window
        s.count = self.count
        s.producer_id = self.producer_id
        s.producer_epoch = self.producer_epoch
        s.coordinator_epoch = self.coordinator_epoch
        s.last_timestamp = self.last_timestamp
        s.current_txn_first_offset = self.current_txn_first_offset
        s.was_unknown = self.producer_epoch == -1
        return s

    cdef void take_epoch(self, int32_t epoch) noexcept:
        """Another epoch, higher or lower, empties the window (PSM-3, PSM-6, PSM-35)."""
        if epoch != self.producer_epoch:
            self.count = 0
            self.producer_epoch = epoch

    cdef void add(self, const BatchRow* row) noexcept:
        """Remembers a data batch; the sixth drops the oldest (PSM-5)."""
        cdef int i
        self.take_epoch(row.producer_epoch)
        if self.count == WINDOW:
            for i in range(WINDOW - 1):
                self.window[i] = self.window[i + 1]
            self.count -= 1
        self.window[self.count].last_sequence = last_sequence_of(row)
        self.window[self.count].last_offset = row.last_offset
        self.window[self.count].offset_delta = <int32_t>subtracted(row.last_offset, row.base_offset)
        self.window[self.count].timestamp = row.max_timestamp
        self.count += 1
        self.last_timestamp = row.max_timestamp

    cdef int find(self, const BatchRow* row) noexcept:
        """The number in the window of a batch with the same epoch and sequences, -1 where there is none (LOG-60)."""
        cdef int i
        if row.producer_epoch != self.producer_epoch:
            return -1
        for i in range(self.count):
            if (
                self.window[i].last_sequence == last_sequence_of(row)
                and first_sequence_of(&self.window[i]) == row.base_sequence
            ):
                return i
        return -1

    cdef bint continues(self, int32_t epoch, int32_t sequence) noexcept:
        """True when a batch that begins with `sequence` comes next (PSM-1 to PSM-3, PSM-6)."""
        cdef int32_t last
        if epoch != self.producer_epoch:
            return sequence == 0 or self.producer_epoch == -1
        last = self.window[self.count - 1].last_sequence if self.count else -1
        return (
            self.was_unknown
            or <int64_t>sequence == <int64_t>last + 1
            or (sequence == 0 and last == LAST_SEQUENCE)
        )

    def __repr__(self):
        open_txn = "" if self.current_txn_first_offset < 0 else f" open transaction at {self.current_txn_first_offset}"
        return (
            f"<ProducerState {self.producer_id} epoch {self.producer_epoch} last sequence {self.last_sequence} "
            f"last offset {self.last_offset}{open_txn}>"
        )
