"""Unpacker: the compressed records of a batch into a store, block by block; a codec's package is called for each.

The packages release the GIL while they work. What a block can hold is known, or bounded, before memory is taken.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from libc.string cimport memchr, memcmp

from kafkalog._core.batch.frames cimport (
    BLOCK_SLACK, FAULT_BLOCK_END, FAULT_CODEC, FAULT_GZIP_CUT, FAULT_LIMIT, FAULT_LZ4_BLOCK, FAULT_LZ4_BLOCK_CHECK,
    FAULT_LZ4_BLOCK_SIZE, FAULT_LZ4_DEPENDENT, FAULT_LZ4_HEADER, FAULT_LZ4_HEADER_CHECK, FAULT_LZ4_LARGE_BLOCK,
    FAULT_LZ4_MAGIC, FAULT_LZ4_NO_END, FAULT_LZ4_RESERVED, FAULT_LZ4_VERSION, FAULT_REPORTED, FAULT_SNAPPY_GROWTH,
    FAULT_SNAPPY_HEADER, FAULT_SNAPPY_LENGTH, FAULT_SNAPPY_SIZE, FAULT_SNAPPY_VERSION, FAULT_ZSTD_CUT,
    FAULT_ZSTD_DECLARED, FAULT_ZSTD_KIND, FAULT_ZSTD_MAGIC, FAULT_ZSTD_NONE, FAULT_ZSTD_REFUSED,
    FAULT_ZSTD_SKIPPABLE, LZ4_GROWTH, SNAPPY_GROWTH, Block4, Finding, Lz4Frame, ZstdFrame, found, found_value,
    is_xerial, little, lz4_block, lz4_header, snappy_length, xerial_block, zstd_frame,
)
from kafkalog._core.batch.layout cimport CODEC_MASK, OK, V2_RECORDS_AT
from kafkalog._core.batch.wrapper cimport settle, wrapper_payload
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.crc cimport kl_crc32
from kafkalog._core.bytes.store cimport MOST, Store

cdef enum:
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    FAST_GZIP = 5                   # no codec id: a second package for gzip
    WHOLE_GZIP = 6                  # nor this: a third one, for a member whose size is known
    GZIP_HEADER = 10                # bytes of a member without name, comment and extra field
    GZIP_TRAILER = 8                # CRC-32 and size of what it holds, little-endian
    DEFLATE_GROWTH = 1032           # no byte of a deflate stream stands for more
    SMALL_MEMBER = 4 << 10          # below it the setting up costs more than is won
    HEADROOM = 8 << 20              # the last block may need room above the limit before its size is known
    GZIP_BITS = 31                  # a gzip member with the largest window
    PIECE = 256 << 10               # a member is fed in pieces: the package copies what it does not use
    NEXT_PIECE = 16 << 10           # of members behind the first: there may be many, each leaving most of its piece

GZIP_FASTER = FAST_GZIP
GZIP_WHOLE = WHOLE_GZIP
FIRST_FAULT = FAULT_LIMIT
TOO_LARGE = FAULT_LIMIT

FAULT_TEXT = {
    FAULT_LIMIT: "decompressed, the records are larger than the limit of {limit} bytes",
    FAULT_CODEC: "unknown compression id {value}",
    FAULT_LZ4_MAGIC: "these are no lz4 frames: the frame magic is wrong",
    FAULT_LZ4_HEADER: "the frame header is cut off",
    FAULT_LZ4_VERSION: "the frame has version {value}, only 1 is known",
    FAULT_LZ4_RESERVED: "reserved bits of the frame header are set",
    FAULT_LZ4_DEPENDENT: "the blocks depend on each other, which Kafka does not allow",
    FAULT_LZ4_BLOCK_SIZE: "the frame header names block size {value}, 4 to 7 are known",
    FAULT_LZ4_HEADER_CHECK: "the frame header's checksum is wrong",
    FAULT_LZ4_NO_END: "the frame has no end mark",
    FAULT_LZ4_LARGE_BLOCK: "a block of {value} bytes in a frame whose blocks have at most {other}",
    FAULT_LZ4_BLOCK_CHECK: "a block does not match its checksum",
    FAULT_LZ4_BLOCK: "a block is damaged",
    FAULT_BLOCK_END: "a block runs past the end",
    FAULT_SNAPPY_HEADER: "a stream header is cut off or damaged",
    FAULT_SNAPPY_VERSION: "the stream has version {value}, at least 1 is needed",
    FAULT_SNAPPY_SIZE: "a block's length is negative or runs past the end",
    FAULT_SNAPPY_LENGTH: "a block's decompressed length is cut off or longer than 32 bits",
    FAULT_SNAPPY_GROWTH: "a block of {value} bytes declares {other}, more than it can hold",
    FAULT_ZSTD_NONE: "there is no frame",
    FAULT_ZSTD_CUT: "the frame is cut off",
    FAULT_ZSTD_MAGIC: "these are no zstd frames: the frame magic is wrong",
    FAULT_ZSTD_SKIPPABLE: "a skippable frame runs past the end",
    FAULT_ZSTD_KIND: "a block has the reserved kind",
    FAULT_ZSTD_DECLARED: "the frame declares {value} bytes, its blocks can hold {other}",
    FAULT_ZSTD_REFUSED: "{codec_error}",
    FAULT_GZIP_CUT: "the stream is cut off",
    FAULT_REPORTED: "{codec_error}",
}


@cython.final
cdef class Tool:
    """A package's function for one codec, and the error it raises for damage.

    It is `function(data, room[, last]) -> bytes filled`; where `gives`, `function(data, most) -> bytes`. That of gzip is
    `zlib.decompressobj` or one like it; that of GZIP_WHOLE gives what a bare deflate stream holds.
    """

    def __init__(self, function, error, *, gives=False, last=None):
        self.function = function
        self.error = error
        self.last = last
        self.gives = gives


@cython.final
cdef class Piece:
    """The bytes a package is to read, as a read-only buffer; one object serves for all blocks."""

    @cython.critical_section
    def __getbuffer__(self, Py_buffer* out, int flags):
        PyBuffer_FillInfo(out, self, <void*>self.data, self.size, 1, flags)
        self.exports += 1

    @cython.critical_section
    def __releasebuffer__(self, Py_buffer* out):
        self.exports -= 1


@cython.final
cdef class Unpacker:
    """Decompresses the contents of batches. One for each thread, since packages keep contexts for a thread.

    `find(codec)` gives the Tool of a codec id, asked for once each; also of GZIP_FASTER, a package that is faster than that
    of gzip but says less of damage, which the other one is then asked about, and of GZIP_WHOLE, one that needs to know
    the size. None stands for no such package. After a status other than 0, `position` (from the first compressed byte
    on), `text` and `codec` say what is wrong, and what was appended has no meaning.
    """

    def __init__(self, find):
        self.find = find
        self.tools = [None] * 7
        self.piece = Piece.__new__(Piece)

    @cython.critical_section
    def unpack(self, Store store not None, int codec, data, *, int magic=2, int64_t limit_bytes) -> int:
        """Appends what `data`, the records of a batch of format `magic`, decompresses to: 0, or why it cannot be.

        RuntimeError while this unpacker is at work already.
        """
        cdef Held held = hold(data)
        return self.run(store, codec, held, held.data, held.size, magic, limit_bytes)

    @property
    def position(self) -> int:
        """Position in the compressed bytes where the last call stopped."""
        return self.out.position

    def text(self, int status) -> str:
        """Return the meaning of a status of `unpack`."""
        return FAULT_TEXT[status].format(
            value=self.out.value, other=self.out.other, limit=self.limit, codec_error=self.codec_error
        )

    @cython.critical_section
    cdef int run(
        self, Store store, int codec, object owner, const uint8_t* start, Py_ssize_t size, int magic, int64_t limit
    ) except -1:
        """`unpack` for bytes that `owner` keeps alive."""
        if self.busy:
            raise RuntimeError("this unpacker is at work already: each thread needs one of its own")
        self.busy = True
        self.store = store
        self.owner = owner
        self.start = start
        self.size = size
        self.codec = codec
        self.codec_error = None
        self.limit = max(min(limit, <int64_t>(MOST - HEADROOM - store.size)), 0)
        self.most = store.size + <Py_ssize_t>self.limit
        try:
            return self.unpack_as(codec, magic)
        finally:
            if self.piece.exports:
                self.piece = Piece.__new__(Piece)   # the one that is kept keeps the owner of its bytes
            self.piece.owner = None
            self.store = None
            self.owner = None
            self.busy = False

    @cython.critical_section
    cdef int run_batch(
        self, Store store, object owner, const uint8_t* batch, const BatchRow* row, int64_t limit
    ) except -1:
        """Appends a whole batch as it would be without compression: header and records, or a wrapper's messages.

        A status of layout.pxd for a wrapper that is unsound. The header stays as it is.
        """
        cdef BatchRow inner = row[0]
        cdef Py_ssize_t before = store.size
        cdef const uint8_t* payload = batch + V2_RECORDS_AT
        cdef int64_t size = row.size - V2_RECORDS_AT
        cdef int status = OK
        if row.magic < 2:
            status = wrapper_payload(batch, row, &payload, &size)
        else:
            store.put(batch, V2_RECORDS_AT)
        if status == OK:
            self.payload_position = payload - batch
            status = self.run(store, row.attributes & CODEC_MASK, owner, payload, size, row.magic, limit)
        if status == OK and row.magic < 2:
            with nogil:
                status = settle(store.data + before, store.size - before, &inner)
        return status

    cdef int unpack_as(self, int codec, int magic) except -1:
        if codec == LZ4:
            return self.unpack_lz4(magic)
        if codec == SNAPPY:
            return self.unpack_snappy()
        if codec == ZSTD:
            return self.unpack_zstd()
        if codec == GZIP:
            return self.unpack_gzip()
        if codec != NONE:
            return found_value(&self.out, FAULT_CODEC, 0, codec, 0)
        self.store.put(self.start, self.size)
        return self.checked(0)

    cdef Tool tool(self, int codec):
        if self.tools[codec] is None:
            self.tools[codec] = self.find(codec) or Tool(None, ())
        return <Tool?>self.tools[codec]

    cdef Piece lend(self, Py_ssize_t at, Py_ssize_t size):
        """The bytes from `at` on for a package to read."""
        if self.piece.exports:
            self.piece = Piece.__new__(Piece)
        self.piece.owner = self.owner
        self.piece.data = self.start + at
        self.piece.size = size
        return self.piece

    cdef int expand(
        self, Tool tool, Py_ssize_t at, Py_ssize_t size, Py_ssize_t room, int fault, Py_ssize_t position
    ) except -1:
        """Appends what one block or frame becomes, at most `room` bytes; `fault` where the package refuses it."""
        try:
            if tool.gives:
                self.store.append(tool.function(self.lend(at, size), room))
            else:
                self.store.fill_block(tool.function, self.lend(at, size), room, tool.last)
        except tool.error as error:
            self.codec_error = str(error)
            return found(&self.out, fault, position)
        return OK

    cdef int checked(self, Py_ssize_t position) except -1:
        """OK while the store holds no more than it may."""
        return OK if self.store.size <= self.most else found(&self.out, FAULT_LIMIT, position)

    cdef int unpack_lz4(self, int magic) except -1:
        """One frame. As in the reference, the checksum of the content is not looked at, nor bytes behind the end mark."""
        cdef Tool tool = self.tool(LZ4)
        cdef Lz4Frame frame
        cdef Block4 block
        cdef Py_ssize_t start
        cdef int status = lz4_header(self.start, self.size, magic, &frame, &self.out)
        while status == OK:
            start = frame.at
            status = lz4_block(self.start, self.size, &frame, &block, &self.out)
            if status != OK or (block.size == 0 and not block.stored):
                break
            if block.stored:
                self.store.put(self.start + block.at, block.size)
            else:
                status = self.expand(
                    tool, block.at, block.size, min(<Py_ssize_t>frame.largest, LZ4_GROWTH * block.size + BLOCK_SLACK),
                    FAULT_LZ4_BLOCK, start,
                )
            if status == OK:
                status = self.checked(start)
        return status

    cdef int unpack_snappy(self) except -1:
        """Xerial's stream; without its magic the bytes are one bare block."""
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t size = 0
        cdef int status
        if not is_xerial(self.start, self.size):
            return self.unpack_snappy_block(0, self.size)
        while True:
            status = xerial_block(self.start, self.size, &at, &size, &self.out)
            if status != OK or size < 0:
                return status
            status = self.unpack_snappy_block(at, size)
            if status != OK:
                return status
            at += size

    cdef int unpack_snappy_block(self, Py_ssize_t at, Py_ssize_t size) except -1:
        cdef int64_t length = snappy_length(self.start + at, size)
        if length < 0:
            return found(&self.out, FAULT_SNAPPY_LENGTH, at)
        if length > self.most - self.store.size:
            return found(&self.out, FAULT_LIMIT, at)
        if length > <int64_t>SNAPPY_GROWTH * size + BLOCK_SLACK:
            return found_value(&self.out, FAULT_SNAPPY_GROWTH, at, size, length)
        return self.expand(self.tool(SNAPPY), at, size, <Py_ssize_t>length, FAULT_REPORTED, at)

    cdef int unpack_zstd(self) except -1:
        """All frames. One that may pass the limit gets room for the limit and one byte more, to be sure."""
        cdef Tool tool = self.tool(ZSTD)
        cdef ZstdFrame frame
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t room
        cdef int status
        if self.size == 0:
            return found(&self.out, FAULT_ZSTD_NONE, 0)
        while at < self.size:
            status = zstd_frame(self.start, self.size, at, &frame, &self.out)
            if status != OK:
                return status
            if frame.bound >= 0:
                room = self.most - self.store.size
                if frame.exact and frame.bound > room:
                    return found(&self.out, FAULT_LIMIT, at)
                status = self.expand(
                    tool, at, frame.end - at, <Py_ssize_t>min(frame.bound, <int64_t>room + 1), FAULT_ZSTD_REFUSED, at
                )
                if status != OK and frame.bound > room and lacks_room(self.codec_error):
                    return found(&self.out, FAULT_LIMIT, at)
                if status == OK:
                    status = self.checked(at)
                if status != OK:
                    return status
            at = frame.end
        return OK

    cdef int unpack_gzip(self) except -1:
        """One member or more; bytes that begin no member end it, as in the reference."""
        cdef Tool plain = self.tool(GZIP)
        cdef Tool fast = self.tool(FAST_GZIP)
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t before
        cdef Py_ssize_t piece = PIECE
        cdef int status
        if self.unpack_whole():
            return OK
        while True:
            before = self.store.size
            if fast.function is None or self.size - at < 4 or memcmp(self.start + at, b"\x1f\x8b\x08\x00", 4) != 0:
                status = self.unpack_member(plain, &at, piece)
            else:
                status = self.unpack_member(fast, &at, piece)
                if status != OK:
                    self.store.cut(before)
                    status = self.unpack_member(plain, &at, piece)
            if status != OK:
                return status
            if self.size - at < 2 or memcmp(self.start + at, b"\x1f\x8b", 2) != 0:
                return OK
            piece = NEXT_PIECE

    cdef bint unpack_whole(self) except -1:
        """True where all there is is one member, sound and as large as its last bytes say, which is then appended.

        False, with nothing appended, for anything else: the packages that read member by member say what it is. This
        one does not say where a stream ends, so there must be nothing that could begin another member.
        """
        cdef Tool whole = self.tool(WHOLE_GZIP)
        cdef const uint8_t* trailer = self.start + self.size - GZIP_TRAILER
        cdef Py_ssize_t before = self.store.size
        cdef Py_ssize_t inner = self.size - GZIP_HEADER - GZIP_TRAILER
        cdef int64_t n
        if whole.function is None or inner <= 0 or memcmp(self.start, b"\x1f\x8b\x08\x00", 4) != 0:
            return False
        n = <int64_t>little(trailer + 4, 4)
        if n < SMALL_MEMBER or n > self.most - before or n // DEFLATE_GROWTH > inner:
            return False
        if has_magic(self.start + GZIP_HEADER, inner):
            return False
        try:
            self.store.append(whole.function(self.lend(GZIP_HEADER, inner), n))
        except whole.error:
            return False
        if (
            self.store.size - before != n
            or kl_crc32(0, self.store.data + before, <size_t>n) != little(trailer, 4)
        ):
            self.store.cut(before)
            return False
        return True

    cdef int unpack_member(self, Tool tool, Py_ssize_t* at, Py_ssize_t piece) except -1:
        """Appends one member and moves behind it; `at` stays where the status is not 0."""
        cdef Py_ssize_t next = at[0]
        cdef Py_ssize_t taken
        inflater = tool.function(GZIP_BITS)
        while not inflater.eof:
            if next == self.size:
                return found(&self.out, FAULT_GZIP_CUT, next)
            taken = min(piece, self.size - next)
            try:
                self.store.append(inflater.decompress(self.lend(next, taken), self.most - self.store.size + 1))
            except tool.error as error:
                self.codec_error = str(error)
                return found(&self.out, FAULT_REPORTED, at[0])
            next += taken
            if self.store.size > self.most:
                return found(&self.out, FAULT_LIMIT, at[0])
        at[0] = next - <Py_ssize_t>len(inflater.unused_data)
        return OK


cdef bint has_magic(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """True where a member of gzip may begin in these bytes."""
    cdef const uint8_t* end = p + n
    while True:
        p = <const uint8_t*>memchr(p, 0x1F, <size_t>(end - p))
        if p == NULL or end - p < 3:
            return False
        if p[1] == 0x8B and p[2] == 0x08:
            return True
        p += 1


cdef bint lacks_room(str codec_error):
    """True for what the packages of zstd say where a frame did not fit."""
    return "whole buffer" in codec_error or "full frame" in codec_error


def zstd_frame_at(data, Py_ssize_t start) -> tuple[int, int, bool] | None:
    """(byte behind it, the most that it can hold or -1, whether it says so itself) of the zstd frame at `start`.

    None where it is cut off or its headers are unsound.
    """
    cdef Held held = hold(data)
    cdef ZstdFrame frame
    cdef Finding out
    if start < 0 or start > held.size or zstd_frame(held.data, held.size, start, &frame, &out) != OK:
        return None
    return frame.end, frame.bound, frame.exact
