"""Programs that put Avro data into columns: what a writer's schema says is read, for the columns of a reader's schema."""
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum OpCode:
    # what a step reads and where it puts it; the numbers are those of OPS in avro_program.pyx
    OP_NULL = 0                 # reads nothing, puts a null
    OP_BOOL = 1
    OP_INT = 2
    OP_LONG = 3
    OP_INT_TO_LONG = 4
    OP_INT_TO_FLOAT = 5
    OP_INT_TO_DOUBLE = 6
    OP_LONG_TO_FLOAT = 7
    OP_LONG_TO_DOUBLE = 8
    OP_FLOAT = 9
    OP_FLOAT_TO_DOUBLE = 10
    OP_DOUBLE = 11
    OP_BYTES = 12
    OP_TEXT = 13
    OP_FIXED = 14               # `size` bytes
    OP_NUMBERED_ENUM = 15       # the word's number, by `table`
    OP_ENUM = 16                # the word itself
    OP_DECIMAL = 17             # of bytes; `size` is the precision
    OP_FIXED_DECIMAL = 18       # the precision is in `extra`
    OP_FIXED_UUID = 19          # 16 bytes, put as text
    OP_TIME_MS = 20
    OP_TIME_US = 21
    OP_ARRAY = 22               # `extra` is the least size of an item
    OP_MAP = 23
    OP_RECORD = 24              # its parts in order, then the end of the struct
    OP_UNION = 25               # a branch number, then that part
    OP_BRANCH = 26              # a struct of which only child `size` has a value
    OP_DEFAULT = 27             # its part, which reads `data` instead
    OP_FAIL = 28                # what there is has no place in the columns; `data` says why
    OP_SKIP_BOOL = 29
    OP_SKIP_NUMBER = 30
    OP_SKIP_SIZE = 31           # `size` bytes
    OP_SKIP_BYTES = 32
    OP_SKIP_ARRAY = 33
    OP_SKIP_MAP = 34
    OP_SKIP_RECORD = 35
    OP_SKIP_NOTHING = 36
    OP_CODES = 37


cdef struct Op:
    int code
    int node                    # the number of the node it puts into; -1: its field is checked, and has no column
    int part_count
    int table_size
    int64_t size
    int64_t extra
    Op** parts
    int32_t* table              # of an enum: the reader's number of each of the writer's words; -1: none
    const uint8_t* data
    int64_t data_size
    const char** words          # of OP_ENUM: the reader's words
    int64_t* word_sizes
    const char* path            # of the field, for texts


cdef class AvroProgram:
    cdef Op* ops                # the first is where a value begins
    cdef int count
    cdef int word_count
    cdef list kept              # the bytes that ops point to

    cdef int _fill(self, Op* op, tuple given, tuple words) except -1


cdef class AvroPrograms:
    cdef int count
    cdef int64_t* ids
    cdef Op** starts            # NULL: this id fails, with its text
    cdef const char** texts
    cdef list kept
