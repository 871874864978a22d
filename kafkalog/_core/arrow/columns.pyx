"""Columns: finished pieces one after the other, and their values as Python sees them."""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from kafkalog._core.arrow.memory cimport Memory, drop_memory, hold_memory, new_memory
from kafkalog._core.arrow.pieces cimport (
    FIRST_FIXED, HEADER_KEY_OFFSETS, HEADER_LISTS, HEADER_VALUE_OFFSETS, KEY, KEY_OFFSETS, ROWS_VALID, SLOTS, TOPIC,
    TOPIC_OFFSETS, VALUE, VALUE_OFFSETS, Piece, drop_piece, fixed_slot, hold_piece, new_piece, width_of,
)
from kafkalog._core.bytes.buffers cimport Column, column

KIND_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@cython.final
cdef class Columns:
    """The columns `kinds` (bytes, places in KIND_NAMES) of some records; `len` is how many. Never changed once made.

    The records lie in pieces, `piece_ends` says where; each is a record batch of Arrow.
    """

    def __cinit__(self, bytes kinds not None):
        self.kinds = kinds

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            drop_piece(self.pieces[i])
        free(self.pieces)
        free(self.starts)

    cdef int adopt(self, Piece* piece) except -1:
        """Takes over a piece behind those that are there; MemoryError drops it. Only while the columns are made."""
        cdef Piece** pieces = <Piece**>realloc(self.pieces, (self.count + 1) * sizeof(Piece*))
        cdef int64_t* starts
        if pieces != NULL:
            self.pieces = pieces
            starts = <int64_t*>realloc(self.starts, (self.count + 2) * sizeof(int64_t))
            if starts != NULL:
                self.starts = starts
                if self.count == 0:
                    starts[0] = 0
                pieces[self.count] = piece
                starts[self.count + 1] = starts[self.count] + piece.rows
                self.count += 1
                return 0
        drop_piece(piece)
        raise MemoryError("no memory for the columns")

    @cython.critical_section
    cdef Piece* hold(self, Py_ssize_t i) noexcept:
        """Return piece `i`, which is there, for `drop_piece` later: `fixed` may put another in its place."""
        return hold_piece(self.pieces[i])

    cdef Py_ssize_t piece_of(self, int64_t row) noexcept nogil:
        """The piece that holds a row that is there."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while high - low > 1:
            middle = (low + high) >> 1
            if self.starts[middle] <= row:
                low = middle
            else:
                high = middle
        return low

    def __len__(self) -> int:
        return self.starts[self.count] if self.count else 0

    @property
    def piece_ends(self) -> tuple:
        """The row after the last one of each piece."""
        return tuple([self.starts[i + 1] for i in range(self.count)])

    @property
    @cython.critical_section
    def absent(self) -> int:
        """Rows that are null as a whole; the values of `fixed` are -1 there, those of `values` None."""
        cdef Py_ssize_t i
        cdef int64_t absent = 0
        for i in range(self.count):
            absent += self.pieces[i].absent
        return absent

    @property
    @cython.critical_section
    def nbytes(self) -> int:
        """Bytes of memory behind the columns; what pieces share is counted once."""
        cdef Py_ssize_t i
        cdef int slot
        cdef dict seen = {}
        for i in range(self.count):
            for slot in range(SLOTS):
                if self.pieces[i].slots[slot] != NULL:
                    seen[<size_t>self.pieces[i].slots[slot]] = self.pieces[i].slots[slot].capacity
        return sum(seen.values())

    def piece(self, Py_ssize_t i) -> Columns:
        """Return piece `i` as separate columns; nothing is copied."""
        cdef Columns out = Columns.__new__(Columns, self.kinds)
        if not 0 <= i < self.count:
            raise IndexError(f"piece {i} of {self.count}")
        out.adopt(self.hold(i))
        return out

    def chosen(self, bytes kinds not None) -> Columns:
        """Return the records with only some of the columns; nothing is copied."""
        cdef Columns out = Columns.__new__(Columns, kinds)
        cdef Py_ssize_t i
        if len(set(kinds)) != len(kinds) or not set(kinds) <= set(self.kinds):
            raise ValueError(f"{kinds!r} are not columns of these, each once")
        for i in range(self.count):
            out.adopt(self.hold(i))
        return out

    @cython.critical_section
    def fixed(self, int kind) -> Column:
        """A column with one value a row as a contiguous read-only buffer of int64 or int32; ValueError for another kind.

        The first call makes these columns contiguous where there are several pieces, which share them from then on.
        """
        cdef int slot = fixed_slot(kind)
        if slot < 0 or kind not in self.kinds:
            raise ValueError(f"column {kind} has not one value a row")
        if self.count == 0:
            return column(self, NULL, 0, width_of(slot), c"q" if width_of(slot) == 8 else c"i")
        if not self.joined:
            if self.count > 1:
                join_fixed(self)
            self.joined = True
        return column(
            self, self.pieces[0].slots[slot].data + self.pieces[0].first * width_of(slot), self.starts[self.count],
            width_of(slot), c"q" if width_of(slot) == 8 else c"i",
        )

    @cython.critical_section
    def values(self, int kind, int64_t start, int64_t stop) -> list:
        """The values of rows `start` up to `stop` as Python objects: bytes or None, text, numbers, headers as in Record."""
        cdef Py_ssize_t at
        cdef Py_ssize_t n = 0
        cdef Piece* piece
        cdef int64_t row
        cdef list out
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"rows {start} to {stop} of {len(self)}")
        if kind not in self.kinds:
            raise ValueError(f"column {kind} is not here")
        out = [None] * (stop - start)
        if start == stop:
            return out
        topic = None
        at = self.piece_of(start)
        piece = self.pieces[at]
        for row in range(start, stop):
            while row >= self.starts[at + 1]:
                at += 1
                piece = self.pieces[at]
            if not is_there(piece, row - self.starts[at]):
                pass
            elif kind == TOPIC:
                if topic is None:
                    topic = text_at(piece, TOPIC_OFFSETS, row - self.starts[at])
                out[n] = topic
            else:
                out[n] = value_at(piece, kind, row - self.starts[at])
            n += 1
        return out

    def __repr__(self):
        names = ", ".join([KIND_NAMES[kind] for kind in self.kinds])
        return f"<Columns {names} of {len(self)} records>"


cdef inline bint is_there(Piece* piece, int64_t row) noexcept:
    """False for a row that is null as a whole."""
    cdef Memory* valid = piece.slots[ROWS_VALID]
    return valid == NULL or (valid.data[row >> 3] >> (row & 7)) & 1


cdef object bytes_at(Piece* piece, int slot, int64_t row):
    """Bytes or None of a column whose ends, data and validity are the slots from `slot` on."""
    cdef int32_t* ends = <int32_t*>piece.slots[slot].data
    cdef Memory* valid = piece.slots[slot + 2]
    if valid != NULL and not (valid.data[row >> 3] >> (row & 7)) & 1:
        return None
    return PyBytes_FromStringAndSize(<char*>piece.slots[slot + 1].data + ends[row], ends[row + 1] - ends[row])


cdef object text_at(Piece* piece, int slot, int64_t row):
    cdef int32_t* ends = <int32_t*>piece.slots[slot].data
    return PyUnicode_DecodeUTF8(<char*>piece.slots[slot + 1].data + ends[row], ends[row + 1] - ends[row], NULL)


cdef object value_at(Piece* piece, int kind, int64_t row):
    cdef int32_t* lists
    cdef int64_t i
    cdef int slot = fixed_slot(kind)
    if slot >= 0:
        if width_of(slot) == 8:
            return (<int64_t*>piece.slots[slot].data)[piece.first + row]
        return (<int32_t*>piece.slots[slot].data)[piece.first + row]
    if kind == KEY:
        return bytes_at(piece, KEY_OFFSETS, row)
    if kind == VALUE:
        return bytes_at(piece, VALUE_OFFSETS, row)
    lists = <int32_t*>piece.slots[HEADER_LISTS].data
    return tuple([
        (text_at(piece, HEADER_KEY_OFFSETS, i), bytes_at(piece, HEADER_VALUE_OFFSETS, i))
        for i in range(lists[row], lists[row + 1])
    ])


cdef int join_fixed(Columns out) except -1:
    """Copies the columns with one value a row into one memory each, which all pieces then share.

    Pieces that somebody else holds stay as they are: `out` gets others in their places. No other thread may look at its
    pieces meanwhile.
    """
    cdef int slot
    cdef int64_t at
    cdef Py_ssize_t i
    cdef Memory* whole[SLOTS]
    cdef Piece* piece
    cdef Py_ssize_t made = 0
    cdef Piece** pieces = <Piece**>calloc(out.count, sizeof(Piece*))
    memset(whole, 0, sizeof(whole))
    try:
        if pieces == NULL:
            raise MemoryError("no memory for the columns")
        for slot in range(FIRST_FIXED, SLOTS):
            if out.pieces[0].slots[slot] != NULL:
                whole[slot] = new_memory(out.starts[out.count] * width_of(slot))
                if whole[slot] == NULL:
                    raise MemoryError("no memory for the columns")
        for i in range(out.count):
            pieces[i] = copied(out.pieces[i])
            made += 1
        for i in range(out.count):
            piece = pieces[i]
            for slot in range(FIRST_FIXED, SLOTS):
                if whole[slot] != NULL:
                    at = out.starts[i] * width_of(slot)
                    memcpy(
                        whole[slot].data + at, piece.slots[slot].data + piece.first * width_of(slot),
                        <size_t>(piece.rows * width_of(slot)),
                    )
                    drop_memory(piece.slots[slot])
                    piece.slots[slot] = hold_memory(whole[slot])
            piece.first = out.starts[i]
            out.pieces[i], pieces[i] = piece, out.pieces[i]
    finally:
        for slot in range(SLOTS):
            drop_memory(whole[slot])
        for i in range(made):
            drop_piece(pieces[i])
        free(pieces)
    return 0


cdef Piece* copied(Piece* piece) except NULL:
    """Return another piece with the same memories."""
    cdef Piece* out = new_piece()
    cdef int slot
    if out == NULL:
        raise MemoryError("no memory for the columns")
    # all but its first field, the references, which other threads count meanwhile
    memcpy(<char*>out + sizeof(int64_t), <const char*>piece + sizeof(int64_t), sizeof(Piece) - sizeof(int64_t))
    for slot in range(SLOTS):
        hold_memory(out.slots[slot])
    return out


def gathered(parts, bytes kinds not None) -> Columns:
    """The records of several Columns of `kinds`, in order; nothing is copied."""
    cdef Columns out = Columns.__new__(Columns, kinds)
    cdef Columns part
    cdef Py_ssize_t i
    for part in parts:
        if part.kinds != kinds:
            raise ValueError(f"{part!r} has not the columns {kinds!r}")
        for i in range(part.count):
            out.adopt(part.hold(i))
    return out
