from collections.abc import Callable
from typing import final

from typing_extensions import Buffer

from kafkalog._core.bytes.store import Store

GZIP_FASTER: int
GZIP_WHOLE: int
FIRST_FAULT: int
TOO_LARGE: int
FAULT_TEXT: dict[int, str]

@final
class Tool:
    function: Callable[..., object] | None
    error: type[Exception] | tuple[type[Exception], ...]
    gives: bool
    last: object
    def __init__(
        self,
        function: Callable[..., object] | None,
        error: type[Exception] | tuple[type[Exception], ...],
        *,
        gives: bool = False,
        last: object = None,
    ) -> None: ...

@final
class Unpacker:
    busy: bool
    codec_error: str | None
    codec: int
    limit: int
    payload_position: int
    def __init__(self, find: Callable[[int], Tool | None]) -> None: ...
    def unpack(self, store: Store, codec: int, data: Buffer, *, magic: int = 2, limit_bytes: int) -> int: ...
    @property
    def position(self) -> int: ...
    def text(self, status: int) -> str: ...

def zstd_frame_at(data: Buffer, start: int) -> tuple[int, int, bool] | None: ...
