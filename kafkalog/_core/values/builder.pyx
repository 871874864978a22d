"""The columns of one batch of values, and their way into Arrow: each node owns what it shows, and releases it alone."""
cimport cython
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen

from kafkalog._core.arrow.abi cimport ARROW_FLAG_NULLABLE, ArrowArray, ArrowSchema
from kafkalog._core.arrow.free cimport free_array, free_schema
from kafkalog._core.arrow.memory cimport Memory, drop_memory, grow_memory, hold_memory, new_memory
from kafkalog._core.values.nodes cimport (
    BOOL_NODE, BYTES_NODE, FIXED_NODE, LIST_NODE, MOST_END, NONE_NODE, PUT_MEMORY, PUT_OK, STRUCT_NODE, Node, end_list,
    end_struct, put_bool, put_bytes, put_fixed, put_null,
)

cdef extern from *:
    int popcount "__builtin_popcount"(unsigned int x) noexcept nogil

MOST_DEPTH = 64
MOST_NODES = 1 << 16

cdef dict WIDTHS = {
    "c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "l": 8, "L": 8, "f": 4, "g": 8, "tdD": 4, "tts": 4, "ttm": 4,
    "ttu": 8, "ttn": 8, "tDs": 8, "tDm": 8, "tDu": 8, "tDn": 8,
}


cdef tuple storage_of(str format, tuple children, tuple words):
    """(storage, width) of an Arrow format; ValueError for one that no node has, or with the wrong children."""
    if words and format != "i":
        raise ValueError(f"the numbers of a dictionary are i, not {format!r}")
    if format == "+s" or format == "+l" or format == "+m":
        if format == "+l" and len(children) != 1:
            raise ValueError("a list has one child")
        if format == "+m" and (len(children) != 1 or children[0][1] != "+s" or len(children[0][3]) != 2):
            raise ValueError("a map has one child, a struct of key and value")
        return (STRUCT_NODE if format == "+s" else LIST_NODE), 0
    if children:
        raise ValueError(f"{format!r} has no children")
    if format == "n":
        return NONE_NODE, 0
    if format == "b":
        return BOOL_NODE, 1
    if format == "z" or format == "u":
        return BYTES_NODE, 0
    if format in WIDTHS:
        return FIXED_NODE, WIDTHS[format]
    if format[:3] in ("tsm", "tsu", "tsn", "tss") and format[3:4] == ":":
        return FIXED_NODE, 8
    if format[:2] == "w:" and format[2:].isdecimal() and int(format[2:]) <= 1 << 20:
        return FIXED_NODE, int(format[2:])
    if format[:2] == "d:":
        return FIXED_NODE, 16
    raise ValueError(f"{format!r} is no format of a node")


cdef tuple shown_field(tuple field):
    """(the field as a column, whether it is hidden)."""
    if field[1][:1] != "-":
        return field, False
    return (field[0], field[1][1:], *field[2:]), True


cdef int count_nodes(tuple field, int depth) except -1:
    cdef int total = 1
    if depth > MOST_DEPTH:
        raise ValueError(f"the columns are nested more than {MOST_DEPTH} levels deep")
    for child in field[3]:
        total += count_nodes(child, depth + 1)
        if total > MOST_NODES:
            raise ValueError(f"there are more than {MOST_NODES} columns")
    return total


