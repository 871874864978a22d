"""Rows of Arrow data to v2 batches, one lane for each partition of each topic: no Python object a record, no GIL."""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kafkalog._core.arrow.cells cimport NOTHING, Slice, Span, read_cell, read_number, read_time
from kafkalog._core.arrow.lanes cimport MOST, Lane, Row, body_size, lane_finished, lane_room, put_row, seal_lane
from kafkalog._core.arrow.memory cimport Memory, drop_memory, new_memory
from kafkalog._core.arrow.row_headers cimport HEADERS_FINE, HEADERS_LONG, HEADERS_NULL, measure_headers, put_headers
from kafkalog._core.arrow.rows cimport HEADERS, KEY, PARTITION, TIMESTAMP, TOPIC, VALUE, Rows
from kafkalog._core.arrow.topic_table cimport Topic, TopicTable, add_topic, find_topic, free_topics, is_named
from kafkalog._core.batch.emit cimport varint_size
from kafkalog._core.batch.layout cimport V2_RECORDS_AT
from kafkalog._core.bytes.murmur cimport partition_of

from kafkalog._core.arrow.input import BadArrow
from kafkalog._core.arrow.rows import ROLE_NAMES

cdef enum:
    # why `_run` stopped
    DONE = 0
    FULL                        # as many bytes wait as were allowed
    NEW_TOPIC                   # a topic that was not met before
    NO_MEMORY
    BAD_CELL
    BAD_TIME
    NULL_TOPIC
    BAD_PARTITION
    NULL_HEADER
    TOO_LONG
    TOO_LARGE                   # larger than its topic takes
    LARGEST_PART = MOST - 128
    MOST_PARTITIONS = 1_000_000
    FEW_LANES = 16              # up to so many have memory for a whole batch at once
    SMALL_ROOM = 64 * 1024


cdef struct At:
    # how far a feed is, and where what it needs or refuses is
    int64_t row
    int64_t topic               # place of the topic of the last row
    int role                    # of the cell that is wrong
    int64_t number              # the number that is wrong
    Slice name                  # of the topic that was not met before


@cython.final
cdef class Parcel:
    """Finished v2 batches of one partition, back to back: a writable buffer, base offsets counted from the lane's start.

    `records` of them, the first with the offset `first_record`, `batches`, `max_timestamp` (ms), `largest` (bytes of
    the largest batch). Producer fields are -1.
    """
    cdef Memory* memory
    cdef Py_ssize_t size
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t records
    cdef readonly int64_t first_record
    cdef readonly int64_t batches
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t largest

    def __dealloc__(self):
        drop_memory(self.memory)

    @cython.critical_section
    def __getbuffer__(self, Py_buffer* out, int flags):
        cdef void* data = <void*>&self.size     # of nothing, where there is no memory
        if self.memory != NULL:
            data = self.memory.data
        PyBuffer_FillInfo(out, self, data, self.size, 0, flags)

    def __len__(self) -> int:
        return self.size

    def __repr__(self):
        return f"<Parcel {self.topic}-{self.partition}: {self.records} records, {self.size} B>"


