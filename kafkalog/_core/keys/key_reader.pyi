from collections.abc import Callable
from typing import Any, Final, TypeVar, final

from kafkalog._core.batch.record import Record
from kafkalog._core.keys.key_index import KeyIndex
from kafkalog._core.keys.key_map import KeyMap

_Method = TypeVar("_Method", bound=Callable[..., Any])

@final
class Undecided: ...

UNDECIDED: Final[Undecided]

@final
class ReadPart:
    def __init__(
        self,
        secret: bytes,
        base_offset: int,
        index: KeyIndex | KeyMap | None,
        read: Callable[[int, int], bytes],
        records: Any,
    ) -> None: ...

@final
class ReaderPlace:
    reader: KeyReader | None
    def __init__(self, passing: tuple[type[Exception], ...]) -> None: ...
    def read(self, key: object) -> Record | None | Undecided: ...

def read_first(usual: _Method) -> _Method: ...
@final
class KeyReader:
    state: object
    start_offset: int
    def __init__(
        self,
        source: Any,
        parts: list[ReadPart],
        read_at_end: Callable[[int], Record | None],
        limit: Callable[[], None],
    ) -> None: ...
    def get(self, key: bytes) -> Record | None | Undecided: ...
