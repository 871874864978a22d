"""A batch that is ready to be appended: looked at, or built here, and held while it is in use."""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch.check cimport read_v2_row


@cython.final
@cython.freelist(8)
cdef class ReadyBatch:
    """One batch that was looked at, or built here, with its bytes, which nothing edits meanwhile: `data` is held."""

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)

    @property
    def data(self) -> object:
        """The object whose bytes the batch is."""
        return <object>self.view.obj if self.is_held else None

    @property
    def size(self) -> int:
        """Bytes of the batch."""
        return self.row.size


cdef ReadyBatch built_batch(bytearray data, int64_t oldest, int64_t newest, bint has_keys):
    """The batch in `data`, which has just been built.

    Its records have times (ms) from `oldest` to `newest`, or none; with `has_keys` each of them has a key.
    """
    cdef ReadyBatch batch = ReadyBatch.__new__(ReadyBatch)
    PyObject_GetBuffer(data, &batch.view, PyBUF_SIMPLE)
    batch.is_held = batch.is_built = True
    batch.oldest, batch.newest, batch.has_keys = oldest, newest, has_keys
    read_v2_row(<const uint8_t*>batch.view.buf, batch.view.len, False, &batch.row)
    batch.row.size, batch.row.position, batch.row.valid = batch.view.len, 0, 1
    return batch
