from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.unpack import Unpacker
from kafkalog._core.text.text_buffer import TextBuffer

NEEDS_BYTES: int
IS_FULL: int
BAD_SIZE: int
BAD_CODEC: int
BAD_CONTROL: int
BAD_HEADER: int
NEEDS_TEXT: int
BAD_FORMAT: int

@final
class DumpText:
    text: TextBuffer
    position: int
    needed: int
    stop_value: int
    record_offset: int
    key: bytes | None
    value: bytes | None
    unpacker: Unpacker
    is_refused: bool
    def __init__(
        self,
        *,
        deep: bool = False,
        data: bool = False,
        skip_metadata: bool = False,
        ask: bool = False,
        limit: int = 1 << 18,
        unpacker: Unpacker,
        decoded_limit: int = 1 << 28,
    ) -> None: ...
    def give(self, words: bytes) -> None: ...
    @property
    def is_control(self) -> bool: ...
    def render(self, buffer: Buffer, start: int, stop: int, base_position: int) -> int: ...
    @property
    def batch_offset(self) -> int: ...
    @property
    def record_number(self) -> int: ...
    @property
    def record_position(self) -> int: ...
    @property
    def non_consecutive(self) -> list[tuple[int, int]]: ...
