"""TextBuffer: text written by a compiled renderer, handed out without a copy."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free


FIRST_SIZE = 4096


@cython.final
cdef class TextBuffer:
    """Text of a renderer, growing until `clear`; a read-only buffer object over it (no copy).

    It can be neither cleared nor written to while a memoryview of it lives: that is a BufferError.
    """

    def __cinit__(self):
        if reserve(&self.out, FIRST_SIZE) != OK:
            raise MemoryError

    def __dealloc__(self):
        free(self.out.data)

    def __len__(self) -> int:
        return self.out.size

    def __repr__(self) -> str:
        return f"<TextBuffer of {self.out.size} bytes>"

    @cython.critical_section
    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.busy:
            raise BufferError("another thread is rendering into this text")
        PyBuffer_FillInfo(view, self, self.out.data, <Py_ssize_t>self.out.size, 1, flags)
        self.exports += 1

    @cython.critical_section
    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    @cython.critical_section
    def clear(self) -> None:
        """Forgets the text and keeps the memory for the next one."""
        self.check_free()
        self.out.size = 0

    @cython.critical_section
    def take(self) -> bytes:
        """The text as bytes, copied; the buffer is cleared."""
        self.check_free()
        text = PyBytes_FromStringAndSize(<const char*>self.out.data, <Py_ssize_t>self.out.size)
        self.clear()
        return text

    @cython.critical_section
    cdef int check_free(self) except -1:
        if self.busy:
            raise BufferError("another thread is rendering into this text")
        if self.exports > 0:
            raise BufferError("the text is still held by a memoryview: release it first")
        return 0

    @cython.critical_section
    cdef int begin(self) except -1:
        """Takes the text for writing without the GIL; `end` gives it back."""
        self.check_free()
        self.busy = True
        return 0

    @cython.critical_section
    cdef void end(self) noexcept:
        self.busy = False


def java_text(data: bytes) -> bytes:
    """The bytes as Java prints `new String(data, UTF_8)`: every malformed piece becomes U+FFFD (format.md 13, A4)."""
    cdef TextBuffer text = TextBuffer()
    cdef const uint8_t* source = data
    cdef size_t size = len(data)
    if reserve(&text.out, EXPANSION * <uint64_t>size) != OK:
        raise MemoryError
    text.out.size = put_java_text(text.out.data, source, size) - text.out.data
    return text.take()
