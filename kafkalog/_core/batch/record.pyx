"""Record: one row of a table, or separate values; keys, values and headers become Python objects on first touch."""
cimport cython

from kafkalog._core.batch.decode cimport RecordPlace, RecordTable
from kafkalog._core.batch.record cimport Record, record_of


cdef object plain(object data, str what):
    """`data` as bytes or None; TypeError for text, with the fix."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        raise TypeError(f"{what} is a str: encode it first, {what}.encode()")
    return bytes(memoryview(data))


@cython.final
@cython.freelist(64)                # most records are looked at one after the other, and gone
cdef class Record:
    """One record: `offset`, `timestamp` (ms, -1 for none), `key`, `value` (bytes or None), `headers`.

    `headers` is a tuple of (name, bytes or None). Two records are equal when all five agree; records hash and pickle.
    `value_view` and `key_view` are memoryviews that copy nothing and keep the chunk they point into alive.
    """

    def __init__(self, value=None, key=None, timestamp: int = -1, headers=(), offset: int = -1):
        self.table = None
        self.row = 0
        self.own_value = plain(value, "value")
        self.own_key = plain(key, "key")
        self.timestamp = timestamp
        self.offset = offset
        pairs = headers.items() if isinstance(headers, dict) else headers
        self.own_headers = tuple([(_name(n), plain(v, "header value")) for n, v in pairs])

    @property
    def value(self) -> bytes | None:
        with cython.critical_section(self):     # of two threads that make it, one would drop what the other returns
            if self.own_value is None and self.table is not None:
                self.own_value = self.table.value_at(self.row)
            return self.own_value

    @property
    def key(self) -> bytes | None:
        with cython.critical_section(self):
            if self.own_key is None and self.table is not None:
                self.own_key = self.table.key_at(self.row)
            return self.own_key

    @property
    def headers(self) -> tuple:
        with cython.critical_section(self):
            if self.own_headers is None:
                self.own_headers = () if self.table is None else self.table.headers_at(self.row)
            return self.own_headers

    @property
    def value_view(self) -> memoryview | None:
        return self._view(True)

    @property
    def key_view(self) -> memoryview | None:
        return self._view(False)

    def _view(self, bint of_value):
        cdef RecordPlace* place
        if self.table is None:
            data = self.own_value if of_value else self.own_key
            return None if data is None else memoryview(data)
        place = &self.table.places[self.row]
        size = place.value_size if of_value else place.key_size
        if size < 0:
            return self.table.value_at(self.row) if of_value else self.table.key_at(self.row)
        at = place.value_at if of_value else place.key_at
        chunk = memoryview(<object>self.table.view.obj if self.table.own is None else self.table.own)
        if chunk.format != "B" or chunk.ndim != 1:
            chunk = chunk.cast("B")         # places count bytes, whatever the items of the chunk are
        return chunk[at:at + size].toreadonly()

    @property
    def datetime(self):
        """The timestamp as an aware datetime in UTC, None where there is no timestamp or datetime cannot hold it."""
        if self.timestamp < 0:
            return None
        import datetime as dt           # here, as most programs never ask for it
        try:
            return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=self.timestamp)
        except OverflowError:
            return None

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime (also for a record made by hand), 1 LogAppendTime, -1 for a v0 message, which has no time."""
        return (self.row >> 1) & 1 if self.table is None else self.table.timestamp_type(self.row)

    @property
    def is_control(self) -> bool:
        """True for a record of a control batch, which consumers do not get; False for a record made by hand."""
        return self.table is not None and self.table.is_control(self.row)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that appended the batch; -1 where it is not known: formats v0 and v1, own records."""
        if self.table is not None:
            return self.table.leader_epoch(self.row)
        return self.row >> 2 if self.row & 1 else -1

    def _fields(self):
        return (self.offset, self.timestamp, self.key, self.value, self.headers)

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return Record, (self.value, self.key, self.timestamp, self.headers, self.offset)

    def _moment(self):
        """The time in the form of `util/times.py: time_text`."""
        moment = self.datetime
        if moment is None:
            return "no time" if self.timestamp < 0 else str(self.timestamp)
        return moment.isoformat(timespec="milliseconds" if self.timestamp % 1000 else "seconds").replace("+00:00", "Z")

    def __repr__(self):
        text = self._moment()
        key, value = self.key, self.value
        key_text = repr(key) if key is None or len(key) <= 20 else repr(key[:17]) + "..."
        value_text = repr(value) if value is None or len(value) <= 20 else f"{len(value)} B"
        return f"<Record @{self.offset} {text} key={key_text} value={value_text} headers={len(self.headers)}>"

    def _repr_html_(self):
        rows = [("offset", str(self.offset)), ("time", self._moment())]
        rows += [("key", _start(self.key)), ("value", _start(self.value))]
        rows += [(f"header {name!r}", _start(value)) for name, value in self.headers]
        from html import escape
        cells = [f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows]
        return f"<table>{''.join(cells)}</table>"


cdef str _start(object data):
    """`data` as Python writes it, with its size where only its first 200 bytes are shown."""
    return repr(data) if data is None or len(data) <= 200 else f"{data[:200]!r}... {len(data):,} B"


cdef object _name(object name):
    """A header name as text; bytes must be UTF-8."""
    if isinstance(name, str):
        return name
    if isinstance(name, bytes):
        return (<bytes>name).decode("utf-8")
    raise TypeError(f"a header name is {type(name).__name__}: give a str")


@cython.final
cdef class RecordIterator:
    """Iterates over the records of the tables that `tables` yields, from offset `start` up to `stop` (exclusive).

    It asks for the next table only when the last is used up, and stops asking once `stop` is reached. Offsets go up:
    what a table holds at or below the last one given (a batch written again after a cut) is passed over.
    """
    cdef object tables
    cdef RecordTable table
    cdef Py_ssize_t row
    cdef int64_t given
    cdef int64_t stop

    def __init__(self, tables, start: int = 0, stop: int = 0x7FFFFFFFFFFFFFFF):
        self.tables = iter(tables)
        self.given = start - 1
        self.stop = stop
        self.row = 0

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self) -> Record:
        cdef int64_t offset
        while True:
            while self.table is not None and self.row < self.table.count:
                offset = self.table.offset_column[self.row]
                if offset >= self.stop:
                    self.table = None
                    self.tables = iter(())
                    raise StopIteration
                if offset > self.given:
                    self.given = offset
                    self.row += 1
                    return record_of(self.table, self.row - 1)
                self.row += 1
            self.table = next(self.tables)
            self.row = 0
