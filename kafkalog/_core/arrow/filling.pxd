"""The pass over the records of a batch that fills columns: format.md sections 2 and 4; a record is in all of them or in none."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkalog._core.arrow.growing cimport (
    Bytes, Headers, Lane, back_to, fits, lane_of, put_bytes, put_fitting, put_headers,
)
from kafkalog._core.arrow.memory cimport Memory
from kafkalog._core.arrow.sweep cimport Slot, Sweep, is_chosen, sweep_heads, sweep_records
from kafkalog._core.batch.batch_range cimport is_misplaced
from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.fields cimport HEAD_BYTES, Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE, ERR_MAGIC, ERR_RECORD_BODY,
    ERR_RECORD_OFFSET, ERR_RECORD_SIZE, ERR_SHORT, ERR_WRAPPER_NESTED, MIN_RECORD_BYTES, OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.bytes.cursor cimport LONG_VARINT, Cursor, short_varint, take_i8, take_varint, take_varlong
from kafkalog._core.bytes.prefetch cimport kl_prefetch
from kafkalog._core.bytes.wrap cimport added

cdef enum:
    BARREN_SWEEPS = 4               # after so many without a record the rest of a batch goes the careful way
    LEAST_DELTA = -0x7FFFFFFF
    MOST_DELTA = 0x7FFFFFFF


cdef struct Build:
    # the piece that is being made: room for `room` rows, of which there are `rows`
    int64_t rows
    int64_t room
    int64_t bytes               # in its columns of bytes
    int64_t next_offset         # what lies below is passed over
    int64_t stop_offset
    int64_t most_bytes
    bint every                  # whatever its offset, each record is taken
    bint full                   # the next record does not fit
    bint ended                  # a record at or above stop_offset was met
    bint wants_bodies           # any of key, value, headers
    bint wants_key
    bint wants_value
    bint wants_headers
    bint wants_type
    Slot* chosen                # keys whose values alone are copied, others are empty; NULL: all are
    int64_t chosen_count
    Memory* offsets             # NULL unless asked for
    Memory* timestamps
    Memory* types
    Bytes key
    Bytes value
    Headers headers


cdef struct Place:
    # where in a batch the next record begins, how many came before it, and how many of them the batch has
    int64_t at
    int64_t done


cdef inline int take_head(Cursor* c, Fields* f) noexcept nogil:
    """Time and offset of the record at the cursor, and on to the next one: key, value and headers are not looked at."""
    cdef const uint8_t* p = c.p
    cdef const uint8_t* end
    cdef int32_t size = 0
    cdef Cursor body
    cdef int8_t attributes = 0
    cdef int status
    if c.end - p >= HEAD_BYTES:
        size = short_varint(&p)
        if size >= MIN_RECORD_BYTES - 1 and size <= c.end - p:
            end = p + size
            p += 1
            f.timestamp_delta = short_varint(&p)
            if f.timestamp_delta != LONG_VARINT:
                f.offset_delta = short_varint(&p)
                if f.offset_delta != LONG_VARINT:
                    c.p = end
                    return OK
    status = take_varint(c, &size)
    if status != OK:
        return status
    if size < 0 or size > c.end - c.p:
        return ERR_RECORD_SIZE
    if size < MIN_RECORD_BYTES - 1:
        return ERR_RECORD_BODY
    body.p = c.p
    body.end = c.p + size
    status = take_i8(&body, &attributes)
    if status == OK:
        status = take_varlong(&body, &f.timestamp_delta)
    if status == OK:
        status = take_varint(&body, &f.offset_delta)
    c.p = body.end
    return status


cdef inline int take_body(Cursor* c, Fields* f) noexcept nogil:
    """All of the record at the cursor, and on to the next one."""
    kl_prefetch(c.p + 768)
    return OK if take_small_record(c, f) else take_record(c, f)


cdef struct Hand:
    # the columns of bytes as a loop keeps them at hand
    Lane key
    Lane value
    int32_t* lists              # NULL unless headers were asked for
    bint wants_key
    bint wants_value


cdef inline Hand hand_of(Build* b) noexcept nogil:
    cdef Hand hand
    hand.key = lane_of(&b.key)
    hand.value = lane_of(&b.value)
    hand.lists = <int32_t*>b.headers.lists.data if b.wants_headers else NULL
    hand.wants_key = b.wants_key
    hand.wants_value = b.wants_value
    return hand


cdef inline void lay_down(Build* b, Hand* hand) noexcept nogil:
    back_to(&b.key, &hand.key)
    back_to(&b.value, &hand.value)


cdef inline int64_t bytes_of(Hand* hand, Fields* f) noexcept nogil:
    """Return the most bytes that the record adds to the columns of bytes."""
    cdef int64_t n = 0
    if hand.wants_key and f.key_size > 0:
        n = f.key_size
    if hand.wants_value and f.value_size > 0:
        n += f.value_size
    if hand.lists != NULL:
        n += f.end - f.headers
    return n


cdef inline int put_slowly(Build* b, int64_t row, Fields* f) noexcept nogil:
    """The bytes of a record that has headers, or for which there is no room yet."""
    cdef int status = OK
    if b.wants_key:
        status = put_bytes(&b.key, row, f.key, f.key_size)
    if b.wants_value and status == OK:
        status = put_bytes(&b.value, row, f.value, f.value_size)
    if b.wants_headers and status == OK:
        status = put_headers(&b.headers, row, f.headers, f.end, f.header_count)
    return status


cdef inline int put_bodies(Build* b, Hand* hand, int64_t row, Fields* f) noexcept nogil:
    cdef int status
    if (
        (not hand.wants_key or fits(&hand.key, f.key_size))
        and (not hand.wants_value or fits(&hand.value, f.value_size))
        and (hand.lists == NULL or f.header_count == 0)
    ):
        if hand.wants_key:
            put_fitting(&hand.key, row, f.key, f.key_size)
        if hand.wants_value:
            put_fitting(&hand.value, row, f.value, f.value_size)
        if hand.lists != NULL:
            hand.lists[row + 1] = <int32_t>b.headers.count
        return OK
    lay_down(b, hand)
    status = put_slowly(b, row, f)
    hand[0] = hand_of(b)
    return status


cdef inline void put_type(Build* b, int64_t first, int64_t last, int32_t kind) noexcept nogil:
    cdef int32_t* types
    cdef int64_t i
    if b.wants_type:
        types = <int32_t*>b.types.data
        for i in range(first, last):
            types[i] = kind


cdef inline Sweep sweep_of(Build* b, BatchRow* row) noexcept nogil:
    """Prepare a sweep over the records of a batch; `most` is 0 where there can be none."""
    cdef Sweep s
    s.base_offset = row.base_offset
    s.own_time = (row.attributes & TIMESTAMP_TYPE_BIT) == 0
    s.base_timestamp = row.base_timestamp if s.own_time else row.max_timestamp
    s.rising = not b.every
    s.lowest_delta = LEAST_DELTA
    s.highest_delta = MOST_DELTA
    if s.rising and row.base_offset >= 0 and b.stop_offset >= 0:
        s.highest_delta = min(b.stop_offset - 1 - row.base_offset, <int64_t>row.last_delta)
    s.offsets = <int64_t*>b.offsets.data if b.offsets != NULL else NULL
    s.timestamps = <int64_t*>b.timestamps.data if b.timestamps != NULL else NULL
    s.lists = <int32_t*>b.headers.lists.data if b.wants_headers else NULL
    s.wants_key = b.wants_key
    s.wants_value = b.wants_value
    s.chosen, s.chosen_count = b.chosen, b.chosen_count
    return s


cdef inline int64_t sweep_at(
    Sweep* s, Build* b, Cursor* c, Hand* hand, int64_t row, int64_t most, int64_t next_offset
) noexcept nogil:
    """Takes the common records at the cursor, into rows from `row` on; the bytes of their keys and values."""
    cdef int64_t before = hand.key.used + hand.value.used
    s.row = row
    s.most = min(most, b.room - row)
    s.headers = <int32_t>b.headers.count
    if s.rising:
        s.lowest_delta = max(next_offset - s.base_offset, <int64_t>LEAST_DELTA)
    if b.wants_bodies:
        sweep_records(s, c, &hand.key, &hand.value)
    else:
        sweep_heads(s, c)
    return hand.key.used + hand.value.used - before


cdef inline int64_t chosen_bytes(const Build* b, Hand* hand, Fields* f) noexcept nogil:
    """As bytes_of, after the value was made empty if it is not copied."""
    if b.chosen != NULL and f.value_size > 0 and not is_chosen(b.chosen, b.chosen_count, f.key, f.key_size):
        f.value_size = 0
    return bytes_of(hand, f)


cdef inline int take_placed(
    const Build* b, const BatchRow* row, Cursor* c, Fields* f, bint has_rows, int64_t next_offset
) noexcept nogil:
    """Takes a record that lies in its batch, above the rows that this gave before; `every` record does.

    To pass over one that does not would be silent, and to stop at it would hide sound ones behind.
    """
    cdef int status = take_body(c, f) if b.wants_bodies else take_head(c, f)
    if status != OK or b.every:
        return status
    if f.offset_delta < 0 or f.offset_delta > row.last_delta:
        return ERR_RECORD_OFFSET
    return ERR_RECORD_OFFSET if has_rows and added(row.base_offset, f.offset_delta) < next_offset else OK


cdef inline int fill_records(Build* b, BatchRow* row, const uint8_t* batch, Place* place) noexcept nogil:
    """The records of a v2 batch from `place` on; `place` says where it stopped: OK with b.full where it is not at the end."""
    cdef Cursor c
    cdef Fields f
    cdef int status
    cdef const uint8_t* start
    cdef int64_t offset
    cdef int64_t more = 0
    cdef int64_t n = b.rows
    cdef int64_t i = place.done
    cdef int64_t next_offset = b.next_offset
    cdef int64_t left = b.most_bytes - b.bytes
    cdef int64_t* offsets = <int64_t*>b.offsets.data if b.offsets != NULL else NULL
    cdef int64_t* timestamps = <int64_t*>b.timestamps.data if b.timestamps != NULL else NULL
    cdef bint own_time = (row.attributes & TIMESTAMP_TYPE_BIT) == 0
    cdef Hand hand = hand_of(b)
    cdef int barren = 0
    cdef Sweep sweep = sweep_of(b, row)
    c.p = batch + place.at
    c.end = batch + row.size
    if row.base_offset < 0 or next_offset < 0 or b.stop_offset < 0:
        barren = BARREN_SWEEPS
    while True:
        if barren < BARREN_SWEEPS and (c.end - c.p <= left or not b.wants_bodies):
            more = sweep_at(&sweep, b, &c, &hand, n, row.count - i, next_offset)
            if sweep.row > n:
                left -= more
                i += sweep.row - n
                n = sweep.row
                next_offset = added(added(row.base_offset, sweep.last_delta), 1)
            else:
                barren += 1
        start = c.p
        if i == row.count or start == c.end:
            status = ERR_COUNT_HIGH if i < row.count else OK if start == c.end else ERR_COUNT_LOW
            break
        status = take_placed(b, row, &c, &f, n > b.rows, next_offset)
        if status != OK:
            break
        more = chosen_bytes(b, &hand, &f) if b.wants_bodies else 0
        offset = added(row.base_offset, f.offset_delta)
        if offset >= next_offset or b.every:
            if offset >= b.stop_offset and not b.every:
                b.ended = True
                status = OK
                break
            if n == b.room or (more > left and n > 0):
                b.full = True
                status = OK
                break
            if b.wants_bodies:
                status = put_bodies(b, &hand, n, &f)
                if status != OK:
                    break
                left -= more
            if offsets != NULL:
                offsets[n] = offset
            if timestamps != NULL:
                timestamps[n] = added(row.base_timestamp, f.timestamp_delta) if own_time else row.max_timestamp
            next_offset = added(offset, 1)
            n += 1
        i += 1
    lay_down(b, &hand)
    b.bytes = b.most_bytes - left
    put_type(b, b.rows, n, 0 if own_time else 1)
    b.rows = n
    b.next_offset = next_offset
    place.at = start - batch
    place.done = i
    return status


cdef inline int fill_messages(Build* b, BatchRow* row, const uint8_t* batch, Place* place) noexcept nogil:
    """The same for a v0 or v1 message, or for what a wrapper held; a message cut off at the end of the set ends it."""
    cdef Cursor c
    cdef Message m
    cdef Fields f
    cdef int status
    cdef const uint8_t* start
    cdef int64_t more
    cdef int64_t n = b.rows
    cdef int64_t done = place.done
    cdef int64_t next_offset = b.next_offset
    cdef int64_t left = b.most_bytes - b.bytes
    cdef int64_t* offsets = <int64_t*>b.offsets.data if b.offsets != NULL else NULL
    cdef int64_t* timestamps = <int64_t*>b.timestamps.data if b.timestamps != NULL else NULL
    cdef Hand hand = hand_of(b)
    cdef bint own_time = row.magic == 0 or (row.attributes & TIMESTAMP_TYPE_BIT) == 0
    f.header_count = 0
    c.p = batch + place.at
    c.end = batch + row.size
    while True:
        start = c.p
        status = take_frame(&c, &m)
        if status != OK:
            break
        if m.attributes & CODEC_MASK:
            status = ERR_WRAPPER_NESTED
            break
        status = take_fields(&m)
        if status != OK:
            break
        if not b.every and is_misplaced(row, m.offset, n > b.rows, next_offset):
            status = ERR_RECORD_OFFSET
            break
        if m.offset >= next_offset or b.every:
            if m.offset >= b.stop_offset and not b.every:
                b.ended = True
                break
            f.key, f.key_size, f.value, f.value_size = m.key, m.key_size, m.value, m.value_size
            f.headers = f.end = start
            more = chosen_bytes(b, &hand, &f)
            if n == b.room or (more > left and n > 0):
                b.full = True
                break
            status = put_bodies(b, &hand, n, &f)
            if status != OK:
                break
            left -= more
            if offsets != NULL:
                offsets[n] = m.offset
            if timestamps != NULL:
                timestamps[n] = m.timestamp if own_time or m.magic == 0 else row.max_timestamp
            if b.wants_type:
                put_type(b, n, n + 1, -1 if m.magic == 0 else 0 if own_time else 1)
            next_offset = added(m.offset, 1)
            n += 1
        done += 1
    lay_down(b, &hand)
    b.bytes = b.most_bytes - left
    b.rows = n
    b.next_offset = next_offset
    place.at = start - batch
    place.done = done
    return OK if status == ERR_SHORT else status


cdef inline int fill_batch(Build* b, BatchRow* row, const uint8_t* batch, Place* place) noexcept nogil:
    """Puts the records of one batch into the columns, from `place` on; OK, or why it stopped."""
    if row.magic < 0 or row.magic > 2:
        return ERR_MAGIC
    if row.attributes & CODEC_MASK:
        return ERR_COMPRESSED
    if row.magic < 2:
        return fill_messages(b, row, batch, place)
    if row.size < V2_RECORDS_AT:
        return ERR_COUNT_HIGH
    if row.count < 0:
        return ERR_COUNT_NEGATIVE
    if place.done == 0:
        place.at = V2_RECORDS_AT
    return fill_records(b, row, batch, place)
