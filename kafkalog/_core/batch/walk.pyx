"""The walk over the batches of one file, chunk by chunk, in one pass over each byte, without the GIL.

What is to be made of a batch says the class that derives from it: recovery, or a check.
"""
cimport cython
from posix.types cimport off_t

from kafkalog._core.batch.check cimport STOP_SIZE, peek_batch, read_row
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.crc cimport kl_crc32, kl_crc32c

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pread(int fd, void* into, size_t size, off_t position)

cdef enum:
    STREAMED = 4096                 # batches above this are taken piece by piece, those below are read again
    LINE_BYTES = 64                 # of the processor's cache: why the buffer begins like the file says `scan_buffer`


cdef class BatchWalk:
    """The state of the walk over one file of `end` bytes; `check` takes the next chunk, until it says why it stops."""

    @cython.critical_section
    def check(self, buf, int64_t start, int64_t length) -> int:
        """Goes on with `buf[start:start + length]`, the file's bytes from `position` on; says why it came back.

        A chunk of 4 KiB, or one that reaches to `end`, always brings it further; a marker is looked into where a chunk
        has 64 KiB. After a fault the same chunk goes on behind the batch, `position` says where. ValueError for a chunk
        that the buffer does not hold, RuntimeError while another thread is here, MemoryError.
        """
        cdef Held held = hold(buf)
        cdef int status
        if start < 0 or length < 0 or length > held.size - start:
            raise ValueError(f"{length} bytes from {start} on of a buffer of {held.size}")
        self.refuse_a_second()
        self.busy = True
        with nogil:
            status = self.step(held.data + start, length)
        self.busy = False
        if status == WALK_MEMORY:
            raise MemoryError
        return status

    @cython.critical_section
    def check_file(self, int fd, room, int64_t most) -> tuple[int, int, int]:
        """Goes on in the open file for about `most` bytes, chunk by chunk; (why it came back, last chunk, its bytes).

        `room` is a buffer of a chunk and 64 bytes; the last chunk is at its position modulo 64 there. WALK_MORE with a
        chunk of -1 bytes where a read failed or was short: it was not looked at, and the next read says why. Errors are
        those of `check`; the file must stay open.
        """
        cdef Held held = hold(room)
        cdef int64_t stop = self.position + most
        cdef int64_t start = self.position
        cdef int64_t length = held.size - LINE_BYTES
        cdef int64_t size = -1
        cdef uint8_t* data
        cdef int status = WALK_MORE
        if held.view.readonly or length < STREAMED:
            raise ValueError(f"a buffer of {held.size} bytes, writable ones for a chunk and {LINE_BYTES} expected")
        self.refuse_a_second()
        self.busy = True
        with nogil:
            while status == WALK_MORE and self.position < stop:
                start = self.position
                size = min(length, self.end - start)
                data = <uint8_t*>held.data + start % LINE_BYTES
                if size <= 0 or pread(fd, data, <size_t>size, <off_t>start) != size:
                    size = -1
                    break
                status = self.step(data, size)
        self.busy = False
        if status == WALK_MEMORY:
            raise MemoryError
        return status, start, size

    @cython.critical_section
    cdef int refuse_a_second(self) except -1:
        """RuntimeError for a second thread: the first may be moving what is gathered."""
        if self.busy:
            raise RuntimeError("another thread uses this walk")
        return 0

    cdef int step(self, const uint8_t* data, int64_t length) noexcept nogil:
        cdef int64_t at = 0
        cdef int64_t size = 0
        cdef int magic = 0
        cdef int reason
        while True:
            if self.stream_left > 0:
                reason = self.finish_stream(data, length, &at)
                if reason != WALK_MORE or self.stream_left > 0:
                    return reason
            at += self.take_plain(data + at, length - at)
            reason = peek_batch(data + at, length - at, True, &size, &magic)
            if reason == STOP_SIZE:
                self.value = size
                return WALK_SIZE
            if reason == -1 and size <= length - at:
                read_row(data + at, size, magic, self.check_crc, &self.row)
                self.row.position = self.position
                self.position += size
                reason = self.judge(data + at)
                if reason != WALK_MORE:
                    return reason
                at += size
            elif reason == -1 and size > self.end - self.position:
                self.value = size
                return WALK_PARTIAL
            elif reason != -1 and self.position + (length - at) >= self.end:
                self.value = 0
                return WALK_END if self.position == self.end else WALK_PARTIAL
            elif reason != -1 or not self.begin_stream(data, length, size, magic, &at):
                return WALK_MORE

    cdef int64_t take_plain(self, const uint8_t* data, int64_t length) noexcept nogil:
        """Takes batches about which there is nothing to say, as `judge` would, and moves `position`; returns their bytes.

        Most batches of most files are such ones. The first other one is left where it is.
        """
        return 0

    cdef bint begin_stream(self, const uint8_t* data, int64_t length, int64_t size, int magic, int64_t* at) noexcept nogil:
        """True where the batch at `at`, which ends behind the chunk, is taken piece by piece from here on.

        Else its bytes are wanted again, all of them: for a small one that costs little, and a marker is looked into.
        """
        cdef const uint8_t* batch = data + at[0]
        cdef int64_t covered = V2_ATTRIBUTES_AT if magic >= 2 else MAGIC_AT
        if size <= STREAMED or length - at[0] < V2_RECORDS_AT:
            return False
        if magic >= 2 and load16(batch + V2_ATTRIBUTES_AT) & CONTROL_BIT and size <= MOST_MARKER_BYTES and at[0] > 0:
            return False
        read_row(batch, size, magic, False, &self.row)
        self.row.position = self.position
        self.stream_crc = 0
        self.stream_left = size - covered
        self.position += covered
        at[0] += covered
        return True

    cdef int finish_stream(self, const uint8_t* data, int64_t length, int64_t* at) noexcept nogil:
        """The next piece of the batch in `row`, and the verdict on it where that was the last."""
        cdef const uint8_t* piece = data + at[0]
        cdef int64_t size = min(self.stream_left, length - at[0])
        if self.check_crc and self.row.magic >= 2:
            self.stream_crc = kl_crc32c(self.stream_crc, piece, <size_t>size)
        elif self.check_crc:
            self.stream_crc = kl_crc32(self.stream_crc, piece, <size_t>size)
        self.stream_left -= size
        self.position += size
        at[0] += size
        if self.stream_left > 0:
            return WALK_MORE
        self.row.computed_crc = self.stream_crc
        self.row.valid = not self.check_crc or self.stream_crc == self.row.crc
        return self.judge(NULL)

    cdef int judge(self, const uint8_t* batch) noexcept nogil:
        """Takes the batch in `row`, over which `position` has moved already; `batch` is NULL for a streamed one.

        WALK_MORE where the walk goes on, or why it stops.
        """
        return WALK_MORE