@cython.final
cdef class Builder:
    """Columns of one batch of values, `fields` the tree as builder.pxd says; at most `most_bytes` of memory.

    ValueError for a tree with other formats than those, deeper than 64 levels, or of more than 65,536 nodes.
    """

    def __cinit__(self, tuple fields not None, int64_t most_bytes=1 << 30):
        cdef int i = 0
        self.limits.most = most_bytes
        self.fields = fields
        self.kept = []
        memset(&self.texts, 0, sizeof(Node))
        self.node_count = count_nodes(fields, 1)
        self.nodes = <Node*>calloc(self.node_count, sizeof(Node))
        if self.nodes == NULL:
            raise MemoryError
        self._plant(&i, fields, False)
        self.texts.storage = BYTES_NODE
        self.texts.limits = &self.limits
        self.texts.format = b"u"
        self.texts.name = b""
        self.texts.nullable = True

    cdef int _plant(self, int* at, tuple field, bint hidden) except -1:
        """Makes the next node of a field, then those of its children."""
        cdef Node* node = &self.nodes[at[0]]
        cdef int i
        cdef int status
        name, format, nullable, children, words = field
        node.number = at[0]
        at[0] += 1
        node.hidden = hidden
        node.storage, node.width = storage_of(format, children, words)
        node.limits = &self.limits
        node.nullable = nullable
        node.name = self._keep(name)
        node.format = self._keep(format)
        if words and not hidden:
            node.dictionary = <Node*>calloc(1, sizeof(Node))
            if node.dictionary == NULL:
                raise MemoryError
            node.dictionary.storage = BYTES_NODE
            node.dictionary.limits = &self.limits
            node.dictionary.format = b"u"
            node.dictionary.name = b""
            for word in words:
                text = word.encode()
                status = put_bytes(node.dictionary, text, len(text))
                if status == PUT_MEMORY:
                    raise MemoryError
                if status != PUT_OK:
                    raise ValueError("the words of a dictionary take more memory than the limit")
        if children:
            node.children = <Node**>calloc(len(children), sizeof(Node*))
            if node.children == NULL:
                raise MemoryError
            for i in range(<int>len(children)):
                node.children[i] = &self.nodes[at[0]]
                child, hides = shown_field(children[i])
                if hides:
                    node.hidden_count += 1
                elif node.hidden_count:
                    raise ValueError("a column stands behind a hidden one")
                else:
                    node.child_count += 1
                self._plant(at, child, hidden or hides)
            if node.hidden_count and node.storage != STRUCT_NODE:
                raise ValueError("the children of a list are not hidden alone")
        return 0

    cdef const char* _keep(self, str text) except NULL:
        cdef bytes kept = text.encode("utf-8", "surrogatepass")
        if b"\x00" in kept:
            raise ValueError(f"{text!r} has a zero byte")
        self.kept.append(kept)
        return <const char*>kept

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.nodes != NULL:
            for i in range(self.node_count):
                drop_buffers(&self.nodes[i])
                if self.nodes[i].dictionary != NULL:
                    drop_buffers(self.nodes[i].dictionary)
                    free(self.nodes[i].dictionary)
                free(self.nodes[i].children)
            free(self.nodes)
        drop_buffers(&self.texts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the columns take."""
        return self.limits.used

    @cython.critical_section
    def values(self):
        """The rows as an object with `__arrow_c_array__`; once for a builder."""
        if self.taken:
            raise ValueError("the values were taken already")
        self.taken = True
        return self._take(self.nodes)

    @cython.critical_section
    def errors(self):
        """The texts of rows that failed, null for the others, like `values`; None where no row failed."""
        if not self.failed:
            return None
        while self.texts.count < self.rows:
            if put_null(&self.texts) != PUT_OK:
                raise MemoryError
        return self._take(&self.texts)

    cdef object _take(self, Node* node):
        cdef ArrowSchema* schema
        cdef ArrowArray* array
        cdef bint made
        schema = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
        if schema == NULL:
            raise MemoryError
        schema_capsule = PyCapsule_New(schema, "arrow_schema", free_schema)
        array = <ArrowArray*>calloc(1, sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError
        array_capsule = PyCapsule_New(array, "arrow_array", free_array)
        with nogil:
            made = make_schema(schema, node) and make_array(array, node)
        if not made:
            raise MemoryError
        return ArrowValues(schema_capsule, array_capsule)

    # For tests and tools: the puts, from Python

    @cython.critical_section
    def put(self, value, int number=0):
        """Put a Python value into a node; returns the status. It is what the tests of this class fill it with."""
        if not 0 <= number < self.node_count or self.taken:
            raise IndexError(f"node {number} of {0 if self.taken else self.node_count}")
        return put_object(&self.nodes[number], value)

    @cython.critical_section
    def done(self):
        """The row that was put is whole."""
        row_done(self)

    @cython.critical_section
    def fail(self, str text not None, int status=16):
        """The row that was put fails with this text; False where no further row can be taken."""
        cdef bytes data = text.encode()
        return row_failed(self, status, data)


@cython.final
cdef class ArrowValues:
    """Arrow data made by a Builder: what `pyarrow.array(…)` takes, once."""
    cdef object schema
    cdef object array

    def __cinit__(self, schema, array):
        self.schema = schema
        self.array = array

    def __arrow_c_schema__(self):
        return self.schema

    def __arrow_c_array__(self, requested_schema=None):
        return self.schema, self.array


cdef int put_object(Node* n, object value) except -1:
    """Put a Python value as the node's storage takes it: for tests."""
    cdef int i
    cdef int status
    cdef bytes data
    if value is None:
        return put_null(n)
    if n.storage == STRUCT_NODE:
        for i in range(n.child_count):
            status = put_object(n.children[i], value[i])
            if status != PUT_OK:
                return status
        return end_struct(n)
    if n.storage == LIST_NODE:
        for item in value:
            status = put_object(n.children[0], item)
            if status != PUT_OK:
                return status
        return end_list(n)
    if n.storage == BOOL_NODE:
        return put_bool(n, value)
    data = value
    if n.storage == FIXED_NODE:
        if len(data) != n.width:
            raise ValueError(f"{len(data)} bytes for a width of {n.width}")
        return put_fixed(n, <const uint8_t*>data)
    return put_bytes(n, data, len(data))


cdef void drop_buffers(Node* n) noexcept nogil:
    drop_memory(n.values_memory)
    drop_memory(n.ends_memory)
    drop_memory(n.valid_memory)


cdef int64_t kept_bytes_of(Node* n) noexcept nogil:
    """Bytes of the buffers that the values there are need."""
    cdef int64_t total = (n.count + 7) >> 3 if n.valid != NULL else 0
    if n.hidden:
        return 0
    if n.storage == FIXED_NODE or n.storage == BOOL_NODE:
        total += n.width * n.count
    elif n.storage == BYTES_NODE or n.storage == LIST_NODE:
        total += n.used + 4 * (n.count + 1)
    return total


cdef bint shrink_memory(Node* n, Memory** memory, int64_t kept) noexcept nogil:
    cdef Memory* less
    if memory[0] == NULL or memory[0].capacity <= 2 * kept + 4096:
        return True
    n.limits.used -= memory[0].capacity
    less = grow_memory(memory[0], kept, kept)
    if less != NULL:
        memory[0] = less
    n.limits.used += memory[0].capacity
    return less != NULL


cdef bint shrink(Builder b) noexcept nogil:
    """Free the room made by a row that exceeded the limit; False if the rows before it fill the limit."""
    cdef Py_ssize_t i
    cdef int64_t total = 0
    cdef Node* n
    cdef int64_t most = 0
    cdef bint done
    for i in range(b.node_count):
        n = &b.nodes[i]
        total += kept_bytes_of(n)
        most = max(most, max(n.used, n.count))
    if total > b.limits.most // 4 or most > 0x40000000:
        return False
    for i in range(b.node_count):
        n = &b.nodes[i]
        done = (
            shrink_memory(n, &n.valid_memory, (n.count + 7) >> 3)
            and shrink_memory(n, &n.ends_memory, 4 * (n.count + 1))
            and shrink_memory(n, &n.values_memory, n.used if n.storage == BYTES_NODE else n.width * n.count)
        )
        if n.valid_memory != NULL:
            n.valid = n.valid_memory.data
        if n.ends_memory != NULL:
            n.ends = <int32_t*>n.ends_memory.data
        if n.values_memory != NULL:
            n.values = n.values_memory.data
            n.capacity = min(n.values_memory.capacity, <int64_t>MOST_END)
        n.room = n.count
        if not done:
            return False
    return True


# Arrow

cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release != NULL:
            schema.children[i].release(schema.children[i])
    if schema.dictionary != NULL and schema.dictionary.release != NULL:
        schema.dictionary.release(schema.dictionary)
    free(schema.private_data)
    schema.release = NULL


cdef bint make_schema(ArrowSchema* out, const Node* n) noexcept nogil:
    """The schema of a node with all below it, in one block of memory for each; False without memory."""
    cdef size_t format_size = strlen(n.format) + 1
    cdef size_t name_size = strlen(n.name) + 1
    cdef size_t places = <size_t>n.child_count + (1 if n.dictionary != NULL else 0)
    cdef size_t head = places * sizeof(ArrowSchema) + n.child_count * sizeof(ArrowSchema*)
    cdef char* block = <char*>calloc(1, head + format_size + name_size)
    cdef ArrowSchema* children
    cdef int i
    if block == NULL:
        return False
    memcpy(block + head, n.format, format_size)
    memcpy(block + head + format_size, n.name, name_size)
    children = <ArrowSchema*>block
    out.format = block + head
    out.name = block + head + format_size
    out.metadata = NULL
    out.flags = ARROW_FLAG_NULLABLE if n.nullable else 0
    out.n_children = n.child_count
    out.children = <ArrowSchema**>(block + places * sizeof(ArrowSchema)) if n.child_count else NULL
    out.dictionary = &children[n.child_count] if n.dictionary != NULL else NULL
    out.private_data = block
    out.release = release_schema
    for i in range(n.child_count):
        out.children[i] = &children[i]
    for i in range(n.child_count):
        if not make_schema(&children[i], n.children[i]):
            return False
    return n.dictionary == NULL or make_schema(out.dictionary, n.dictionary)


cdef struct ArrayNode:
    const void* buffers[3]
    Memory* held[3]
    ArrowArray** children


cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef ArrayNode* node = <ArrayNode*>array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    if array.dictionary != NULL and array.dictionary.release != NULL:
        array.dictionary.release(array.dictionary)
    for i in range(3):
        drop_memory(node.held[i])
    free(node)
    array.release = NULL


cdef bint show(ArrayNode* node, int i, Memory* memory, int64_t least) noexcept nogil:
    """Buffer `i` is this memory, or zeros where there is none; False without memory."""
    if memory == NULL:
        memory = new_memory(least)
        if memory == NULL:
            return False
        memset(memory.data, 0, <size_t>least)
        node.held[i] = memory
    else:
        node.held[i] = hold_memory(memory)
    node.buffers[i] = node.held[i].data
    return True


cdef Memory* packed_bits(const Node* n) noexcept nogil:
    """The booleans of a node, eight to a byte; NULL without memory."""
    cdef int64_t i
    cdef Memory* bits = new_memory((n.count + 7) >> 3)
    if bits == NULL:
        return NULL
    memset(bits.data, 0, <size_t>((n.count + 7) >> 3))
    for i in range(n.count):
        bits.data[i >> 3] |= <uint8_t>((n.values[i] & 1) << (i & 7))
    return bits


cdef int64_t nulls_of(const Node* n) noexcept nogil:
    """Return the number of null values."""
    cdef int64_t i
    cdef int64_t ones = 0
    if n.valid == NULL:
        return n.count if n.storage == NONE_NODE else 0
    for i in range(n.count >> 3):
        ones += popcount(n.valid[i])
    if n.count & 7:
        ones += popcount(n.valid[n.count >> 3] & <uint8_t>((1 << (n.count & 7)) - 1))
    return n.count - ones


cdef bint make_array(ArrowArray* out, const Node* n) noexcept nogil:
    """The values of a node with all below it; False without memory: then `out` holds what was made."""
    cdef size_t places = <size_t>n.child_count + (1 if n.dictionary != NULL else 0)
    cdef size_t head = sizeof(ArrayNode) + places * sizeof(ArrowArray)
    cdef ArrayNode* node = <ArrayNode*>calloc(1, head + n.child_count * sizeof(ArrowArray*))
    cdef ArrowArray* children
    cdef Memory* bits
    cdef int i
    if node == NULL:
        return False
    children = <ArrowArray*>(<char*>node + sizeof(ArrayNode))
    out.length = n.count
    out.null_count = nulls_of(n)
    out.offset = 0
    out.n_buffers = (
        0 if n.storage == NONE_NODE else 1 if n.storage == STRUCT_NODE else 3 if n.storage == BYTES_NODE else 2
    )
    out.n_children = n.child_count
    out.buffers = node.buffers
    out.children = <ArrowArray**>(<char*>node + head) if n.child_count else NULL
    out.dictionary = &children[n.child_count] if n.dictionary != NULL else NULL
    out.private_data = node
    out.release = release_array
    for i in range(n.child_count):
        out.children[i] = &children[i]
    if n.valid != NULL and not show(node, 0, n.valid_memory, 1):
        return False
    if n.storage == BOOL_NODE:
        bits = packed_bits(n)
        if bits == NULL:
            return False
        node.held[1] = bits
        node.buffers[1] = bits.data
    elif n.storage == FIXED_NODE:
        if not show(node, 1, n.values_memory, 1):
            return False
    elif n.storage == BYTES_NODE:
        if not show(node, 1, n.ends_memory, 4) or not show(node, 2, n.values_memory, 1):
            return False
    elif n.storage == LIST_NODE and not show(node, 1, n.ends_memory, 4):
        return False
    for i in range(n.child_count):
        if not make_array(&children[i], n.children[i]):
            return False
    return n.dictionary == NULL or make_array(out.dictionary, n.dictionary)
