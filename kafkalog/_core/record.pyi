import datetime as _datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import final

from typing_extensions import Buffer

from kafkalog._core.decode import RecordTable

Headers = tuple[tuple[str, bytes | None], ...]

@final
class Record:
    offset: int
    timestamp: int
    def __init__(
        self,
        value: Buffer | None = None,
        key: Buffer | None = None,
        timestamp: int = -1,
        headers: Iterable[tuple[str | bytes, Buffer | None]] | Mapping[str, Buffer | None] = (),
        offset: int = -1,
    ) -> None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def value_view(self) -> memoryview | None: ...
    @property
    def key_view(self) -> memoryview | None: ...
    @property
    def datetime(self) -> _datetime.datetime | None: ...
    @property
    def timestamp_type(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RecordIterator:
    def __init__(self, tables: Iterable[RecordTable], start: int = 0, stop: int = ...) -> None: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record: ...
