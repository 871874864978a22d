"""Programs that read Avro data, as C structs; kafkalog/values/avro_program.py makes their steps of two schemas."""
cimport cython
from libc.stdlib cimport calloc, free

OPS = {
    name: code for code, name in enumerate(
        "NULL BOOL INT LONG INT_TO_LONG INT_TO_FLOAT INT_TO_DOUBLE LONG_TO_FLOAT LONG_TO_DOUBLE FLOAT FLOAT_TO_DOUBLE "
        "DOUBLE BYTES TEXT FIXED NUMBERED_ENUM ENUM DECIMAL FIXED_DECIMAL FIXED_UUID TIME_MS TIME_US ARRAY MAP RECORD "
        "UNION BRANCH DEFAULT FAIL SKIP_BOOL SKIP_NUMBER SKIP_SIZE SKIP_BYTES SKIP_ARRAY SKIP_MAP SKIP_RECORD "
        "SKIP_NOTHING".split()
    )
}
assert len(OPS) == OP_CODES

cdef enum:
    SHOWN_SIZE = 240            # two of them and the words around fit the text of an error


cdef bytes shown(bytes text):
    """Text of a schema as an error shows it: its beginning, cut between characters."""
    return text if len(text) <= SHOWN_SIZE else text[:SHOWN_SIZE].decode("utf-8", "ignore").encode()


@cython.final
cdef class AvroProgram:
    """Steps that read the data of one writer's schema: tuples (code, node, size, extra, parts, table, data, words, path).

    `parts` are numbers of steps, which may go in a circle. The numbers of nodes are believed: they are made for the
    builder's tree by the same code.
    """

    def __cinit__(self, list ops not None):
        cdef int i
        self.kept = []
        self.ops = <Op*>calloc(max(len(ops), 1), sizeof(Op))
        if self.ops == NULL:
            raise MemoryError
        self.count = <int>len(ops)
        for i in range(self.count):
            code, node, size, extra, parts, table, data, words, path = ops[i]
            self.ops[i].code = code
            self.ops[i].node = node
            self.ops[i].size = size
            self.ops[i].extra = extra
            self._fill(&self.ops[i], (parts, table, data, path), words)

    cdef int _fill(self, Op* op, tuple given, tuple words) except -1:
        cdef int i
        cdef tuple parts = given[0]
        cdef tuple table = given[1]
        cdef bytes data = given[2] if op.code != OP_FAIL else shown(given[2])
        cdef bytes path = shown((<str>given[3]).encode("utf-8", "replace").replace(b"\x00", b"?"))
        self.kept += [data, path]
        op.data = data
        op.data_size = len(data)
        op.path = path
        if parts:
            op.parts = <Op**>calloc(len(parts), sizeof(Op*))
            if op.parts == NULL:
                raise MemoryError
            op.part_count = <int>len(parts)
            for i in range(op.part_count):
                if not 0 <= parts[i] < self.count:
                    raise ValueError(f"there is no step {parts[i]}")
                op.parts[i] = &self.ops[<int>parts[i]]
        if table:
            op.table = <int32_t*>calloc(len(table), sizeof(int32_t))
            if op.table == NULL:
                raise MemoryError
            op.table_size = <int>len(table)
            for i in range(op.table_size):
                op.table[i] = table[i]
        if words:
            op.words = <const char**>calloc(len(words), sizeof(char*))
            op.word_sizes = <int64_t*>calloc(len(words), sizeof(int64_t))
            if op.words == NULL or op.word_sizes == NULL:
                raise MemoryError
            for i in range(<int>len(words)):
                word = (<str>words[i]).encode()
                self.kept.append(word)
                op.words[i] = word
                op.word_sizes[i] = len(word)
        return 0

    def __dealloc__(self):
        cdef int i
        if self.ops != NULL:
            for i in range(self.count):
                free(self.ops[i].parts)
                free(self.ops[i].table)
                free(self.ops[i].words)
                free(self.ops[i].word_sizes)
            free(self.ops)

    def __len__(self) -> int:
        return self.count


@cython.final
cdef class AvroPrograms:
    """The programs of schema ids (or fingerprints), or the texts of those whose values have no place in the columns."""

    def __cinit__(self, dict programs not None):
        cdef int i = 0
        cdef AvroProgram program
        cdef bytes text
        self.kept = []
        self.ids = <int64_t*>calloc(max(len(programs), 1), sizeof(int64_t))
        self.starts = <Op**>calloc(max(len(programs), 1), sizeof(Op*))
        self.texts = <const char**>calloc(max(len(programs), 1), sizeof(char*))
        if self.ids == NULL or self.starts == NULL or self.texts == NULL:
            raise MemoryError
        for id, found in programs.items():
            self.ids[i] = id
            if isinstance(found, str):
                text = (<str>found).encode("utf-8", "replace").replace(b"\x00", b"?")
                self.kept.append(text)
                self.texts[i] = text
            else:
                program = found
                self.kept.append(program)
                self.starts[i] = program.ops
            i += 1
        self.count = i

    def __dealloc__(self):
        free(self.ids)
        free(self.starts)
        free(self.texts)

    def __len__(self) -> int:
        return self.count
