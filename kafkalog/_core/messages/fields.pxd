"""The fields of a message of Kafka's protocol, as the compiled reader and writer keep them."""
from libc.stdint cimport uint32_t


cdef enum Kind:
    BOOL = 0
    I8
    I16
    U16
    U32
    I32
    I64
    F64
    TIME                            # an i64 of ms of which none is below 0: null is -1
    UUID                            # those above have a size of their own
    TEXT
    BYTES
    STRUCT

cdef enum:
    UUID_BYTES = 16
    MOST_TEXT_BYTES = 0x7FFF


cdef struct Field:
    int kind
    int least                       # bytes of a value at the least, never 0
    bint is_array
    bint is_nullable                # the array, or the value where there is none; a tag says null by its absence
    bint has_tag
    uint32_t tag


cdef inline int size_of(int kind) noexcept nogil:
    """The bytes of a number."""
    if kind == I32 or kind == U32:
        return 4
    if kind == BOOL or kind == I8:
        return 1
    return 2 if kind == I16 or kind == U16 else 8


cdef inline int kind_of(str name) except -1:
    """The kind of that name."""
    if name == "bool":
        return BOOL
    if name == "i8":
        return I8
    if name == "i16":
        return I16
    if name == "u16":
        return U16
    if name == "u32":
        return U32
    if name == "i32":
        return I32
    if name == "i64":
        return I64
    if name == "f64":
        return F64
    if name == "time":
        return TIME
    if name == "uuid":
        return UUID
    if name == "string":
        return TEXT
    if name == "bytes":
        return BYTES
    if name == "struct":
        return STRUCT
    raise ValueError(f"a field cannot be a {name}")


cdef inline int describe(Field* f, row, bint is_flexible, int least_of_struct) except -1:
    """Fills a field from its row: name, kind, whether it is an array, whether it may be null, its tag or None, ..."""
    f.kind = kind_of(row[1])
    f.is_array, f.is_nullable, f.has_tag = row[2], row[3], row[4] is not None
    f.tag = row[4] if f.has_tag else 0
    if f.kind == STRUCT:
        f.least = least_of_struct
    elif f.kind <= TIME:
        f.least = size_of(f.kind)
    elif f.kind == UUID:
        f.least = UUID_BYTES
    else:
        f.least = 1 if is_flexible else 2 if f.kind == TEXT else 4
    return 0


cdef inline list in_order(rows):
    """The rows with those that have tags behind the others, in the order of their tags."""
    tagged = sorted([(row[4], row) for row in rows if row[4] is not None])
    return [row for row in rows if row[4] is None] + [row for _, row in tagged]
