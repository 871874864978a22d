from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

REQUIRED: Final[object]

@final
class MessageWriter:
    name: str
    def __init__(
        self,
        name: str,
        is_flexible: bool,
        rows: Iterable[tuple[str, str, bool, bool, int | None, MessageWriter | None, object]],
        problem: Callable[[str, str | None], Exception],
        raw_id: Callable[[object], bytes | None] | None = None,
        where: str | None = None,
    ) -> None: ...
    def write(self, tree: Mapping[str, object], head: bytes = b"") -> bytes: ...
    def write_pieces(self, tree: Mapping[str, object], head: bytes = b"") -> list[Any]: ...
