"""Fields that a Protobuf message may have, and the column of each."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum FieldKind:
    # the numbers are those of KINDS in protobuf_rows.pyx; the first of them are numbers and may be packed
    KIND_INT32 = 0
    KIND_INT64 = 1
    KIND_UINT32 = 2
    KIND_UINT64 = 3
    KIND_SINT32 = 4
    KIND_SINT64 = 5
    KIND_FIXED32 = 6            # sfixed32 and float too: four bytes as they are
    KIND_FIXED64 = 7
    KIND_BOOL = 8
    KIND_ENUM = 9
    KIND_TEXT = 10
    KIND_BYTES = 11
    KIND_MESSAGE = 12
    KIND_TIME = 13              # google.protobuf.Timestamp
    KIND_DURATION = 14
    KIND_WRAPPER = 15           # google.protobuf.Int64Value and the like: a message whose field 1 is the value
    KIND_CUT = 16               # a message within itself: its bytes, in several parts one after the other
    KIND_NOWHERE = 17           # a member of a oneof that no column has

cdef enum FieldLabel:
    LABEL_ONE = 0
    LABEL_MANY = 1
    LABEL_MAP = 2

cdef enum Absent:
    # what a field without a value is
    ABSENT_NULL = 0
    ABSENT_DEFAULT = 1          # the field's default
    ABSENT_ERROR = 2            # a required one
    ABSENT_EMPTY = 3            # a message without fields


cdef struct Message


cdef struct Word:
    int32_t number
    const uint8_t* text
    int64_t size


cdef struct Field:
    uint32_t number
    int kind
    int wire                    # of one value
    int label
    int absent
    int child                   # which of the struct's columns it is
    int oneof                   # fields with the same number from 1 on exclude each other
    bint is_group
    bint checked                # a string has to be UTF-8
    Message* message            # of KIND_MESSAGE, of a map its entry; of KIND_WRAPPER the one field
    const uint8_t* fallback     # the bytes of its default in the column
    int64_t fallback_size
    int unit                    # ns in a unit of the column of a time
    Word* words                 # of an enum, by number
    int word_count
    const char* path


cdef struct Message:
    Field* fields               # by number
    int count
    uint32_t dense              # places of `places`
    int32_t* places             # which field a small number is; -1: none