@cython.final
cdef class ArrowEncoder:
    """Writes rows of Arrow data as records of v2 batches, in the order in which they come within each partition.

    `resolve(topic)` is called once for each topic that is met, and gives (partitions, batch_bytes, most_bytes): its
    number of partitions, the size that a batch must not pass (one record alone may), and the size of a batch that is
    refused (0: none). What it raises goes through. With a `topic` that is the target of every row, whatever a column
    says. A partition is the row's own, else murmur2(key) mod partitions as Kafka's producers have it; rows without a
    key stay on one partition for `sticky_bytes`, as those of a producer do for its batch.size, beginning at
    `first_partition`. `batch_rows` bounds a batch too; `waiting_bytes` is where `feed` stops for a `take`.

    An encoder belongs to one thread at a time. After an error it takes no more: what it had is not whole.
    """
    cdef Lane* lanes
    cdef int64_t lane_count
    cdef int64_t lane_room
    cdef TopicTable table
    cdef list names
    cdef object resolve
    cdef str topic
    cdef int64_t only               # place of the one topic there is, -1 without one
    cdef int64_t batch_rows
    cdef int64_t sticky_bytes
    cdef int32_t first_partition
    cdef int64_t most_waiting
    cdef readonly int64_t waiting_bytes
    cdef readonly int64_t records
    cdef int64_t rows_before        # of record batches that were fed whole
    cdef bint busy
    cdef bint broken

    def __cinit__(
        self, resolve, *, topic: str | None = None, batch_rows: int = MOST, sticky_bytes: int = 16384,
        first_partition: int = 0, waiting_bytes: int = 8 << 20,
    ):
        if not 1 <= batch_rows <= MOST or sticky_bytes < 1 or waiting_bytes < 1 or not 0 <= first_partition <= MOST:
            raise ValueError("batch_rows, sticky_bytes and waiting_bytes are 1 or more, first_partition 0 or more")
        self.resolve = resolve
        self.topic = topic
        self.only = -1
        self.batch_rows = batch_rows
        self.sticky_bytes = sticky_bytes
        self.first_partition = first_partition
        self.most_waiting = waiting_bytes
        self.names = []

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.lane_count):
            drop_memory(self.lanes[i].memory)
        free(self.lanes)
        free_topics(&self.table)

    cdef int _enter(self) except -1:
        if self.busy:
            raise RuntimeError("this encoder is at work in another thread: it belongs to one at a time")
        if self.broken:
            raise RuntimeError("this encoder met a row that it could not take: what it holds is not whole")
        return 0

    @cython.critical_section
    def feed(self, Rows rows not None, Py_ssize_t first, int64_t now_ms) -> int:
        """Takes rows from `first` on; returns the next one to be fed, before the end where `take` is due.

        Half of what waits is finished then at least: where more of it is in open batches, of many partitions, these
        are closed. `now_ms` is the time of rows that have none; -1 leaves them without. BadArrow names column and row
        (counted over all that was fed) of what cannot be a record; MemoryError.
        """
        cdef At at
        cdef int status
        self._enter()
        if first < 0 or first > rows.count:
            raise IndexError(f"row {first} of {rows.count}")
        if now_ms < -1:
            raise ValueError(f"the time {now_ms} ms is before 1970")
        memset(&at, 0, sizeof(At))
        at.row = first
        self.busy = True
        try:
            if self.topic is not None and self.only < 0:
                self.only = self._add_topic(self.topic.encode())
            at.topic = self.only
            while True:
                with nogil:
                    status = self._run(rows, &at, now_ms)
                    if status == FULL and 2 * self._count_finished() < self.waiting_bytes:
                        self._seal_all()
                if status != NEW_TOPIC:
                    break
                at.topic = self._add_topic((<const char*>at.name.data)[:at.name.size])
            if status > FULL:
                raise self._refusal(status, &at, rows)
            if at.row == rows.count:
                self.rows_before += rows.count
            return at.row
        except BaseException:
            self.broken = True
            raise
        finally:
            self.busy = False

    cdef object _refusal(self, int status, At* at, Rows rows):
        """The error for what `_run` stopped at."""
        cdef int64_t row = self.rows_before + at.row
        cdef str column = rows.plan.columns.get(ROLE_NAMES[at.role])
        if status == NO_MEMORY:
            return MemoryError("no memory for the batches")
        if status == BAD_CELL:
            return BadArrow(f"column {column!r} contradicts itself in row {row}", "malformed", column, row)
        if status == BAD_TIME:
            return BadArrow(
                f"row {row} has a timestamp before 1970, or beyond 64 bits of ms", "timestamp", column, row,
                hint="null takes the time of writing",
            )
        if status == NULL_TOPIC:
            return BadArrow(
                f"row {row} has no topic", "topic", column, row,
                hint="name the topic of all rows, or leave rows without one out",
            )
        if status == BAD_PARTITION:
            return BadArrow(
                f"row {row} is for partition {at.number} of {self.names[at.topic]!r}, which has the partitions 0 to "
                f"{self.table.topics[at.topic].partitions - 1}", "partition", column, row,
                hint="null leaves the choice to the key",
            )
        if status == NULL_HEADER:
            return BadArrow(
                f"row {row} has a header that is null, or has no name", "headers", column, row,
                hint="leave it out of the list",
            )
        if status == TOO_LARGE:
            return BadArrow(
                f"row {row} makes a batch of {at.number} bytes, and {self.names[at.topic]!r} takes "
                f"{self.table.topics[at.topic].most_bytes}", "size", column, row,
                hint="raise max.message.bytes of the topic, or make the value smaller",
            )
        return BadArrow(f"row {row} is longer than a record can be, 2 GiB", "size", column, row)

    cdef int64_t _add_topic(self, bytes name) except -1:
        """The place of a topic that is new; its lanes are there then."""
        cdef int64_t place = self.table.count
        cdef Topic* t
        cdef int64_t partitions
        cdef int64_t batch_bytes
        cdef int64_t most_bytes
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            raise BadArrow(f"a topic's name is no text: {name[:40]!r}", "topic") from None
        partitions, batch_bytes, most_bytes = self.resolve(text)
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"{partitions} partitions: at least 1, at most {MOST_PARTITIONS}")
        if not V2_RECORDS_AT <= batch_bytes <= MOST or most_bytes < 0:
            raise ValueError(f"a batch limit of {batch_bytes} bytes is outside {V2_RECORDS_AT} to {MOST}")
        t = add_topic(&self.table, <const uint8_t*><const char*>name, len(name))
        if t == NULL:
            raise MemoryError("no memory for a topic")
        t.first_lane = self.lane_count
        self._add_lanes(partitions)
        t.partitions = <int32_t>partitions
        t.batch_bytes = batch_bytes
        t.most_bytes = most_bytes
        t.sticky = self.first_partition % t.partitions
        self.names.append(text)
        return place

    cdef int _add_lanes(self, int64_t partitions) except -1:
        """So many lanes more, with nothing in them."""
        cdef int64_t want = self.lane_count + partitions
        cdef int64_t i
        cdef void* memory
        if want > self.lane_room:
            want = max(want, 2 * self.lane_room)
            memory = realloc(self.lanes, <size_t>want * sizeof(Lane))
            if memory == NULL:
                raise MemoryError("no memory for the partitions of a topic")
            self.lanes = <Lane*>memory
            self.lane_room = want
        memset(&self.lanes[self.lane_count], 0, <size_t>partitions * sizeof(Lane))
        for i in range(self.lane_count, self.lane_count + partitions):
            self.lanes[i].max_finished = -1
        self.lane_count += partitions
        return 0

    cdef int _run(self, Rows rows, At* at, int64_t now) noexcept nogil:
        cdef int64_t end = rows.count
        cdef Slice key
        cdef Slice value
        cdef Row r
        cdef Span headers
        cdef int status
        headers.first = headers.last = -1
        while at.row < end:
            if self.waiting_bytes >= self.most_waiting:
                return FULL
            if read_cell(&rows.value, at.row, &value):
                at.role = VALUE
                return BAD_CELL
            if read_cell(&rows.key, at.row, &key):
                at.role = KEY
                return BAD_CELL
            if value.size > LARGEST_PART or key.size > LARGEST_PART:
                at.role = VALUE if value.size > LARGEST_PART else KEY
                return TOO_LONG
            r.value = value.data
            r.value_size = value.size
            r.key = key.data
            r.key_size = key.size
            r.headers_size = 1
            if read_time(&rows.timestamp, at.row, rows.per_ms, now, &r.timestamp):
                at.role = TIMESTAMP
                return BAD_TIME
            if rows.headers.layout != NOTHING:
                status = measure_headers(&rows.headers, at.row, LARGEST_PART, &headers, &r.headers_size)
                if status != HEADERS_FINE:
                    at.role = HEADERS
                    return TOO_LONG if status == HEADERS_LONG else NULL_HEADER if status == HEADERS_NULL else BAD_CELL
            if self.only < 0:
                status = self._turn_to_topic(rows, at)
                if status != DONE:
                    at.role = TOPIC
                    return status
            status = self._place(rows, at, &r, &headers)
            if status != DONE:
                return status
            at.row += 1
        return DONE

    cdef int _turn_to_topic(self, Rows rows, At* at) noexcept nogil:
        """Makes `at.topic` the topic of the row."""
        if read_cell(&rows.topic, at.row, &at.name):
            return BAD_CELL
        if at.name.size < 0:
            return NULL_TOPIC
        if at.topic >= 0 and is_named(&self.table.topics[at.topic], at.name.data, at.name.size):
            return DONE
        if at.name.size > LARGEST_PART:
            return TOO_LONG
        at.topic = find_topic(&self.table, at.name.data, at.name.size)
        return DONE if at.topic >= 0 else NEW_TOPIC

    cdef int _place(self, Rows rows, At* at, const Row* r, const Span* headers) noexcept nogil:
        """Finds the partition of a row and writes it there."""
        cdef Topic* t = &self.table.topics[at.topic]
        cdef int64_t partition = 0
        cdef bint sticks = False
        cdef int64_t written
        if read_number(&rows.partition, at.row, &partition):
            if partition < 0 or partition >= t.partitions:
                at.role = PARTITION
                at.number = partition
                return BAD_PARTITION
        elif t.partitions > 1:
            if r.key_size >= 0:
                partition = partition_of(r.key, r.key_size, t.partitions)
            else:
                partition = t.sticky
                sticks = True
        written = self._write(rows, at, r, headers, t, &self.lanes[t.first_lane + partition])
        if written < 0:
            return <int>-written
        if sticks:
            t.stuck += written
            if t.stuck >= self.sticky_bytes:
                t.stuck = 0
                t.sticky = (t.sticky + 1) % t.partitions
        return DONE

    cdef int64_t _write(
        self, Rows rows, At* at, const Row* r, const Span* headers, const Topic* t, Lane* lane
    ) noexcept nogil:
        """Bytes of the record, now that it is in the lane; below 0: why it is not."""
        cdef int64_t body = body_size(lane, r)
        cdef int64_t total
        cdef uint8_t* p
        if body > LARGEST_PART:
            at.role = VALUE
            return -TOO_LONG
        total = varint_size(<int32_t>body) + body
        if lane.count > 0 and (lane.size - lane.open_at + total > t.batch_bytes or lane.count >= self.batch_rows):
            seal_lane(lane)
            body = body_size(lane, r)
            total = varint_size(<int32_t>body) + body
        if lane.count == 0:
            total += V2_RECORDS_AT
            if total > t.most_bytes > 0 or total > MOST:
                at.role = VALUE
                at.number = total
                return -TOO_LARGE if t.most_bytes > 0 else -TOO_LONG
        if not lane_room(lane, total, self._usual_room(t)):
            return -NO_MEMORY
        p = put_row(lane, r, body)
        if not put_headers(p, lane.memory.data + lane.size, &rows.headers, headers):
            at.role = HEADERS
            return -BAD_CELL
        self.records += 1
        self.waiting_bytes += total
        return total

    cdef int64_t _usual_room(self, const Topic* t) noexcept nogil:
        """First room of a lane: all that may wait if it is the only one, a batch if there are a few, else little."""
        if self.lane_count == 1:
            return min(self.most_waiting + V2_RECORDS_AT + SMALL_ROOM, <int64_t>MOST)
        return min(t.batch_bytes, self.most_waiting) if self.lane_count <= FEW_LANES else SMALL_ROOM

    cdef int64_t _count_finished(self) noexcept nogil:
        """Bytes of finished batches that wait for `take`; `waiting_bytes` counts the open ones too."""
        cdef int64_t i
        cdef int64_t n = 0
        for i in range(self.lane_count):
            n += lane_finished(&self.lanes[i])
        return n

    cdef void _seal_all(self) noexcept nogil:
        cdef int64_t i
        for i in range(self.lane_count):
            seal_lane(&self.lanes[i])

    @cython.critical_section
    def seal(self) -> None:
        """Closes every open batch."""
        self._enter()
        self.busy = True
        with nogil:
            self._seal_all()
        self.busy = False

    @cython.critical_section
    def take(self) -> list[Parcel]:
        """The finished batches of each partition that has some, by topic in the order they were met, and partition."""
        cdef int64_t i
        cdef int64_t j
        cdef list parcels = []
        self._enter()
        self.busy = True
        try:
            for i in range(self.table.count):
                for j in range(self.table.topics[i].partitions):
                    if lane_finished(&self.lanes[self.table.topics[i].first_lane + j]) > 0:
                        parcels.append(self._take_lane(i, j))
        finally:
            self.busy = False
        return parcels

    cdef Parcel _take_lane(self, int64_t topic, int64_t partition):
        cdef Lane* lane = &self.lanes[self.table.topics[topic].first_lane + partition]
        cdef int64_t done = lane_finished(lane)
        cdef int64_t rest = lane.size - done
        cdef Memory* fresh = NULL
        cdef Parcel parcel = Parcel.__new__(Parcel)
        if rest > 0:
            # the open batch moves to its own memory; without memory nothing has changed yet
            fresh = new_memory(max(rest, self._usual_room(&self.table.topics[topic])))
            if fresh == NULL:
                raise MemoryError("no memory for the batches")
            memcpy(fresh.data, lane.memory.data + done, <size_t>rest)
        parcel.memory = lane.memory
        parcel.size = done
        parcel.topic = self.names[topic]
        parcel.partition = <int32_t>partition
        parcel.first_record = lane.given
        parcel.records = lane.records - lane.count - lane.given
        parcel.batches = lane.batches
        parcel.max_timestamp = lane.max_finished
        parcel.largest = lane.largest
        lane.memory = fresh
        lane.size = rest
        lane.open_at = 0
        lane.given += parcel.records
        lane.batches = lane.largest = 0
        lane.max_finished = -1
        self.waiting_bytes -= done
        return parcel
