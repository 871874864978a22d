from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.decode import RecordTable
from kafkalog._core.text.text_buffer import TextBuffer

NEEDS_BYTES: int
IS_FULL: int
BAD_SIZE: int
IS_DONE: int
BAD_CRC: int
BAD_MAGIC: int

LITERAL: int
VALUE: int
KEY: int
OFFSET: int
TIMESTAMP: int
TIMESTAMP_TYPE: int
VALUE_SIZE: int
KEY_SIZE: int
VALUE_SIZE_32: int
HEADERS: int
VALUE_BASE64: int
KEY_BASE64: int
VALUE_HEX: int
KEY_HEX: int
JSON_VALUE: int
JSON_KEY: int
JSON_HEADERS: int

@final
class TemplateText:
    text: TextBuffer
    position: int
    needed: int
    stop_value: int
    next_offset: int
    records: int
    next_row: int
    def __init__(
        self,
        pieces: Iterable[tuple[int, bytes]],
        *,
        first_offset: int = 0,
        end_offset: int = 0x7FFFFFFFFFFFFFFF,
        max_records: int = -1,
        check_crc: bool = True,
        limit: int = 1 << 18,
    ) -> None: ...
    def render(self, buffer: Buffer, start: int, stop: int) -> int: ...
    def render_table(self, table: RecordTable, row: int = 0) -> int: ...
    @property
    def batch_offset(self) -> int: ...
    @property
    def record_number(self) -> int: ...
    @property
    def record_position(self) -> int: ...
