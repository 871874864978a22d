from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

from typing_extensions import Buffer

FAULTS: Final[tuple[str, ...]]
MAX_ELEMENTS: Final[int]
MAX_TAGS: Final[int]
MAX_STRING_BYTES: Final[int]

@final
class Dialect:
    def __init__(
        self,
        words: Mapping[str, str],
        problem: Callable[[str, int], Exception],
        make_id: Callable[[bytes], object],
        of_records: bool = False,
    ) -> None: ...

@final
class MessageReader:
    type: Any
    def __init__(
        self,
        type: Any,
        is_flexible: bool,
        rows: Iterable[tuple[str, str, bool, bool, int | None, MessageReader | None, object]],
        dialect: Dialect,
        refused: Mapping[int, str] | None = None,
    ) -> None: ...
    def read(self, frame: Buffer, position: int, max_elements: int = ..., is_whole: bool = False) -> Any: ...
    def read_from(
        self, frame: Buffer, position: int, max_elements: int = ..., is_whole: bool = False
    ) -> tuple[Any, int]: ...
