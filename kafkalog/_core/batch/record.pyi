import datetime as _datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.decode import RecordTable

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
    value: bytes | None
    key: bytes | None
    headers: Headers
    value_view: memoryview | None
    key_view: memoryview | None
    datetime: _datetime.datetime | None
    timestamp_type: int
    leader_epoch: int
    is_control: bool
    def _repr_html_(self) -> str: ...

@final
class RecordIterator:
    def __init__(self, tables: Iterable[RecordTable], start: int = 0, stop: int = ...) -> None: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record: ...
